//! Copies that are interrupted and resumed.

use std::fs;
use std::io::{BufRead as _, BufReader};
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;
use std::process::Stdio;

use gridhaul_interop::{Kind, Relay, chown_to_nobody, content};

use crate::site::{Site, assert_same, number, texts};

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

/// Starts a copy, and kills it after a line of output at which `is_time`. Returns how many files it has called complete.
fn killed(site: &Site, arguments: &[&str], mut is_time: impl FnMut(&str) -> bool) -> usize {
    let mut command = site.command(arguments);
    let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
    let lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let (mut complete, mut was_time) = (0, false);
    // What it had written when it was killed counts, too.
    for line in lines.map_while(Result::ok) {
        complete += usize::from(line.contains(r#""event":"file""#));
        if !was_time && is_time(&line) {
            was_time = true;
            child.kill().unwrap();
        }
    }
    child.wait().unwrap();
    assert!(was_time, "{arguments:?}: it has ended before");
    complete
}

/// The files of a directory that have their names.
fn named(directory: &Path) -> usize {
    let names = fs::read_dir(directory)
        .unwrap()
        .map(|entry| entry.unwrap().file_name());
    names
        .filter(|name| !name.as_bytes().starts_with(b"."))
        .count()
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
            let all = ["copy", "-r", "-c", "2", "--json", from, to];
            let mut files = 0;
            let told = killed(&site, &all, |line| {
                files += usize::from(line.contains("\"file\""));
                files == 300
            });
            let present = named(&copy);
            assert_eq!(journals(&site), 1);
            let lines = site.must(&["copy", "-r", "--json", "--resume", from, to]);
            // What was called complete is not copied again, and of what is complete at most the files ahead on two sessions: the kill
            // may have come before their replies.
            let (unchanged, again) = (number(&lines, "unchanged"), number(&lines, "files"));
            assert_eq!(unchanged + again, 1000, "{lines}");
            assert!(unchanged >= told, "{unchanged} of {told} are known");
            assert!(
                unchanged + 2 * 32 >= present,
                "{unchanged} of {present} are known"
            );
            assert_eq!(journals(&site), 0);
            assert_eq!(fs::read_dir(&copy).unwrap().count(), 1000);
            for index in 0..1000 {
                let found = fs::read_to_string(copy.join(index.to_string()));
                assert_eq!(found.unwrap(), format!("content {index}"));
            }
        }
    }
}

