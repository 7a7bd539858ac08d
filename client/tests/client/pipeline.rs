//! Small files with commands that are sent ahead.

use std::fs;
use std::io::Write as _;
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use gridhaul_interop::{Kind, chown_to_nobody};

use super::blocks;
use super::doubtful::DOUBT;
use super::scripted::{Scripted, gridhaul};
use crate::site::{Site, texts};

pub(crate) const FILES: usize = 150;

/// Sizes around those where something changes: nothing, a block with its header, buffers, and what arrives while it is sent.
fn content(number: usize) -> Vec<u8> {
    const SIZES: [usize; 6] = [0, 1, 4096, 16 << 10, (16 << 10) + 1, 300_000];
    let size = SIZES[number % SIZES.len()];
    (0..size)
        .map(|place| (place * 7 + number).to_le_bytes()[0])
        .collect()
}

pub(crate) fn fill(place: &Path) {
    fs::create_dir_all(place.join("sub")).unwrap();
    for number in 0..FILES {
        fs::write(place.join(name(number)), content(number)).unwrap();
    }
}

pub(crate) fn name(number: usize) -> String {
    match number % 3 {
        0 => format!("sub/f{number}"),
        _ => format!("f{number}"),
    }
}

/// Compares the files, without one. `said` is what the program has said.
pub(crate) fn assert_filled(place: &Path, without: Option<usize>, said: &str) {
    for number in (0..FILES).filter(|number| Some(*number) != without) {
        let found = fs::read(place.join(name(number)));
        let found = found.unwrap_or_else(|error| panic!("{}: {error}\n{said}", name(number)));
        assert!(found == content(number), "{}\n{said}", name(number));
    }
}

#[test]
fn trees_of_small_files_go_both_ways() {
    for kind in [Kind::Gridhaul, Kind::Globus] {
        for options in [
            &[][..],
            &["--dcau", "none", "-c", "1"],
            &["--protect"],
            &["-p", "2"],
            &["--checksum", "MD5"],
        ] {
            let site = Site::gsi(kind, &[]);
            fill(&site.local("tree"));
            let (url, back) = (site.server.url("there"), "back");
            let said = site.must(&[&["copy", "-r", "--times"], options, &["tree", &url]].concat());
            let started = Instant::now();
            assert_filled(&site.served("there"), None, &said);
            let said = site.must(&[&["copy", "-r", "--times"], options, &[&url, back]].concat());
            // No end waits for the other.
            assert!(started.elapsed() < Duration::from_secs(25), "{options:?}");
            assert_filled(&site.local("back"), None, &said);
            let time = |path: &Path| fs::metadata(path).unwrap().modified().unwrap();
            if kind == Kind::Gridhaul {
                let (source, copy) = (site.local("tree"), site.local("back"));
                let since = time(&source.join("f1")).duration_since(time(&copy.join("f1")));
                assert!(since.unwrap().as_secs() < 1);
            }
        }
    }
}

#[test]
fn the_error_of_a_file_is_its_own() {
    for kind in [Kind::Gridhaul, Kind::Globus] {
        for concurrency in ["1", "4"] {
            let site = Site::anonymous(kind, &[]);
            fill(&site.served("tree"));
            let broken = 70;
            let closed = site.served("tree").join(name(broken));
            fs::set_permissions(&closed, fs::Permissions::from_mode(0o000)).unwrap();
            let url = site.server.url("tree");
            let error = site.fails(&["copy", "-r", "-c", concurrency, &url, "back"]);
            assert_filled(&site.local("back"), Some(broken), &error);
            assert_eq!(error.lines().count(), 1, "{error}");
            assert!(error.contains(&name(broken)), "{error}");
            assert!(error.contains("Permission denied"), "{error}");
            assert!(!site.local("back").join(name(broken)).exists());

            fill(&site.local("tree"));
            // A directory has the name of a file.
            fs::create_dir_all(site.served("put").join(name(broken))).unwrap();
            chown_to_nobody(&site.served("put")).unwrap();
            let url = site.server.url("put");
            fs::create_dir_all(site.served("put/sub")).unwrap();
            chown_to_nobody(&site.served("put/sub")).unwrap();
            let error = site.fails(&["copy", "-r", "-c", concurrency, "tree", &url]);
            assert_filled(&site.served("put"), Some(broken), &error);
            assert_eq!(error.lines().count(), 1, "{error}");
            assert!(error.contains(&name(broken)), "{error}");
        }
    }
}

