//! Copies that are interrupted and resumed.

use std::fs;
use std::io::{BufRead as _, BufReader};
use std::process::Stdio;

use gridhaul_interop::{Kind, Relay, content};

use crate::site::{Site, assert_same};

/// The journals of a site.
fn journals(site: &Site) -> usize {
    let place = site.local("state/gridhaul");
    fs::read_dir(place).map_or(0, Iterator::count)
}

/// Whether a journal says that the destination has ranges of a file.
fn has_ranges(site: &Site) -> bool {
    let entries = fs::read_dir(site.local("state/gridhaul"))
        .into_iter()
        .flatten();
    let mut journals = entries.map(|entry| fs::read_to_string(entry.unwrap().path()).unwrap());
    journals.any(|text| {
        text.lines()
            .any(|line| line.starts_with("P ") && line.contains('-'))
    })
}

/// Starts a copy, and kills it after a line of output at which `is_time`.
fn killed(site: &Site, arguments: &[&str], is_time: impl Fn(&str) -> bool) {
    let mut command = site.command(arguments);
    let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let was_time = lines.any(|line| is_time(&line.unwrap()));
    child.kill().unwrap();
    child.wait().unwrap();
    assert!(was_time, "{arguments:?}: it has ended before");
}

#[test]
fn a_killed_copy_of_many_files_is_completed() {
    for kind in [Kind::Gridhaul, Kind::Globus] {
        let site = Site::anonymous(kind, &[]);
        fs::create_dir(site.local("many")).unwrap();
        for index in 0..1000 {
            let path = site.local("many").join(index.to_string());
            fs::write(path, format!("content {index}")).unwrap();
        }
        let url = site.server.url("many");
        for (from, to, copy) in [
            ("many", url.as_str(), site.served("many")),
            (&url, "back", site.local("back")),
        ] {
            let all = ["copy", "-r", "--json", from, to];
            killed(&site, &all, |line| line.contains("\"file\""));
            assert_eq!(journals(&site), 1);
            let lines = site.must(&["copy", "-r", "--json", "--resume", from, to]);
            let done = lines.lines().last().unwrap();
            assert!(!done.contains("\"unchanged\":0"), "{done}");
            assert_eq!(journals(&site), 0);
            assert_eq!(fs::read_dir(&copy).unwrap().count(), 1000);
            for index in 0..1000 {
                let found = fs::read_to_string(copy.join(index.to_string()));
                assert_eq!(found.unwrap(), format!("content {index}"));
            }
            let error = site.fails(&["copy", "-r", "--resume", from, to]);
            assert!(error.contains("was interrupted"), "{error}");
        }
    }
}

#[test]
fn a_killed_copy_of_a_large_file_goes_on_where_it_was() {
    const SIZE: u64 = 64 << 20;

    // The server limits the rate, so that there is time for a kill.
    let place = tempfile::tempdir().unwrap();
    let config = place.path().join("gridhaul.toml");
    let limit = "[[limit]]\nname = 'all'\nnetwork = '127.0.0.0/8'\nbandwidth = '8M'\n";
    fs::write(&config, limit).unwrap();
    let site = Site::anonymous(Kind::Gridhaul, &["--config", config.to_str().unwrap()]);
    content::write(&site.local("large"), SIZE).unwrap();
    let url = site.server.url("large");
    for (from, to, mode) in [
        ("large", url.as_str(), "extended"),
        (&url, "back", "stream"),
        (&url, "blocks", "extended"),
    ] {
        let copy = ["copy", "--json", "--mode", mode, from, to];
        killed(&site, &copy, |line| match mode {
            // What has arrived of a stream is the size of its file.
            "stream" => line.contains("\"progress\""),
            _ => has_ranges(&site),
        });
        let lines = site.must(&["copy", "--json", "--resume", "--mode", mode, from, to]);
        let file = lines.lines().find(|line| line.contains("\"file\""));
        let file = file.unwrap_or_else(|| panic!("{lines}"));
        let bytes = file.split("\"bytes\":").nth(1).unwrap();
        let bytes: u64 = bytes.split(',').next().unwrap().parse().unwrap();
        assert!(
            bytes < SIZE - (4 << 20),
            "{mode} {to}: {bytes} bytes were sent again"
        );
        let copied = match to == url {
            true => site.served("large"),
            false => site.local(to),
        };
        assert_same(&site.local("large"), &copied, &[mode, to]);
    }
}

/// A relay that breaks the first transfer after its last byte, and before the words that it is complete; and the URL of a file
/// through it.
fn relayed(site: &Site, name: &str) -> (Relay, String) {
    let server = site.server.address();
    let relay = Relay::start(server, "226").unwrap();
    let url = site.server.url(name);
    let url = url.replace(&server.to_string(), &relay.address().to_string());
    (relay, url)
}

#[test]
fn a_file_whose_connection_breaks_is_tried_again() {
    for kind in [Kind::Gridhaul, Kind::Globus] {
        let site = Site::anonymous(kind, &[]);
        for mode in ["stream", "extended"] {
            let copy = |from: &str, to: &str, relay: Relay| {
                let lines = site.must(&["copy", "--json", "--mode", mode, from, to]);
                assert!(relay.has_broken(), "{lines}");
                assert!(lines.contains(r#""event":"retry""#), "{lines}");
            };
            let (relay, url) = relayed(&site, mode);
            copy("source", &url, relay);
            assert_same(&site.local("source"), &site.served(mode), &[mode]);
            let (relay, url) = relayed(&site, mode);
            copy(&url, mode, relay);
            assert_same(&site.local("source"), &site.local(mode), &[mode]);
            let (_relay, url) = relayed(&site, mode);
            let error = site.fails(&["copy", "--retry", "0", "--mode", mode, &url, "other"]);
            assert!(error.contains("source: the server closed"), "{error}");
            assert!(!site.local("other").exists());
        }
    }
}

#[test]
fn a_refusal_for_good_is_not_tried_again() {
    let site = Site::anonymous(Kind::Globus, &[]);
    let url = format!("ftp://{}/nowhere/file", site.server.address());
    for mode in ["stream", "extended"] {
        let error = site.fails(&["copy", "--mode", mode, "source", &url]);
        assert!(!error.contains("tried again"), "{error}");
    }
}
