//! Small files between two servers, with commands that are sent ahead to both.

use std::fs;
use std::io::{self, Write as _};
use std::net::TcpStream;
use std::ops::Range;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use gridhaul_interop::{Kind, chown_to_nobody};

use super::blocks;
use super::doubtful::DOUBT;
use super::passive;
use super::pipeline::{assert_filled, fill, name, retrieved};
use super::scripted::{Scripted, gridhaul};
use crate::site::{Site, texts};

#[test]
fn trees_of_small_files_go_between_servers() {
    for kind in [Kind::Gridhaul, Kind::Globus] {
        for options in [
            &[][..],
            &["--dcau", "none", "-c", "1"],
            &["--protect"],
            &["--checksum", "MD5", "-p", "2"],
        ] {
            let site = Site::gsi(kind, &[]);
            fill(&site.served("tree"));
            chown_to_nobody(&site.served("tree")).unwrap();
            let (from, to) = (site.server.url("tree"), site.server.url("there"));
            let said = site.must(&[&["copy", "-r"], options, &[&from, &to]].concat());
            assert_filled(&site.served("there"), None, &said);
            assert!(said.contains("150 files"), "{options:?}: {said}");
        }
    }
}

#[test]
fn a_file_that_one_server_refuses_spoils_no_other() {
    for kind in [Kind::Gridhaul, Kind::Globus] {
        for concurrency in ["1", "4"] {
            let broken = 70;
            let site = Site::anonymous(kind, &[]);
            fill(&site.served("tree"));
            chown_to_nobody(&site.served("tree")).unwrap();
            let closed = site.served("tree").join(name(broken));
            fs::set_permissions(&closed, fs::Permissions::from_mode(0o000)).unwrap();
            let from = site.server.url("tree");
            let to = site.server.url("there");
            let error = site.fails(&["copy", "-r", "-c", concurrency, &from, &to]);
            assert_filled(&site.served("there"), Some(broken), &error);
            assert_eq!(error.lines().count(), 1, "{error}");
            assert!(error.contains("source: "), "{error}");
            assert!(error.contains("Permission denied"), "{error}");
            // Not the content of another file.
            let copy = fs::read(site.served("there").join(name(broken)));
            let copy = copy.unwrap_or_default();
            assert!(copy.is_empty() || error.contains(DOUBT), "{error}");

            fs::set_permissions(&closed, fs::Permissions::from_mode(0o644)).unwrap();
            // A directory has the name of a file.
            let to = site.served("second");
            fs::create_dir_all(to.join("sub")).unwrap();
            fs::create_dir_all(to.join(name(broken))).unwrap();
            for place in [to.clone(), to.join("sub"), to.join(name(broken))] {
                chown_to_nobody(&place).unwrap();
            }
            let to = site.server.url("second");
            let error = site.fails(&["copy", "-r", "-c", concurrency, &from, &to]);
            assert_filled(&site.served("second"), Some(broken), &error);
            assert_eq!(error.lines().count(), 1, "{error}");
            assert!(error.contains("destination: "), "{error}");
        }
    }
}

#[test]
fn a_file_that_the_source_refuses_does_not_hold_the_others_up() {
    for broken in [0, 20] {
        let site = Site::anonymous(Kind::Gridhaul, &[]);
        let from = site.served("tree");
        fs::create_dir(&from).unwrap();
        let name = |number: usize| format!("f{number:02}");
        for number in 0..40 {
            fs::write(from.join(name(number)), name(number)).unwrap();
        }
        let closed = from.join(name(broken));
        fs::set_permissions(&closed, fs::Permissions::from_mode(0o000)).unwrap();
        chown_to_nobody(&from).unwrap();
        let (from, to) = (site.server.url("tree"), site.server.url("there"));
        let started = Instant::now();
        let error = site.fails(&["copy", "-r", "-c", "1", &from, &to]);
        let took = started.elapsed();
        assert!(error.contains("Permission denied"), "{error}");
        for number in (0..40).filter(|number| *number != broken) {
            let copy = fs::read(site.served("there").join(name(number)));
            assert_eq!(copy.unwrap_or_default(), name(number).as_bytes(), "{error}");
        }
        // Less than a server waits for data, with time for a busy machine.
        assert!(took < Duration::from_secs(9), "{took:?}");
    }
}