/// Gets `f1` to `f9` of a directory; returns the errors.
fn get_nine(server: &Scripted, place: &Path, options: &[&str]) -> String {
    let urls = (1..10).map(|number| server.url(&format!("f{number}")));
    let urls: Vec<String> = urls.collect();
    let urls: Vec<&str> = urls.iter().map(String::as_str).collect();
    let place = format!("{}/", place.display());
    let arguments = [&["copy", "-c", "1"], options, &urls, &[&place]].concat();
    let output = gridhaul(&arguments);
    texts(&output).1
}

fn assert_nine(place: &Path, error: &str) {
    for number in 1..10 {
        let content = fs::read(place.join(format!("f{number}"))).unwrap_or_default();
        assert_eq!(content, format!("/f{number}").as_bytes(), "{error}");
    }
}

/// The number of RETR commands.
pub(crate) fn retrieved(server: &Scripted) -> usize {
    let commands = server.commands();
    commands
        .iter()
        .filter(|line| line.starts_with("RETR"))
        .count()
}

/// A server that acts on the fifth file like this, for the first time.
fn once_at_the_fifth(act: fn(&mut TcpStream) -> std::io::Result<()>) -> Scripted {
    let acted = AtomicUsize::new(0);
    blocks::start(Box::new(move |name, control| {
        let is_chosen = name == "/f5" && acted.fetch_add(1, Ordering::Relaxed) == 0;
        is_chosen.then(|| act(control))
    }))
}

#[test]
fn a_file_that_fails_once_is_copied_again_and_so_are_those_behind_it() {
    let acts: [fn(&mut TcpStream) -> std::io::Result<()>; 5] = [
        // An error before any data, and one after half a file.
        |control| control.write_all(b"451 Not now.\r\n"),
        |control| {
            blocks::start_reply(control)?;
            blocks::send_beginning(b"/f")?;
            control.write_all(b"426 The disk failed.\r\n")
        },
        // The server goes.
        |control| control.shutdown(std::net::Shutdown::Both),
        // A file of another length, called complete.
        |control| {
            blocks::start_reply(control)?;
            blocks::send(b"/f5 and more")?;
            control.write_all(b"226 Complete.\r\n")
        },
        // Nothing, called complete.
        |control| {
            blocks::start_reply(control)?;
            blocks::send(b"")?;
            control.write_all(b"226 Complete.\r\n")
        },
    ];
    for act in acts {
        let place = tempfile::tempdir().unwrap();
        let server = once_at_the_fifth(act);
        let error = get_nine(&server, place.path(), &[]);
        assert_nine(place.path(), &error);
        let are_notes = error.lines().all(|line| line.contains("; tried again in"));
        assert!(are_notes, "{error}");
    }
}

#[test]
fn markers_without_bytes_do_not_prolong_a_pipeline() {
    let place = tempfile::tempdir().unwrap();
    let server = once_at_the_fifth(|control| {
        blocks::start_reply(control)?;
        loop {
            control.write_all(
                b"112-Perf Marker\r\n Timestamp: 1\r\n Stripe Index: 0\r\n Stripe Bytes Transferred: 0\r\n",
            )?;
            control.write_all(b" Total Stripe Count: 1\r\n112 End.\r\n")?;
            thread::sleep(Duration::from_millis(50));
        }
    });
    let started = Instant::now();
    let error = get_nine(&server, place.path(), &["--stall-timeout", "5"]);
    // Four time limits would be 20 s.
    assert!(started.elapsed() < Duration::from_secs(18), "{error}");
    assert_nine(place.path(), &error);
}

#[test]
fn replies_that_do_not_fit_end_the_pipeline() {
    let acts: [fn(&mut TcpStream) -> std::io::Result<()>; 3] = [
        // The next file is called complete, before it has begun.
        |control| {
            blocks::start_reply(control)?;
            blocks::send(b"/f5")?;
            control.write_all(b"226 Complete.\r\n226 Complete.\r\n")
        },
        // An end without a start.
        |control| {
            blocks::send(b"/f5")?;
            control.write_all(b"226 Complete.\r\n")
        },
        // Two starts.
        |control| {
            blocks::start_reply(control)?;
            blocks::start_reply(control)?;
            blocks::send(b"/f5")?;
            control.write_all(b"226 Complete.\r\n")
        },
    ];
    for act in acts {
        let place = tempfile::tempdir().unwrap();
        let server = once_at_the_fifth(act);
        let error = get_nine(&server, place.path(), &[]);
        assert_nine(place.path(), &error);
        // Another session copies the rest, with a data port of its own.
        let commands = server.commands();
        let ports = commands.iter().filter(|line| line.starts_with("PORT"));
        assert_eq!(ports.count(), 2, "{commands:?}");
    }
}

