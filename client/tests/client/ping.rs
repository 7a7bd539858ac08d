//! `gridhaul ping` with our server and the real one.

use gridhaul_interop::{HOST, Kind, Pki};

use super::scripted::{Scripted, gridhaul};
use super::site::{Site, texts};

#[test]
fn a_server_with_certificates_is_described() {
    for (kind, has_rdma) in [(Kind::Gridhaul, true), (Kind::Globus, false)] {
        let site = Site::gsi(kind, &[]);
        let url = site.server.url("");
        let text = site.must(&["ping", &url]);
        for part in ["greeting", "median of 5", "MLST", "until 2"] {
            assert!(text.contains(part), "{part}: {text}");
        }
        let json = site.must(&["ping", "--json", &url]);
        assert_eq!(json.lines().count(), 1, "{json}");
        for part in [
            format!(r#""subject":"{HOST}""#),
            r#""seconds_left":"#.to_owned(),
            r#""round_trip_seconds":0."#.to_owned(),
            format!(r#""address":"{}""#, site.server.address()),
        ] {
            assert!(json.contains(&part), "{part}: {json}");
        }
        let drivers = json.split(r#""drivers":"#).nth(1).unwrap();
        let drivers = drivers.split(']').next().unwrap();
        assert!(drivers.contains("tcp"), "{json}");
        assert_eq!(drivers.contains("rdma"), has_rdma, "{json}");
    }
}

#[test]
fn a_server_with_tls_is_described() {
    let site = Site::tls("127.0.0.1");
    let url = site.server.url("").replace("ftp://", "ftps://");
    let authority = Pki::shared().unwrap().authority();
    let text = site.must(&["ping", "--ca", authority.to_str().unwrap(), &url]);
    assert!(text.contains(HOST), "{text}");
    assert!(text.contains("without a certificate"), "{text}");
}

#[test]
fn words_of_a_server_do_not_control_the_terminal() {
    let server = Scripted::start(Box::new(|line, stream| {
        let reply = "211-Features\r\n X\x1b[2J\x7f\u{9b}2J\r\n211 End\r\n".as_bytes();
        line == "FEAT" && std::io::Write::write_all(stream, reply).is_ok()
    }));
    for options in [&[][..], &["--json"]] {
        let output = gridhaul(&[&["ping"], options, &[&server.url("")]].concat());
        let (stdout, stderr) = texts(&output);
        assert!(output.status.success(), "{stdout}{stderr}");
        let controls = |one: char| one.is_control() && one != '\n';
        assert!(!stdout.contains(controls), "{stdout:?}");
        if options.contains(&"--json") {
            let answer: serde_json::Value = serde_json::from_str(&stdout).unwrap();
            assert!(answer["features"].is_array(), "{answer}");
        }
    }
}

#[test]
fn words_of_a_refusal_do_not_control_the_terminal_of_a_list() {
    let server = Scripted::start(Box::new(|line, stream| {
        let reply = b"530 Not\x1b[2J you.\r\n";
        line.starts_with("PASS") && std::io::Write::write_all(stream, reply).is_ok()
    }));
    for arguments in [["guc", "-list"], ["ls", "--json"]] {
        let output = gridhaul(&[&arguments[..], &[&server.url("d/")]].concat());
        let (_, stderr) = texts(&output);
        assert_eq!(output.status.code(), Some(1), "{stderr}");
        assert!(stderr.contains("you."), "{stderr}");
        assert!(!stderr.contains('\x1b'), "{stderr:?}");
    }
}

#[test]
fn the_exit_status_says_what_failed() {
    assert_eq!(gridhaul(&["ping", "/a"]).status.code(), Some(2));
    assert_eq!(gridhaul(&["ping", "http://h/"]).status.code(), Some(2));
    let closed = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = closed.local_addr().unwrap().port();
    drop(closed);
    let url = format!("ftp://127.0.0.1:{port}/");
    assert_eq!(gridhaul(&["ping", &url]).status.code(), Some(1));
}

#[test]
fn rdma_is_tried_and_what_carried_it_is_told() {
    let site = Site::gsi(Kind::Gridhaul, &[]);
    let url = site.server.url("");
    let text = site.must(&["ping", &url]);
    for part in [
        "rdma         works: rput, rget and --stack rdma use it",
        "  here       provider soft: ",
        "  server     provider soft: ",
        "  this has   provider soft: iWARP over TCP by this program",
        "  this has   provider verbs: ",
    ] {
        assert!(text.contains(part), "{part}: {text}");
    }
    let json = site.must(&["ping", "--json", &url]);
    let rdma = json.split(r#""rdma":{"#).nth(1).unwrap();
    for part in [
        r#""works":true"#,
        r#""reason":null"#,
        r#""provider":"soft""#,
    ] {
        assert!(rdma.contains(part), "{part}: {json}");
    }
    // Both ends have listed the home directory that way.
    let log = site.server.log();
    let is_listing = |line: &str| line.contains("verb=\"MLSD\"") && line.contains("way=\"rdma\"");
    assert_eq!(log.lines().filter(|line| is_listing(line)).count(), 2);
}

#[test]
fn a_server_without_rdma_says_why() {
    for (kind, why) in [
        (Kind::Gridhaul, "not whitelisted for anonymous users"),
        (Kind::Globus, "the server refused SITE: 5"),
    ] {
        let site = Site::anonymous(kind, &[]);
        let url = site.server.url("");
        let text = site.must(&["ping", &url]);
        let line = text.lines().find(|line| line.starts_with("  rdma "));
        let line = line.unwrap_or_else(|| panic!("{text}"));
        assert!(line.contains("no: "), "{line}");
        assert!(line.contains(why), "{line}");
        assert!(text.contains("this has   provider soft"), "{text}");
        let json = site.must(&["ping", "--json", &url]);
        assert!(json.contains(r#""works":false"#), "{json}");
    }
}

#[test]
fn a_data_channel_that_fails_is_the_reason() {
    // It accepts the stack, and speaks another protocol.
    let server = Scripted::start(Box::new(|line, stream| {
        let reply = match line.split(' ').next() {
            Some("FEAT") => "211-Features\r\n MLST type*;size*;\r\n211 End.\r\n",
            Some("PASV") => "500 No ports are left.\r\n",
            Some("SITE") => "250 Yes.\r\n",
            _ => return false,
        };
        std::io::Write::write_all(stream, reply.as_bytes()).is_ok()
    }));
    let output = gridhaul(&["ping", &server.url("")]);
    let (stdout, stderr) = texts(&output);
    assert!(output.status.success(), "{stdout}{stderr}");
    assert!(stdout.contains("no: "), "{stdout}");
    assert!(stdout.contains("No ports are left"), "{stdout}");
}