/// Copies `f1` to `f9` of a server to a directory of another one; returns the errors.
fn copy_nine(from: &Scripted, to: &str, options: &[&str]) -> String {
    copy_some(from, to, 1..10, options)
}

fn copy_some(from: &Scripted, to: &str, numbers: Range<u32>, options: &[&str]) -> String {
    let urls = numbers.map(|number| from.url(&format!("f{number}")));
    let urls: Vec<String> = urls.collect();
    let urls: Vec<&str> = urls.iter().map(String::as_str).collect();
    let arguments = [&["copy", "-c", "1"], options, &urls, &[to]].concat();
    texts(&gridhaul(&arguments)).1
}

fn assert_nine(place: &Path, error: &str) {
    for number in 1..10 {
        let content = fs::read(place.join(format!("f{number}"))).unwrap_or_default();
        assert_eq!(content, format!("/f{number}").as_bytes(), "{error}");
    }
}

/// What a source does with the fifth file once, and whether its replies fit.
type Act = (fn(&mut TcpStream) -> io::Result<()>, bool);

#[test]
fn what_a_source_does_wrong_once_is_mended() {
    let acts: [Act; 6] = [
        (|control| control.write_all(b"451 Not now.\r\n"), true),
        (|control| control.shutdown(std::net::Shutdown::Both), true),
        (
            // A file of another length, called complete.
            |control| {
                blocks::start_reply(control)?;
                blocks::send(b"/f5 and more")?;
                control.write_all(b"226 Complete.\r\n")
            },
            true,
        ),
        (
            // The next file is called complete, before it has begun.
            |control| {
                blocks::start_reply(control)?;
                blocks::send(b"/f5")?;
                control.write_all(b"226 Complete.\r\n226 Complete.\r\n")
            },
            false,
        ),
        (
            // An end without a start.
            |control| {
                blocks::send(b"/f5")?;
                control.write_all(b"226 Complete.\r\n")
            },
            false,
        ),
        (
            // Two starts.
            |control| {
                blocks::start_reply(control)?;
                blocks::start_reply(control)?;
                blocks::send(b"/f5")?;
                control.write_all(b"226 Complete.\r\n")
            },
            false,
        ),
    ];
    for kind in [Kind::Gridhaul, Kind::Globus] {
        for (act, fits) in acts {
            let site = Site::anonymous(kind, &[]);
            fs::create_dir(site.served("d")).unwrap();
            chown_to_nobody(&site.served("d")).unwrap();
            let acted = AtomicUsize::new(0);
            let source = blocks::start(Box::new(move |name, control| {
                let is_chosen = name == "/f5" && acted.fetch_add(1, Ordering::Relaxed) == 0;
                is_chosen.then(|| act(control))
            }));
            let error = copy_nine(&source, &site.server.url("d/"), &[]);
            assert_nine(&site.served("d"), &error);
            let are_notes = error.lines().all(|line| line.contains("; tried again in"));
            assert!(are_notes, "{error}");
            assert!(source.has_read_ahead());
            // Without trust in the order of replies, no file is sent ahead any more.
            let again = retrieved(&source) - 9;
            assert!(fits || again > 0, "{again}");
        }
    }
}

#[test]
fn a_file_that_the_source_never_sends_does_not_pass_with_the_content_of_another() {
    for kind in [Kind::Gridhaul, Kind::Globus] {
        let site = Site::anonymous(kind, &[]);
        fs::create_dir(site.served("d")).unwrap();
        chown_to_nobody(&site.served("d")).unwrap();
        let source = blocks::start(Box::new(|name, control| {
            (name == "/f5").then(|| control.write_all(b"550 Not this one.\r\n"))
        }));
        let error = copy_nine(&source, &site.server.url("d/"), &["--retry", "0"]);
        assert!(error.contains("550 Not this one."), "{error}");
        let five = fs::read(site.served("d/f5")).unwrap_or_default();
        assert!(five.is_empty() || error.contains(DOUBT), "{error}");
        for number in (1..10).filter(|number| *number != 5) {
            let content = fs::read(site.served(&format!("d/f{number}"))).unwrap();
            assert_eq!(content, format!("/f{number}").as_bytes(), "{error}");
        }
    }
}

/// A destination that stores nothing, and says that it has what it got.
struct Sink {
    server: Scripted,
}

