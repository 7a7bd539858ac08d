//! What stays of files whose copy is given up.

use std::fs;
use std::io::{BufRead as _, BufReader, Write as _};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::Stdio;

use gridhaul_interop::{Kind, content};
use rustix::process::{Pid, Signal, kill_process};

use super::passive;
use super::scripted::{Scripted, fails, gridhaul};
use super::storing::{Ends, Storing};
use crate::site::{Site, texts};

/// More than the buffers of a connection have room for.
const SIZE: usize = 12 << 20;

/// A file of this machine.
fn source(place: &Path) -> String {
    let source = place.join("source");
    content::write(&source, SIZE as u64).unwrap();
    source.to_str().unwrap().to_owned()
}

#[test]
fn an_upload_that_is_given_up_stays_unless_the_user_wants_it_removed() {
    let place = tempfile::tempdir().unwrap();
    let source = source(place.path());
    let copy = ["copy", "--retry", "0"];
    for (options, has_file, left) in [
        (&[][..], false, &["/a"][..]),
        (&["--partial"], false, &["/a"]),
        (&["--no-partial"], false, &[]),
        (&["--no-partial", "--partial"], false, &["/a"]),
        // The client cannot tell what is left from the file that was there before.
        (&["--no-partial"], true, &["/a"]),
    ] {
        let storing = Storing::start(Ends::Broken);
        if has_file {
            storing.has("/a", 7);
        }
        let url = storing.server.url("a");
        let error = fails(&[&copy[..], options, &[&source, &url]].concat());
        assert!(error.contains("426 Broken"), "{error}");
        let commands = storing.server.commands();
        assert_eq!(storing.paths(), left, "{options:?} {commands:?}");
        let removes = options == ["--no-partial"];
        let temporary = commands.contains(&"DELE /.a.gridhaul-part".to_owned());
        assert_eq!(temporary, removes, "{commands:?}");
    }
}

#[test]
fn what_another_client_has_stored_stays() {
    let place = tempfile::tempdir().unwrap();
    let source = source(place.path());
    for (ends, left) in [
        // The server has temporary names, so the one with the final name is complete.
        (Ends::Beside, "/a"),
        (Ends::Replaced, "/.a.gridhaul-part"),
        // It may have been there before.
        (Ends::Unsaid, "/a"),
    ] {
        let storing = Storing::start(ends);
        let url = storing.server.url("a");
        let error = fails(&["copy", "--no-partial", "--retry", "0", &source, &url]);
        assert!(error.contains("426 "), "{error}");
        assert_eq!(storing.paths(), [left], "{:?}", storing.server.commands());
    }
}

#[test]
fn a_complete_upload_stays() {
    let place = tempfile::tempdir().unwrap();
    let source = source(place.path());
    let storing = Storing::start(Ends::Complete);
    let url = storing.server.url("a");
    let output = gridhaul(&["copy", "--no-partial", &source, &url]);
    assert!(output.status.success(), "{output:?}");
    assert_eq!(storing.paths(), ["/a"]);
}

#[test]
fn a_file_that_was_not_begun_is_not_removed() {
    let place = tempfile::tempdir().unwrap();
    let source = source(place.path());
    let server = Scripted::start(Box::new(|line, control| {
        let reply: &[u8] = match line.split(' ').next() {
            // Another client stores a file with this name at the same time.
            Some("SIZE") => b"550 Not yet.\r\n",
            Some("PASV") => b"425 No port.\r\n",
            _ => return false,
        };
        control.write_all(reply).is_ok()
    }));
    let url = server.url("a");
    let copy = ["copy", "--no-partial", "--retry", "0", &source, &url];
    let error = fails(&copy);
    assert!(error.contains("425 No port"), "{error}");
    let commands = server.commands();
    assert!(
        !commands.iter().any(|line| line.starts_with("DELE")),
        "{commands:?}"
    );
}

/// A server that breaks off all transfers of a file.
fn breaking() -> Scripted {
    Scripted::start(Box::new(move |line, control: &mut TcpStream| {
        let reply = match line.split(' ').next() {
            Some("SIZE") => format!("213 {SIZE}\r\n"),
            Some("PASV") => passive::listen().unwrap(),
            Some("RETR") => {
                let _ = control.write_all(b"150 Now.\r\n");
                let mut data = passive::accept().unwrap();
                // The client may close the connection at any time.
                let _ = data.write_all(&vec![7; SIZE / 2]);
                drop(data);
                "426 Broken.\r\n".to_owned()
            }
            _ => return false,
        };
        control.write_all(reply.as_bytes()).is_ok()
    }))
}

fn names(place: &Path) -> Vec<String> {
    let entries = fs::read_dir(place).unwrap();
    let names = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    names.collect()
}

