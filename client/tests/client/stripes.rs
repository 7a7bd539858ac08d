//! `--stripe`: the addresses that servers are asked for.

use std::io::Write as _;
use std::net::TcpStream;

use gridhaul_interop::Kind;

use super::scripted::{Scripted, gridhaul};
use crate::site::{Site, texts};

/// A server with these features, which refuses all files. Its data nodes are at other hosts than its control channel.
fn server(features: &'static str) -> Scripted {
    Scripted::start(Box::new(move |line, control: &mut TcpStream| {
        let reply = match line.split(' ').next() {
            Some("FEAT") => format!("211-Features\r\n{features}211 End\r\n"),
            Some("SIZE") => "213 5\r\n".to_owned(),
            Some("SPAS") => {
                "229-Entering\r\n 127,0,0,2,1,1\r\n 127,0,0,3,1,1\r\n229 End\r\n".to_owned()
            }
            Some("PASV") => "227 (127,0,0,1,1,1)\r\n".to_owned(),
            Some("PORT" | "SPOR") => "200 Yes.\r\n".to_owned(),
            Some("STOR" | "RETR") => "553 No.\r\n".to_owned(),
            _ => return false,
        };
        control.write_all(reply.as_bytes()).is_ok()
    }))
}

const PLAIN: &str = " SIZE\r\n PARALLEL\r\n";
const STRIPED: &str = " SIZE\r\n PARALLEL\r\n SPAS\r\n SPOR\r\n";

/// The commands of a server about data ports.
fn ports(server: &Scripted) -> Vec<String> {
    let commands = server.commands().into_iter();
    let verbs = commands.map(|line| line.split(' ').next().unwrap_or_default().to_owned());
    verbs
        .filter(|verb| ["PASV", "SPAS", "PORT", "SPOR"].contains(&verb.as_str()))
        .collect()
}

#[test]
fn servers_are_asked_for_all_stripes_if_both_have_them() {
    for (options, features, of_source, of_destination) in [
        (&[][..], [STRIPED; 2], &["SPOR"][..], &["SPAS"][..]),
        (&["--stripe=auto"], [STRIPED; 2], &["SPOR"], &["SPAS"]),
        (&["--stripe"], [STRIPED; 2], &["SPOR"], &["SPAS"]),
        (&["--stripe=never"], [STRIPED; 2], &["PORT"], &["PASV"]),
        (&[], [PLAIN, STRIPED], &["PORT"], &["PASV"]),
        (&[], [STRIPED, PLAIN], &["PORT"], &["PASV"]),
        (&["--stripe"], [PLAIN, STRIPED], &[], &[]),
        (&["--stripe"], [STRIPED, PLAIN], &[], &[]),
    ] {
        let servers = features.map(server);
        let urls = servers.each_ref().map(|server| server.url("a"));
        let urls = urls.each_ref().map(String::as_str);
        let output = gridhaul(&[&["copy"], options, &urls].concat());
        let error = texts(&output).1;
        let [source, destination] = servers.each_ref().map(ports);
        assert_eq!(source, of_source, "{options:?}: {error}");
        assert_eq!(destination, of_destination, "{options:?}: {error}");
        let lacking = match features {
            [PLAIN, _] => "source: the server cannot stripe",
            _ => "destination: the server cannot stripe",
        };
        let refuses = options == ["--stripe"] && features.contains(&PLAIN);
        assert_eq!(error.contains(lacking), refuses, "{options:?}: {error}");
    }
}

#[test]
fn stripes_that_this_machine_may_not_connect_to_are_an_error() {
    let place = tempfile::tempdir().unwrap();
    let source = place.path().join("source");
    std::fs::write(&source, "hello").unwrap();
    let server = server(STRIPED);
    let ends = [source.to_str().unwrap(), &server.url("a")];
    let output = gridhaul(&[&["copy", "--stripe"][..], &ends].concat());
    let error = texts(&output).1;
    assert!(error.contains("at other hosts"), "{error}");
    assert_eq!(ports(&server), ["SPAS"], "{error}");
}

#[test]
fn stripes_are_for_mode_e() {
    let server = server(PLAIN);
    let url = server.url("a");
    for words in [
        &["copy", "--stripe", "--mode", "stream", "a", &url][..],
        &["copy", "--stripe", "--relay", &url, &url],
        &["copy", "--stripe", "-", &url],
        &["rput", "--stripe", "a", &url],
    ] {
        let output = gridhaul(words);
        let error = texts(&output).1;
        assert_eq!(output.status.code(), Some(2), "{words:?}: {error}");
        assert!(error.contains("--stripe"), "{words:?}: {error}");
    }
    assert_eq!(server.commands(), <[String; 0]>::default());
    for kind in [Kind::Gridhaul, Kind::Globus] {
        let site = Site::anonymous(kind, &[]);
        site.round(&["--stripe"], "striped");
        site.round(&["--stripe=never", "-p", "2"], "plain");
    }
}