#[test]
fn the_good_file_stays_when_a_pipeline_brings_a_wrong_one() {
    let place = tempfile::tempdir().unwrap();
    for number in 1..10 {
        fs::write(place.path().join(format!("f{number}")), "the old one").unwrap();
    }
    let server = blocks::start(Box::new(|name, control| {
        (name == "/f5").then(|| {
            blocks::start_reply(control)?;
            blocks::send(b"/f5 and more")?;
            control.write_all(b"226 Complete.\r\n")
        })
    }));
    let error = get_nine(&server, place.path(), &["--retry", "0"]);
    assert!(error.contains("sends more than the 3 bytes"), "{error}");
    let old = fs::read(place.path().join("f5")).unwrap();
    assert_eq!(old, b"the old one");
    assert_eq!(fs::read(place.path().join("f9")).unwrap(), b"/f9");
}

#[test]
fn one_file_at_a_time_can_be_chosen() {
    for (pipeline, sends_ahead) in [("1", false), ("8", true)] {
        let place = tempfile::tempdir().unwrap();
        let server = blocks::start(Box::new(|_, _| None));
        let error = get_nine(&server, place.path(), &["--pipeline", pipeline]);
        assert_nine(place.path(), &error);
        assert_eq!(retrieved(&server), 9);
        assert_eq!(server.has_read_ahead(), sends_ahead, "{pipeline}");
    }
}

#[test]
fn uploads_that_the_server_may_still_carry_out_are_not_copied_again() {
    let tree = tempfile::tempdir().unwrap();
    for number in 0..10 {
        fs::write(tree.path().join(number.to_string()), "content").unwrap();
    }
    // A server that takes commands, and answers no STOR.
    let data = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = data.local_addr().unwrap().port();
    let server = Scripted::start(Box::new(move |line, control| {
        let reply = match line.split(' ').next() {
            Some("FEAT") => blocks::FEATURES.to_owned(),
            Some("MKD") => "257 made\r\n".to_owned(),
            Some("PASV") => format!("227 (127,0,0,1,{},{})\r\n", port / 256, port % 256),
            Some("STOR") => return true,
            _ => return false,
        };
        control.write_all(reply.as_bytes()).is_ok()
    }));
    let tree = tree.path();
    let options = [
        "copy",
        "-r",
        "-c",
        "1",
        "--mode",
        "extended",
        "--stall-timeout",
        "3",
        "--retry",
        "2",
    ];
    let output = gridhaul(&[&options[..], &[tree.to_str().unwrap(), &server.url("put")]].concat());
    let (_, error) = texts(&output);
    assert_eq!(output.status.code(), Some(1), "{error}");
    let commands = server.commands();
    let mut stored: Vec<_> = commands
        .iter()
        .filter(|line| line.starts_with("STOR"))
        .collect();
    let count = stored.len();
    stored.sort();
    stored.dedup();
    assert!(count > 0 && stored.len() == count, "{commands:?}");
    let mut told = error.lines();
    let is_told = |line: &str| line.contains("may still store these files") && line.contains(DOUBT);
    assert!(told.any(is_told), "{error}");
}

#[test]
fn times_are_not_set_before_their_files_are_confirmed() {
    let site = Site::anonymous(Kind::Gridhaul, &[]);
    fill(&site.local("tree"));
    let url = site.server.url("put");
    site.must(&["copy", "-r", "-c", "1", "--times", "tree", &url]);
    let log = site.server.log();
    let lines = log
        .lines()
        .filter(|line| line.contains("transfer finished"));
    assert_eq!(lines.count(), FILES, "{log}");
    assert_filled(&site.served("put"), None, &log);
    // Nothing is copied that is there.
    let again = site.must(&["copy", "-r", "--sync", "tree", &url]);
    assert!(again.contains("150 unchanged"), "{again}");
}