#[test]
fn a_copy_without_records_is_resumed_from_the_beginning() {
    let site = Site::anonymous(Kind::Gridhaul, &[]);
    let url = site.server.url("a");
    // One that was killed before its first record, another one while it began its journal, and one of an older program.
    for found in [None, Some(""), Some("gridhaul copy 0.0.1\nC 1\n")] {
        if let Some(found) = found {
            fs::write(site.local("journal"), found).unwrap();
        }
        let copy = ["copy", "--json", "--resume", "--journal", "journal"];
        let lines = site.must(&[&copy[..], &["source", &url]].concat());
        assert_eq!(number(&lines, "files"), 1, "{lines}");
        let note = lines
            .lines()
            .find(|line| line.contains(r#""event":"note""#));
        assert!(
            note.is_some_and(|note| note.contains("all is copied")),
            "{lines}"
        );
        assert_same(&site.local("source"), &site.served("a"), &[]);
        assert!(!site.local("journal").exists(), "it is complete");
    }
}

#[test]
fn a_file_that_is_no_journal_stays_as_it_is() {
    let site = Site::anonymous(Kind::Gridhaul, &[]);
    let url = site.server.url("a");
    fs::write(site.local("results"), "results of a year").unwrap();
    std::os::unix::fs::symlink("results", site.local("link")).unwrap();
    for name in ["results", "link"] {
        for options in [&[][..], &["--resume"]] {
            let copy = [&["copy", "--journal", name], options, &["source", &url]].concat();
            let error = site.fails(&copy);
            assert!(error.contains("journal"), "{error}");
        }
    }
    let found = fs::read_to_string(site.local("results")).unwrap();
    assert_eq!(found, "results of a year");
    assert!(!site.served("a").exists());
}

#[test]
fn a_journal_that_cannot_be_written_is_told() {
    let site = Site::anonymous(Kind::Gridhaul, &[]);
    fs::write(site.local("state"), "no directory").unwrap();
    let output = site.gridhaul(&["copy", "source", &site.server.url("a")]);
    let (_, stderr) = texts(&output);
    assert!(output.status.success(), "{stderr}");
    assert_eq!(stderr.lines().count(), 1, "{stderr}");
    assert!(stderr.contains("it is not recorded"), "{stderr}");
}

#[test]
fn complete_files_are_verified_when_a_resumed_copy_wants_that() {
    const LARGE: u64 = 5 << 20;

    let site = Site::anonymous(Kind::Gridhaul, &[]);
    fs::create_dir(site.local("tree")).unwrap();
    for name in ["same", "wrong"] {
        content::write(&site.local("tree").join(name), LARGE).unwrap();
    }
    fs::write(site.local("tree/small"), "small").unwrap();
    // A file that cannot be copied keeps the journal.
    fs::write(site.local("tree/refused"), "a directory has this name").unwrap();
    fs::create_dir_all(site.served("tree/refused")).unwrap();
    chown_to_nobody(&site.served("tree")).unwrap();
    let url = site.server.url("tree");
    let copy = |options: &[&str]| {
        let all = [&["copy", "-r", "--json"], options, &["tree", &url]].concat();
        let output = site.gridhaul(&all);
        assert_eq!(output.status.code(), Some(1));
        texts(&output).0
    };
    copy(&[]);
    // Of the same size and time.
    let wrong = site.served("tree/wrong");
    let mut bytes = fs::read(&wrong).unwrap();
    bytes[1000] ^= 1;
    fs::write(&wrong, bytes).unwrap();
    let lines = copy(&["--resume"]);
    assert_eq!(number(&lines, "unchanged"), 3, "{lines}");
    let lines = copy(&["--resume", "--checksum", "SHA256"]);
    let counts = ["unchanged", "files"].map(|name| number(&lines, name));
    // The large one with the right content is compared only, and the small one is copied again.
    assert_eq!(counts, [1, 2], "{lines}");
    assert_same(&site.local("tree/wrong"), &wrong, &[]);
    let lines = copy(&["--resume", "--checksum", "SHA256"]);
    assert_eq!(number(&lines, "unchanged"), 3, "{lines}");
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

/// Blocks arrive in any order, so what a killed copy has left may have the size of the whole file. A file that was made in the moment of the
/// kill has the time of its copy, too.
#[test]
fn what_a_killed_copy_has_left_is_not_taken_for_the_file() {
    let site = Site::anonymous(Kind::Gridhaul, &[]);
    fs::create_dir(site.local("tree")).unwrap();
    for (name, options) in [("tree", &["-r"][..]), ("tree/large", &[])] {
        content::write(&site.local("tree/large"), 8 << 20).unwrap();
        let url = site.server.url(name);
        let copy = [&["copy", "--json", "--sync", "--rate", "4M"], options].concat();
        let arguments = [&copy[..], &[name, &url]].concat();
        killed(&site, &arguments, |line| line.contains("progress"));
        let (left, whole) = (site.served("tree/large"), site.local("tree/large"));
        let file = fs::File::options()
            .create(true)
            .truncate(false)
            .write(true)
            .open(&left)
            .unwrap();
        file.set_len(8 << 20).unwrap();
        let time = fs::metadata(&whole).unwrap().modified().unwrap();
        file.set_modified(time).unwrap();
        chown_to_nobody(&left).unwrap();
        let resumed = ["copy", "--json", "--sync", "--resume"];
        let resumed = [&resumed[..], options, &[name, &url]].concat();
        let lines = site.must(&resumed);
        assert_eq!(number(&lines, "files"), 1, "{lines}");
        assert_same(&whole, &left, options);
        fs::remove_file(&left).unwrap();
    }
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
