//! Options of globus-url-copy that send commands of their own: both programs send the same, and servers do what they mean.

use std::fs;
use std::io::Write as _;
use std::net::TcpStream;
use std::process::Command;

use gridhaul_interop::{Kind, Pki, UserKind};

use crate::blocks;
use crate::scripted::Scripted;
use crate::site::{Site, assert_same, texts};

/// A server that takes all stacks and credentials, and sends no file.
fn server() -> Scripted {
    Scripted::start(Box::new(|line, control: &mut TcpStream| {
        let reply = match line.split(' ').next() {
            Some("FEAT") => blocks::FEATURES,
            Some("SITE" | "DCSC" | "DCAU") => "250 Yes.\r\n",
            Some("SIZE") => "213 10\r\n",
            Some("PASV") => "227 (127,0,0,1,1,1)\r\n",
            Some("PORT") => "200 Yes.\r\n",
            _ => return false,
        };
        control.write_all(reply.as_bytes()).is_ok()
    }))
}

/// The stacks for disks that a command requests of the source, and of the destination.
fn requested(program: &[&str], options: &[&str]) -> [Vec<String>; 2] {
    let servers = [server(), server()];
    let urls = servers.each_ref().map(|server| server.url("a"));
    let urls = urls.each_ref().map(String::as_str);
    let words = [program, options, &urls].concat();
    let status = Command::new(words[0]).args(&words[1..]).output();
    assert!(!status.unwrap().status.success(), "{words:?}");
    servers.map(|server| {
        let commands = server.commands().into_iter();
        let stacks = commands.filter(|line| line.starts_with("SITE SETDISKSTACK"));
        stacks.collect()
    })
}

#[test]
fn stacks_for_disks_are_those_of_globus_url_copy() {
    let ours = [env!("CARGO_BIN_EXE_gridhaul"), "guc"];
    for (options, ends) in [
        (["-src-pipe", "cat#/etc/hosts"], [1, 0]),
        (["-dst-pipe", "#cat#/etc/hosts"], [0, 1]),
        (["-pipe", "a$b#c"], [1, 1]),
        (["-file-system-stack", "file"], [1, 1]),
        (["-source-file-system-stack", "file"], [1, 0]),
        (["-dest-file-system-stack", "file"], [0, 1]),
    ] {
        let theirs = requested(&["globus-url-copy"], &options);
        assert_eq!(theirs.each_ref().map(Vec::len), ends, "{options:?}");
        assert_eq!(requested(&ours, &options), theirs, "{options:?}");
    }
}

/// Puts a file, gets it back, and copies it on the server.
fn round(site: &Site, options: &[&str]) {
    let (url, third) = (site.server.url("a"), site.server.url("third"));
    let file = |name: &str| format!("file://{}", site.local(name).display());
    for (from, to) in [
        (file("source"), url.clone()),
        (url.clone(), file("back")),
        (url, third),
    ] {
        site.must(&[&["guc"], options, &[&from, &to]].concat());
    }
    for copy in [site.served("a"), site.local("back"), site.served("third")] {
        assert_same(&site.local("source"), &copy, options);
        fs::remove_file(copy).unwrap();
    }
}

#[test]
fn data_channels_use_a_credential_of_their_own() {
    let other = &Pki::shared().unwrap().user(UserKind::Second).credential;
    let other = other.to_str().unwrap();
    for kind in [Kind::Gridhaul, Kind::Globus] {
        let site = Site::gsi(kind, &[]);
        for options in [
            &["-data-cred", "auto"][..],
            &["-data-cred", "auto", "-dcpriv", "-p", "2"],
            &["-data-cred", other, "-fast"],
        ] {
            round(&site, options);
        }
        // Both servers and this machine must have it.
        let url = site.server.url("");
        site.must(&["guc", "-data-cred", "auto", "-list", &url]);
    }
}

#[test]
fn a_server_is_given_the_credential_before_its_data_channels() {
    let site = Site::anonymous(Kind::Gridhaul, &[]);
    let server = server();
    let url = server.url("a");
    site.gridhaul(&["guc", "-data-cred", "auto", &url, "file:///dev/null"]);
    let commands = server.commands();
    let first = |start: &str| commands.iter().position(|line| line.starts_with(start));
    let credential = first("DCSC P ").expect("a credential");
    assert!(first("DCAU A") > Some(credential), "{commands:?}");
}

#[test]
fn the_key_of_a_user_is_not_sent_in_the_clear() {
    let site = Site::gsi(Kind::Gridhaul, &[]);
    let server = server();
    let own = &Pki::shared().unwrap().user(UserKind::Plain).credential;
    let own = own.to_str().unwrap();
    let copy = [
        "guc",
        "-data-cred",
        own,
        &server.url("a"),
        "file:///dev/null",
    ];
    let error = site.fails(&copy);
    assert!(error.contains("not sent in the clear"), "{error}");
    assert!(
        !server
            .commands()
            .iter()
            .any(|line| line.starts_with("DCSC"))
    );
    let missing = [
        "guc",
        "-data-cred",
        "/nonexistent",
        &server.url("a"),
        "file:///dev/null",
    ];
    let error = texts(&site.gridhaul(&missing)).1;
    assert!(error.contains("-data-cred /nonexistent: "), "{error}");
}
