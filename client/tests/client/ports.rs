//! Variables of Globus programs about the data connections that the client listens for, and times that a server does not keep.

use std::fs;
use std::net::TcpListener;
use std::process::{Command, Output};

use super::blocks;
use super::scripted::{Scripted, gridhaul};
use super::storing::{Ends, Storing};
use crate::site::texts;

/// Runs the client with a variable.
fn run(variable: (&str, &str), arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_gridhaul"));
    let command = command.args(arguments).env_clear();
    command.env(variable.0, variable.1).output().unwrap()
}

const RANGE: &str = "GLOBUS_TCP_PORT_RANGE";
const DATA_IP: &str = "GLOBUS_FTP_CLIENT_DATA_IP";

/// The host and the port that the server was told last.
fn told(server: &Scripted) -> Option<(String, u16)> {
    let commands = server.commands();
    let port = commands.iter().rev();
    let numbers = port.filter_map(|line| line.strip_prefix("PORT ")).next()?;
    let numbers: Vec<u16> = numbers.split(',').map(|one| one.parse().unwrap()).collect();
    let host: Vec<String> = numbers[..4].iter().map(ToString::to_string).collect();
    Some((host.join("."), numbers[4] * 256 + numbers[5]))
}

/// A port that is free, or was until now.
fn port() -> (TcpListener, u16) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    (listener, port)
}

#[test]
fn the_client_listens_at_the_ports_that_the_site_has_opened() {
    let (listener, first) = port();
    drop(listener);
    let last = first.saturating_add(15);
    let range = format!("{first},{last}");
    let place = tempfile::tempdir().unwrap();
    let got = place.path().join("got");
    let got = got.to_str().unwrap();
    for (words, url) in [
        (&["copy", "--mode", "extended"][..], got.to_owned()),
        (&["guc", "-p", "1"], format!("file://{got}")),
    ] {
        let server = blocks::start(Box::new(|_, _| None));
        let from = server.url("f1");
        let output = run((RANGE, &range), &[words, &[&from, &url]].concat());
        assert!(output.status.success(), "{:?}", texts(&output));
        assert_eq!(fs::read(got).unwrap(), b"/f1");
        let (host, port) = told(&server).expect("it was told");
        assert_eq!(host, "127.0.0.1");
        assert!((first..=last).contains(&port), "{port} {range}");
    }
}

#[test]
fn a_range_without_a_free_port_is_an_error() {
    let (_listener, taken) = port();
    let range = format!("{taken},{taken}");
    let place = tempfile::tempdir().unwrap();
    let got = place.path().join("got");
    let server = blocks::start(Box::new(|_, _| None));
    let url = server.url("f1");
    let ends = [&url, got.to_str().unwrap()];
    let copy = ["copy", "--mode", "extended", "--retry", "0"];
    let output = run((RANGE, &range), &[&copy[..], &ends].concat());
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    let error = texts(&output).1;
    assert!(error.contains(&taken.to_string()), "{error}");
    assert_eq!(told(&server), None);
}

#[test]
fn servers_are_told_the_address_of_the_gateway() {
    let place = tempfile::tempdir().unwrap();
    let got = place.path().join("got");
    let server = blocks::start(Box::new(|_, control| {
        // Nothing forwards the connection.
        Some(std::io::Write::write_all(control, b"425 No route.\r\n"))
    }));
    let url = server.url("f1");
    let ends = [&url, got.to_str().unwrap()];
    let copy = ["copy", "--mode", "extended", "--retry", "0"];
    run((DATA_IP, "127.0.0.2"), &[&copy[..], &ends].concat());
    let (host, _) = told(&server).expect("it was told");
    assert_eq!(host, "127.0.0.2");
}

#[test]
fn wrong_values_are_named_by_the_commands_that_listen() {
    for variable in [
        (RANGE, "50000"),
        (RANGE, "7,6"),
        (DATA_IP, "dtn.example.org"),
    ] {
        for words in [
            &["copy", "a", "ftp://127.0.0.1:1/b"][..],
            &["guc", "file:///a", "ftp://127.0.0.1:1/b"],
        ] {
            let output = run(variable, words);
            assert_eq!(output.status.code(), Some(1), "{output:?}");
            let error = texts(&output).1;
            let named = format!("{}={}", variable.0, variable.1);
            assert!(error.contains(&named), "{error}");
        }
        assert!(run(variable, &["config"]).status.success());
    }
}

#[test]
fn times_that_a_server_does_not_keep_are_told_once() {
    let place = tempfile::tempdir().unwrap();
    let names = ["a", "b", "c"].map(|name| {
        let path = place.path().join(name);
        fs::write(&path, name).unwrap();
        path.to_str().unwrap().to_owned()
    });
    let names = names.each_ref().map(String::as_str);
    for (options, count) in [(&["-t"][..], 1), (&["--sync"], 1), (&[], 0)] {
        let storing = Storing::start(Ends::Complete);
        let url = storing.server.url("d/");
        let output = gridhaul(&[&["copy", "-c", "1"], options, &names, &[&url]].concat());
        let error = texts(&output).1;
        assert!(output.status.success(), "{error}");
        let told = error.matches("does not keep the times of files").count();
        assert_eq!(told, count, "{options:?}: {error}");
    }
}
