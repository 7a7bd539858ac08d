//! Attacks of clients with write access on other users of the server, on the host, and on other clients.

use std::fs;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::process::Command;

use gridhaul_interop::raw::{connect_data, put_stream};

use crate::fixture::{Fixture, assert_reply};

/// Lists a directory with every method of ftplib, and prints each entry escaped on one line.
const LISTER: &str = "
import ftplib, sys
ftp = ftplib.FTP()
ftp.connect('127.0.0.1', int(sys.argv[1]))
ftp.login()
print(*(ascii(name) for name, facts in ftp.mlsd('d')), sep='\\n')
print(*(ascii(name) for name in ftp.nlst('d')), sep='\\n')
ftp.retrlines('LIST d', lambda line: print(ascii(line)))
";

#[test]
fn names_forge_no_entries_in_ftplib() {
    let fixture = Fixture::ours(&[]);
    let folder = fixture.folder("d");
    let names = [
        "a\nType=file;Size=1; forged",
        "b\r\nType=file;Size=1; forged",
        "c\n-rw-r--r-- 1 root root 1 Nov 20 09:23 forged",
        "d\rforged",
    ];
    for name in names {
        fs::write(folder.join(name), "").unwrap();
    }
    let port = fixture.address().port().to_string();
    let listed = Command::new("python3")
        .args(["-c", LISTER, &port])
        .output()
        .expect("python3 is installed");
    let text = String::from_utf8_lossy(&listed.stdout);
    let errors = String::from_utf8_lossy(&listed.stderr);
    assert!(listed.status.success(), "{errors}");
    let seen = |start: &str| text.lines().filter(|line| line.contains(start)).count();
    // Each name occurs once in each form of listing, on its own line.
    for start in ["a?Type", "b??Type", "c?-rw", "d?forged"] {
        assert_eq!(seen(start), 3, "{text}");
    }
    assert_eq!(seen("forged"), 12, "{text}");
}

#[test]
fn names_with_control_characters_are_refused() {
    let fixture = Fixture::ours(&[]);
    let mut control = fixture.session();
    for name in ["a\nb", "a\rb", "\u{1b}[2Jb", "b\u{7f}"] {
        let refused = put_stream(&mut control, name, b"content").unwrap_err();
        assert!(
            refused.to_string().contains("control characters"),
            "{refused}"
        );
        let refused = control.command(&format!("MKD {name}")).unwrap();
        assert_reply(&refused, &[553], &["control characters"]);
        control.must("RNFR hello.txt", 350).unwrap();
        let refused = control.command(&format!("RNTO {name}")).unwrap();
        assert_reply(&refused, &[553], &["control characters"]);
    }
    assert_eq!(fs::read_dir(fixture.root()).unwrap().count(), 1);
    fixture.session_works(&mut control);
}

#[test]
fn set_user_id_modes_are_refused() {
    let fixture = Fixture::ours(&[]);
    let mut control = fixture.session();
    put_stream(&mut control, "program", b"#!/bin/sh").unwrap();
    for bits in ["6755", "4755", "2755", "1777"] {
        let refused = control.command(&format!("SITE CHMOD {bits} program"));
        assert_reply(&refused.unwrap(), &[550], &["set-user-ID"]);
    }
    control.must("SITE CHMOD 755 program", 250).unwrap();
    let facts = fs::metadata(fixture.root().join("program")).unwrap();
    assert_eq!(facts.permissions().mode() & 0o7777, 0o755);
    fixture.session_works(&mut control);
}

#[test]
fn an_announced_size_reserves_no_disk_space() {
    let fixture = Fixture::ours(&[]);
    for _ in 0..2 {
        let mut control = fixture.session();
        control.must("ALLO 67108864", 200).unwrap();
        let channel = connect_data(control.passive().unwrap()).unwrap();
        control.must("STOR up", 150).unwrap();
        let blocks = || fs::metadata(fixture.root().join("up")).unwrap().blocks();
        assert!(blocks() * 512 <= 1 << 20, "{} blocks", blocks());
        drop(channel);
        let refused = control.dialogue().unwrap().last;
        assert_reply(&refused, &[426], &["0 bytes arrived"]);
        assert_eq!(blocks(), 0);
        fixture.session_works(&mut control);
    }
}

#[test]
fn expensive_patterns_end_only_their_own_command() {
    let fixture = Fixture::ours(&[]);
    let mut control = fixture.session();
    for pattern in [
        "{".repeat(300),
        "{".repeat(200),
        "{a,".repeat(60),
        "*a".repeat(120),
    ] {
        control.passive().unwrap();
        control.send_line(&format!("NLST {pattern}")).unwrap();
        let refused = control.dialogue().unwrap().last;
        let words = &["File name too long|No such file or directory"];
        assert_reply(&refused, &[550], words);
        fixture.session_works(&mut control);
    }
    assert!(!fixture.server.log().contains("panicked"));
}
