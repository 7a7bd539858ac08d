//! `--verbose`, and `-dbg` of globus-url-copy.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt as _;
use std::process::Output;

use gridhaul_interop::{Kind, PASSWORD, PASSWORD_USER, Pki};

use super::scripted::gridhaul;
use crate::site::{Site, texts};

/// Standard error of a copy that succeeds.
fn errors(output: &Output) -> String {
    let (stdout, stderr) = texts(output);
    assert!(output.status.success(), "{stdout}{stderr}");
    stderr
}

#[test]
fn more_is_said_about_sessions_and_files() {
    for kind in [Kind::Gridhaul, Kind::Globus] {
        let site = Site::gsi(kind, &[]);
        let url = site.server.url("a");
        let said = |options: &[&str], ends: [&str; 2]| {
            errors(&site.gridhaul(&[&["copy"], options, &ends].concat()))
        };
        assert_eq!(said(&[], ["source", &url]), "");
        let put = said(&["-v", "-p", "2"], ["source", &url]);
        for words in [
            "connected to 127.0.0.1",
            "logged in as /",
            "MODE E with 2 connections",
            "data authenticated",
            "the stack auto here",
            "copied over ",
        ] {
            assert!(put.contains(words), "{words}: {put}");
        }
        assert!(!put.contains("STOR"), "{put}");
        let got = said(&["--verbose", "--json"], [&url, "back"]);
        assert!(got.contains("stream mode"), "{got}");
        let both = said(&["-vv"], [&url, &site.server.url("b")]);
        for words in [" > STOR /", " < 226 ", " < 211-", "MODE E"] {
            assert!(both.contains(words), "{words}: {both}");
        }
    }
}

#[test]
fn lines_about_the_dialogue_have_no_password_and_spoil_no_json() {
    let site = Site::tls("127.0.0.1");
    let file = site.local("password");
    fs::write(&file, PASSWORD).unwrap();
    fs::set_permissions(&file, Permissions::from_mode(0o600)).unwrap();
    let authority = Pki::shared().unwrap().authority();
    let url = site.server.url("a");
    let url = url.replace("ftp://", &format!("ftps://{PASSWORD_USER}@"));
    let (file, authority) = (file.to_str().unwrap(), authority.to_str().unwrap());
    let login = ["--ca", authority, "--password-file", file];
    let words = [&["copy", "-vv", "--json"], &login[..], &["source", &url]].concat();
    let output = site.gridhaul(&words);
    let stderr = errors(&output);
    assert!(stderr.contains("> PASS ***"), "{stderr}");
    assert!(stderr.contains("> STOR /a"), "{stderr}");
    let stdout = texts(&output).0;
    for line in stdout.lines() {
        let event: serde_json::Value = serde_json::from_str(line).unwrap();
        assert!(event["event"].is_string(), "{line}");
    }
    assert!(!stderr.contains(PASSWORD) && !stdout.contains(PASSWORD));
}

#[test]
fn quiet_copies_are_not_verbose() {
    let output = gridhaul(&["copy", "-q", "-v", "a", "ftp://h/b"]);
    assert_eq!(output.status.code(), Some(2), "{output:?}");
}

#[test]
fn the_dialogue_of_globus_url_copy_has_its_form() {
    let site = Site::anonymous(Kind::Gridhaul, &[]);
    let url = site.server.url("a");
    let source = format!("file://{}", site.local("source").display());
    let stderr = errors(&site.gridhaul(&["guc", "-dbg", &source, &url]));
    for words in [
        "debug: response from ftp://127.0.0.1:",
        "\n220 ",
        "debug: sending command to ftp://127.0.0.1:",
        "\nPASS ***\n",
        "\nSTOR /a\n",
        "\n226 ",
    ] {
        assert!(stderr.contains(words), "{words}: {stderr}");
    }
    let stderr = errors(&site.gridhaul(&["guc", "-dbg", "-list", &site.server.url("")]));
    assert!(stderr.contains("\nMLSD /\n"), "{stderr}");
    assert_eq!(errors(&site.gridhaul(&["guc", &source, &url])), "");
}

#[test]
fn help_and_version_are_where_globus_url_copy_prints_them() {
    for (option, words) in [
        ("-help", "globus-url-copy [options] <sourceURL> <destURL>"),
        ("-version", "globus-url-copy: 10.12 (gridhaul "),
    ] {
        let output = gridhaul(&["guc", option]);
        assert!(output.status.success(), "{output:?}");
        let (stdout, stderr) = texts(&output);
        assert_eq!(stdout, "");
        assert!(stderr.contains(words), "{stderr}");
    }
}