#[test]
fn a_file_that_is_got_in_part_stays_unless_the_user_wants_it_removed() {
    for (options, left) in [
        (&[][..], &[".got.gridhaul-part"][..]),
        (&["--no-partial"], &[]),
    ] {
        let (server, place) = (breaking(), tempfile::tempdir().unwrap());
        let got = place.path().join("got");
        let ends = [&server.url("a"), got.to_str().unwrap()];
        let copy = ["copy", "--retry", "0", "--mode", "stream"];
        let error = fails(&[&copy[..], options, &ends].concat());
        assert!(error.contains("426 Broken"), "{error}");
        assert_eq!(names(place.path()), left, "{options:?}");
    }
}

#[test]
fn nothing_stays_of_a_file_whose_copy_is_interrupted() {
    let place = tempfile::tempdir().unwrap();
    let config = place.path().join("gridhaul.toml");
    fs::write(&config, "atomic-uploads = ['*']\n").unwrap();
    let atomic = ["--config", config.to_str().unwrap()];
    for (kind, arguments) in [
        (Kind::Globus, &[][..]),
        (Kind::Gridhaul, &[]),
        (Kind::Gridhaul, &atomic),
    ] {
        let site = Site::anonymous(kind, arguments);
        content::write(&site.local("large"), SIZE as u64).unwrap();
        fs::copy(site.local("large"), site.served("there")).unwrap();
        for (from, to, left) in [
            ("large", site.server.url("new"), site.served("new")),
            (&site.server.url("there"), "got".into(), site.local("got")),
        ] {
            interrupted(&site, &[from, &to], &[&to]);
            assert_eq!(left_at(&left), <[PathBuf; 0]>::default(), "{kind:?} {to}");
        }
    }
}

/// Interrupts a copy when the files with these words in their destinations have begun. Returns its errors.
fn interrupted(site: &Site, words: &[&str], begun: &[&str]) -> String {
    let options = ["copy", "--no-partial", "--json", "--rate", "2M"];
    let mut command = site.command(&[&options[..], words].concat());
    let command = command.stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let mut left = begun.to_vec();
    while !left.is_empty() {
        let line = lines.next().expect("it has ended before").unwrap();
        if line.contains("progress") {
            left.retain(|destination| !line.contains(destination));
        }
    }
    kill_process(Pid::from_child(&child), Signal::INT).unwrap();
    assert_eq!(lines.filter(Result::is_err).count(), 0);
    let output = child.wait_with_output().unwrap();
    let (_, errors) = texts(&output);
    assert_eq!(output.status.code(), Some(130), "{errors}");
    errors
}

/// The files that a copy to this path has left.
fn left_at(path: &Path) -> Vec<PathBuf> {
    let name = path.file_name().unwrap().to_str().unwrap();
    let unfinished =
        ["part", "blocks"].map(|form| path.with_file_name(format!(".{name}.gridhaul-{form}")));
    let mut all = unfinished.to_vec();
    all.push(path.to_owned());
    all.retain(|path| path.exists());
    all
}

/// A server that receives files for ever, and does not answer when one is to be removed.
fn dead() -> Scripted {
    Scripted::start(Box::new(move |line, control: &mut TcpStream| {
        let reply = match line.split(' ').next() {
            Some("SIZE") => "550 No such file.\r\n".to_owned(),
            Some("PASV") => passive::listen().unwrap(),
            Some("STOR") => {
                let _ = control.write_all(b"150 Now.\r\n");
                let mut data = passive::accept().unwrap();
                // The client may close the connection at any time.
                let _ = std::io::copy(&mut data, &mut std::io::sink());
                return true;
            }
            Some("DELE") => return true,
            _ => return false,
        };
        control.write_all(reply.as_bytes()).is_ok()
    }))
}

#[test]
fn a_server_that_does_not_answer_after_an_interruption_costs_only_its_own_files() {
    let (dead, site) = (dead(), Site::anonymous(Kind::Gridhaul, &[]));
    content::write(&site.local("large"), SIZE as u64).unwrap();
    let (first, second) = (dead.url("first"), site.server.url("second"));
    let list = format!("large {first}\nlarge {second}\n");
    fs::write(site.local("list"), list).unwrap();
    let words = ["-c", "2", "--from-file", "list"];
    let errors = interrupted(&site, &words, &[&first, &second]);
    assert!(!errors.contains("ended at once"), "{errors}");
    let commands = dead.commands();
    assert!(
        commands.iter().any(|line| line.starts_with("DELE")),
        "{commands:?}"
    );
    assert_eq!(left_at(&site.served("second")), <[PathBuf; 0]>::default());
}

#[test]
fn parts_and_streams_have_nothing_to_remove() {
    for words in [
        &["copy", "--no-partial", "--length", "5", "ftp://h/a", "b"][..],
        &["copy", "--no-partial", "-", "ftp://h/a"],
    ] {
        let output = gridhaul(words);
        assert_eq!(output.status.code(), Some(2), "{output:?}");
        let error = texts(&output).1;
        assert!(error.contains("--no-partial"), "{error}");
    }
}