/// What a destination replies after it has got a file, for the first time.
type Reply = fn(&mut TcpStream) -> io::Result<()>;

impl Sink {
    /// Acts after the fifth file.
    fn start(act: Reply) -> Self {
        Self::start_with("f5", act, false)
    }

    fn start_with(chosen: &'static str, act: Reply, are_marked: bool) -> Self {
        let acted = AtomicUsize::new(0);
        let server = Scripted::start(Box::new(move |line, control| {
            let (verb, argument) = line.split_once(' ').unwrap_or((line, ""));
            let name = argument.rsplit('/').next().unwrap_or_default();
            let reply = match verb {
                "FEAT" => blocks::FEATURES.to_owned(),
                "MLST" => "250-Facts\r\n Type=dir; /d\r\n250 End.\r\n".to_owned(),
                "SIZE" => format!("213 {}\r\n", name.len() + 1),
                "DELE" => "250 Gone.\r\n".to_owned(),
                "PASV" => passive::listen().unwrap(),
                "STOR" => {
                    let mut stored = || {
                        control.write_all(b"125 Come.\r\n")?;
                        passive::with_data(blocks::receive)?;
                        if name == chosen && acted.fetch_add(1, Ordering::Relaxed) == 0 {
                            return act(control);
                        }
                        if are_marked {
                            let marker = format!("111 Range Marker 0-{}\r\n", name.len() + 1);
                            control.write_all(marker.as_bytes())?;
                        }
                        control.write_all(b"226 Complete.\r\n")
                    };
                    // The client may close the connection at any time.
                    let _ = stored();
                    return true;
                }
                _ => return false,
            };
            control.write_all(reply.as_bytes()).is_ok()
        }));
        Self { server }
    }

    fn stored(&self, name: &str) -> usize {
        self.got("STOR", name)
    }

    fn got(&self, verb: &str, name: &str) -> usize {
        let commands = self.server.commands();
        let wanted = format!("{verb} /d/{name}");
        commands.iter().filter(|line| **line == wanted).count()
    }
}

#[test]
fn what_a_destination_does_wrong_once_is_mended() {
    let acts: [Reply; 5] = [
        |control| control.write_all(b"451 The disk is slow.\r\n"),
        |control| control.shutdown(std::net::Shutdown::Both),
        |control| control.write_all(b"226 Complete.\r\n226 Complete.\r\n"),
        |control| control.write_all(b"125 Again.\r\n226 Complete.\r\n"),
        // The replies to SIZE and to the next ALLO come too early.
        |control| control.write_all(b"213 3\r\n226 Complete.\r\n"),
    ];
    for act in acts {
        let (source, sink) = (blocks::start(Box::new(|_, _| None)), Sink::start(act));
        let error = copy_nine(&source, &sink.server.url("d/"), &["--stall-timeout", "5"]);
        let are_notes = error.lines().all(|line| line.contains("; tried again in"));
        assert!(are_notes, "{error}");
        assert!(sink.server.has_read_ahead());
        assert!(sink.stored("f5") > 1, "{error}");
        assert!((1..10).all(|number| sink.stored(&format!("f{number}")) > 0));
    }
}

#[test]
fn a_destination_whose_markers_tell_sizes_is_not_asked_for_them() {
    let short: Reply = |control| control.write_all(b"111 Range Marker 0-3\r\n226 Complete.\r\n");
    let source = blocks::start(Box::new(|_, _| None));
    let sink = Sink::start_with("f80", short, true);
    let error = copy_some(&source, &sink.server.url("d/"), 10..100, &[]);
    for number in 10..100 {
        let name = format!("f{number}");
        let times = sink.stored(&name);
        assert!(
            times > 0 && (times == 1 || number >= 80),
            "{name}: {times}: {error}"
        );
    }
    // The first ones are asked for, before there are markers.
    assert_eq!(
        ["f10", "f60"].map(|name| sink.got("SIZE", name)),
        [1, 0],
        "{error}"
    );
    // A marker that does not tell the right size counts for nothing.
    assert!(
        sink.stored("f80") > 1 && sink.got("SIZE", "f80") > 0,
        "{error}"
    );
    // Markers that were wrong once are not trusted again.
    for number in 81..100 {
        let name = format!("f{number}");
        assert!(sink.got("SIZE", &name) > 0, "{name}: {error}");
    }
}
