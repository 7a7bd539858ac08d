//! `ftps`: control and data channels in TLS (RFC 4217).

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt as _;

use gridhaul_interop::{HOST, Kind, PASSWORD, PASSWORD_USER, Pki};

use super::scripted::{Scripted, fails};
use super::site::{Site, assert_same};

fn authority() -> String {
    let file = Pki::shared().unwrap().authority();
    file.to_str().unwrap().to_owned()
}

fn url(site: &Site, name: &str) -> String {
    site.server.url(name).replace("ftp://", "ftps://")
}

fn round(site: &Site, options: &[&str], name: &str) {
    let (there, back) = (url(site, name), format!("{name}-back"));
    let ca = authority();
    let with =
        |from: &str, to: &str| site.must(&[&["copy", "--ca", &ca], options, &[from, to]].concat());
    with("source", &there);
    assert_same(&site.local("source"), &site.served(name), options);
    with(&there, &back);
    assert_same(&site.local("source"), &site.local(&back), options);
}

#[test]
fn files_go_both_ways_with_each_protection() {
    let site = Site::tls("127.0.0.1");
    round(&site, &[], "auto");
    round(&site, &["--mode", "stream"], "stream");
    round(&site, &["--parallel", "4"], "blocks");
    round(&site, &["--dcau", "none"], "clear");
    // All but the last two.
    let log = site.server.log();
    assert_eq!(log.matches("tls-records=here").count(), 6, "{log}");
}

#[test]
fn directories_are_listed_in_tls() {
    let site = Site::tls("127.0.0.1");
    let tree = site.local("tree");
    fs::create_dir(&tree).unwrap();
    fs::write(tree.join("a"), "one").unwrap();
    let ca = authority();
    let there = url(&site, "tree");
    site.must(&["copy", "-r", "--ca", &ca, "tree", &there]);
    site.must(&["copy", "-r", "--ca", &ca, &there, "back"]);
    assert_eq!(fs::read(site.local("back/a")).unwrap(), b"one");
}

#[test]
fn a_user_logs_in_with_a_password() {
    let site = Site::tls("127.0.0.1");
    let file = site.local("password");
    fs::write(&file, format!("{PASSWORD}\n")).unwrap();
    fs::set_permissions(&file, Permissions::from_mode(0o600)).unwrap();
    let there = url(&site, "").replace("ftps://", &format!("ftps://{PASSWORD_USER}@"));
    let there = format!("{there}of-user");
    let ca = authority();
    site.must(&[
        "copy",
        "--ca",
        &ca,
        "--password-file",
        "password",
        "source",
        &there,
    ]);
    assert!(site.server.log().contains(PASSWORD_USER));
}

#[test]
fn the_server_must_be_trusted_and_the_host_of_the_url() {
    let site = Site::tls("127.0.0.1");
    let error = site.fails(&["sum", "md5", &url(&site, "a")]);
    assert!(error.contains("its certificate is not accepted"), "{error}");
    // The certificate has the names 127.0.0.1 and localhost.
    let other = Site::tls("127.0.0.2");
    let (there, ca) = (url(&other, "a"), authority());
    let error = other.fails(&["copy", "--ca", &ca, "source", &there]);
    assert!(error.contains("not of 127.0.0.2"), "{error}");
    assert!(!other.served("a").exists());
    other.must(&["copy", "--ca", &ca, "--subject", HOST, "source", &there]);
    assert_same(&other.local("source"), &other.served("a"), &[]);
}

#[test]
fn no_data_is_in_the_clear_unless_the_user_says_so() {
    let site = Site::tls("127.0.0.1");
    let (ca, one, other) = (authority(), url(&site, "one"), url(&site, "other"));
    site.must(&["copy", "--ca", &ca, "source", &one]);
    let error = site.fails(&["copy", "--ca", &ca, &one, &other]);
    assert!(error.contains("between two servers"), "{error}");
    site.must(&["copy", "--ca", &ca, "--dcau", "none", &one, &other]);
    assert_same(&site.local("source"), &site.served("other"), &[]);
    let error = site.fails(&["copy", "--ca", &ca, "--dcau", "self", "source", &one]);
    assert!(error.contains("leave --dcau out"), "{error}");
}

#[test]
fn an_attacker_on_the_way_gets_no_password() {
    let place = tempfile::tempdir().unwrap();
    let file = place.path().join("password");
    fs::write(&file, "secret\n").unwrap();
    fs::set_permissions(&file, Permissions::from_mode(0o600)).unwrap();
    for (reply, expected) in [
        (&b"502 no TLS here\r\n"[..], "the server refused AUTH"),
        (b"234 yes\r\n331 password\r\n", "in the clear"),
        (b"234 yes\r\n", "TLS handshake"),
    ] {
        let server = Scripted::start(Box::new(move |line, stream| {
            let is_chosen = line == "AUTH TLS";
            is_chosen && std::io::Write::write_all(stream, reply).is_ok()
        }));
        let url = format!("ftps://ada@{}/a", server.address);
        let password = file.to_str().unwrap();
        let error = fails(&[
            "sum",
            "--timeout",
            "2",
            "--password-file",
            password,
            "md5",
            &url,
        ]);
        assert!(error.contains(expected), "{error}");
        let commands = server.commands();
        let secrets = ["USER", "PASS"];
        let told = commands
            .iter()
            .any(|one| secrets.iter().any(|verb| one.starts_with(verb)));
        assert!(!told, "{commands:?}");
    }
}

#[test]
fn a_server_without_tls_is_named() {
    let site = Site::anonymous(Kind::Globus, &[]);
    let error = site.fails(&["sum", "md5", &url(&site, "a")]);
    assert!(error.contains("the server refused AUTH"), "{error}");
}
