//! Gets of several files: in MODE E if the server reaches the client, else as streams.

use std::fs;
use std::io::Write as _;
use std::net::TcpStream;
use std::path::Path;
use std::time::{Duration, Instant};

use gridhaul_interop::Kind;

use super::blocks::{self, FEATURES};
use super::passive;
use super::scripted::{Scripted, gridhaul};
use crate::site::{Site, assert_same, texts};

/// Gets the files `f1` to `f3` into a directory, one after the other; returns the errors.
fn get_three(server: &Scripted, place: &Path, options: &[&str]) -> String {
    let urls = ["f1", "f2", "f3"].map(|name| server.url(name));
    let urls: Vec<&str> = urls.iter().map(String::as_str).collect();
    let place = format!("{}/", place.display());
    let arguments = [&["copy", "-c", "1"], options, &urls, &[&place]].concat();
    let output = gridhaul(&arguments);
    let error = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{error}: {:?}", server.commands());
    error
}

fn assert_three(place: &Path) {
    for name in ["f1", "f2", "f3"] {
        let content = fs::read(place.join(name)).unwrap();
        assert_eq!(content, format!("/{name}").as_bytes());
    }
}

fn count(server: &Scripted, verb: &str) -> usize {
    let commands = server.commands();
    let all = commands.iter();
    all.filter(|line| line.split(' ').next() == Some(verb))
        .count()
}

#[test]
fn several_files_come_over_one_connection() {
    let place = tempfile::tempdir().unwrap();
    let server = blocks::start(Box::new(|_, _| None));
    get_three(&server, place.path(), &[]);
    assert_three(place.path());
    assert_eq!((count(&server, "PORT"), count(&server, "PASV")), (1, 0));
}

/// A server that sends streams, and answers what MODE E needs like this.
fn without_reach(port: &'static str, blocks: &'static str) -> Scripted {
    thread_local! {
        static IS_PORT: std::cell::Cell<bool> = const { std::cell::Cell::new(false) };
    }
    let talk = move |line: &str, control: &mut TcpStream| -> std::io::Result<bool> {
        let (verb, argument) = line.split_once(' ').unwrap_or((line, ""));
        let reply = match verb {
            "FEAT" => FEATURES.to_owned(),
            "MLST" => {
                let size = argument.len();
                format!("250-Facts\r\n Type=file;Size={size}; {argument}\r\n250 End.\r\n")
            }
            "PORT" => {
                IS_PORT.set(true);
                port.to_owned()
            }
            "PASV" => {
                IS_PORT.set(false);
                passive::listen()?
            }
            "RETR" if IS_PORT.get() => blocks.to_owned(),
            "RETR" => {
                control.write_all(b"150 Now.\r\n")?;
                let mut data = passive::accept()?;
                data.write_all(argument.as_bytes())?;
                "226 Complete.\r\n".to_owned()
            }
            _ => return Ok(false),
        };
        control.write_all(reply.as_bytes())?;
        Ok(true)
    };
    Scripted::start(Box::new(move |line, control| {
        talk(line, control).unwrap_or(true)
    }))
}

#[test]
fn a_server_that_cannot_connect_sends_streams() {
    let connecting = "500-Command failed. : Unable to connect\r\n500 End.\r\n";
    for (port, blocks) in [
        ("500 No such port.\r\n", ""),
        ("200 Yes.\r\n", "425 Cannot connect.\r\n"),
        ("200 Yes.\r\n", connecting),
        // A firewall drops packets: no reply, and no connection.
        ("200 Yes.\r\n", ""),
    ] {
        let place = tempfile::tempdir().unwrap();
        let server = without_reach(port, blocks);
        let started = Instant::now();
        let error = get_three(&server, place.path(), &[]);
        assert!(started.elapsed() < Duration::from_secs(20));
        assert_three(place.path());
        assert!(error.contains("cannot connect to this machine"), "{error}");
        // Once is enough to know it.
        assert_eq!(
            (count(&server, "PORT"), count(&server, "PASV")),
            (1, 3),
            "{error}"
        );
    }
}

#[test]
fn the_mode_of_the_user_counts() {
    let place = tempfile::tempdir().unwrap();
    let server = without_reach("200 Yes.\r\n", "425 Cannot connect.\r\n");
    get_three(&server, place.path(), &["--mode", "stream"]);
    assert_eq!(count(&server, "PORT"), 0);
    let server = without_reach("200 Yes.\r\n", "425 Cannot connect.\r\n");
    let (url, into) = (server.url("f1"), format!("{}/", place.path().display()));
    let output = gridhaul(&["copy", "--mode", "extended", "--retry", "0", &url, &into]);
    assert!(!output.status.success());
    assert_eq!(count(&server, "PASV"), 0);
}

#[test]
fn one_file_is_a_stream() {
    let place = tempfile::tempdir().unwrap();
    let server = without_reach("200 Yes.\r\n", "425 Cannot connect.\r\n");
    let (url, copy) = (server.url("f1"), place.path().join("f1"));
    let output = gridhaul(&["copy", &url, copy.to_str().unwrap()]);
    assert!(output.status.success());
    assert_eq!((count(&server, "PORT"), count(&server, "PASV")), (0, 1));
}

/// A file that is refused does not concern connections.
#[test]
fn a_missing_file_does_not_end_the_trial() {
    let place = tempfile::tempdir().unwrap();
    let server = blocks::start(Box::new(|name, control| {
        let refused = name == "/f1";
        refused.then(|| control.write_all(b"550 Not for you.\r\n"))
    }));
    let urls = ["f1", "f2", "f3"].map(|name| server.url(name));
    let [one, two, three] = urls.each_ref().map(String::as_str);
    let into = format!("{}/", place.path().display());
    let output = gridhaul(&["copy", "-c", "1", one, two, three, &into]);
    let error = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(error.contains("Not for you"), "{error}");
    assert!(!error.contains("cannot connect"), "{error}");
    assert_eq!(count(&server, "PASV"), 0);
    assert_eq!(fs::read(place.path().join("f3")).unwrap(), b"/f3");
}

/// Without authenticated data channels another host could send the file.
#[test]
fn only_the_server_may_connect() {
    let place = tempfile::tempdir().unwrap();
    let server = blocks::start(Box::new(|name, control| {
        Some(blocks::start_reply(control).and_then(|()| {
            if name == "/f1" {
                blocks::send_from_other_host(b"/xx")?;
            }
            blocks::send(name.as_bytes())?;
            control.write_all(b"226 Complete.\r\n")
        }))
    }));
    get_three(&server, place.path(), &[]);
    assert_three(place.path());
}

#[test]
fn trees_come_from_both_servers() {
    for kind in [Kind::Gridhaul, Kind::Globus] {
        for protection in [&[][..], &["--protect"]] {
            let site = Site::gsi(kind, &[]);
            fs::create_dir_all(site.served("tree/a")).unwrap();
            let names = (0..20).map(|number| format!("tree/a/{number}"));
            let names: Vec<String> = names.collect();
            for name in &names {
                fs::copy(site.local("source"), site.served(name)).unwrap();
            }
            let url = site.server.url("");
            let arguments = [&["copy", "-r"], protection, &[&url, "."]].concat();
            let output = site.gridhaul(&arguments);
            let (_, errors) = texts(&output);
            assert!(output.status.success(), "{errors}");
            assert_eq!(errors, "");
            for name in &names {
                assert_same(&site.local("source"), &site.local(name), protection);
            }
        }
    }
}
