//! Logging in: who is let in, and what may be done before.

use std::io::Write;

use gridhaul_server::config::{Seconds, Settings};
use gridhaul_server::passwords::{Grant, set_password};

use crate::client::Client;
use crate::crowds::connect_from;
use crate::served::{Served, config};

/// A server without anonymous users, with ann, who may write, and bob, who may read another root.
fn with_users() -> (Served, tempfile::TempDir) {
    let directory = tempfile::tempdir().expect("a directory");
    let file = directory.path().join("users");
    set_password(&file, "ann", b"one", &Grant::default()).expect("made");
    let root = directory.path().join("bob");
    std::fs::create_dir(&root).expect("made");
    std::fs::write(root.join("bobs"), "x").expect("written");
    let grant = Grant {
        root: Some(root),
        read_only: true,
    };
    set_password(&file, "bob", b"two", &grant).expect("made");
    let served = Served::with(|settings| {
        settings.anonymous = None;
        settings.anonymous_write = None;
        settings.passwords = Some(file);
    });
    (served, directory)
}

fn log_in(client: &mut Client, name: &str, password: &str, code: u16) -> String {
    client.expect(&format!("USER {name}"), 331);
    client.expect(&format!("PASS {password}"), code)
}

#[test]
fn anonymous_users_are_let_in_under_their_names_only() {
    let served = Served::new();
    for name in ["anonymous", "ftp"] {
        let text = log_in(&mut served.greeted(), name, "x@", 230);
        assert_eq!(text, format!("230 User {name} logged in.\r\n"));
    }
    let text = log_in(&mut served.greeted(), "root", "x@", 530);
    assert_eq!(text, "530 Login incorrect.\r\n");
}

#[test]
fn little_is_said_before_login() {
    let served = Served::new();
    let mut client = served.greeted();
    client.expect("PASS x", 503);
    for line in ["PWD", "RETR x", "MLST", "CWD /", "PASV", "SITE WHOAMI"] {
        let text = client.expect(line, 530);
        assert_eq!(text, "530 Please login with USER and PASS.\r\n", "{line}");
    }
    client.expect("AUTH GSSAPI", 504);
    client.expect("AUTH TLS", 504);
    client.expect("ADAT AAAA", 503);
    client.expect("PBSZ 0", 503);
    client.expect("PROT P", 503);
    client.expect("NOOP", 200);
    client.expect("HELP", 214);
    client.expect("SITE HELP", 214);
    assert!(!client.expect("FEAT", 211).contains("CKSM"));
    client.expect("QUIT", 221);
    client.expect_end();
}

#[test]
fn login_happens_once() {
    let served = Served::new();
    let mut client = served.anonymous();
    client.expect("USER ftp", 503);
    client.expect("PASS x", 503);
    assert_eq!(client.expect("SITE WHOAMI", 200), "200 anonymous\r\n");
    assert!(client.expect("FEAT", 211).contains(" CKSM "));
}

#[test]
fn users_have_their_roots_and_rights() {
    let (served, _directory) = with_users();
    let mut ann = served.greeted();
    log_in(&mut ann, "ann", "one", 230);
    ann.expect("MKD /made", 257);
    assert!(served.path("made").is_dir());
    let mut bob = served.greeted();
    log_in(&mut bob, "bob", "two", 230);
    bob.expect("TYPE I", 200);
    bob.expect("SIZE /bobs", 213);
    bob.expect("SIZE /made", 550);
    let text = bob.expect("MKD /not", 550);
    assert!(text.contains("Permission denied"), "{text}");
}

#[test]
fn a_wrong_name_and_a_wrong_password_are_told_alike() {
    let (served, _directory) = with_users();
    let wrong_password = log_in(&mut served.greeted(), "ann", "two", 530);
    let wrong_name = log_in(&mut served.greeted(), "eve", "two", 530);
    assert_eq!(wrong_password, wrong_name);
    log_in(&mut served.greeted(), "anonymous", "x@", 530);
}

#[test]
fn whoever_guesses_is_sent_away() {
    let served = Served::with(|settings| settings.max_login_attempts = Some(2));
    let mut client = served.greeted();
    log_in(&mut client, "root", "one", 530);
    log_in(&mut client, "root", "two", 530);
    client.expect_reply(421);
    client.expect_end();
}

#[test]
fn wrong_passwords_are_counted_beyond_the_connection() {
    let (served, _directory) = with_users();
    let guess = |from: u8| {
        let mut client = connect_from(from, &served);
        client.expect_reply(220);
        client.expect("USER ann", 331);
        client.send("PASS two");
        client.reply().code()
    };
    let guesses: Vec<u16> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..14).map(|_| scope.spawn(|| guess(2))).collect();
        threads
            .into_iter()
            .map(|thread| thread.join().expect("no panic"))
            .collect()
    });
    let looked_at = guesses.iter().filter(|code| **code == 530).count();
    // One more for each thread that was at work when the budget ended.
    assert!((10..14).contains(&looked_at), "{guesses:?}");
    assert!(guesses.iter().all(|code| [421, 530].contains(code)));
    // Not even the right one is looked at now, but those of others are, and hers from elsewhere.
    let mut ann = connect_from(2, &served);
    ann.expect_reply(220);
    let text = log_in(&mut ann, "ann", "one", 421);
    assert!(text.contains("Too many wrong passwords"), "{text}");
    ann.expect_end();
    let mut bob = connect_from(2, &served);
    bob.expect_reply(220);
    log_in(&mut bob, "bob", "two", 230);
    let mut ann = connect_from(3, &served);
    ann.expect_reply(220);
    log_in(&mut ann, "ann", "one", 230);
}

#[test]
fn the_time_to_log_in_is_limited() {
    let served = Served::with(|settings| settings.login_timeout = Some(Seconds(1)));
    let mut client = served.greeted();
    client.expect("NOOP", 200);
    let text = client.expect_reply(421);
    assert_eq!(text, "421 Idle Timeout: closing control connection.\r\n");
    client.expect_end();
}

#[test]
fn a_reload_brings_new_users_and_keeps_sessions() {
    let (served, directory) = with_users();
    let mut ann = served.greeted();
    log_in(&mut ann, "ann", "one", 230);
    let file = directory.path().join("users");
    set_password(&file, "cid", b"three", &Grant::default()).expect("added");
    let settings = Settings {
        root: Some(served.path("")),
        passwords: Some(file.clone()),
        ..Settings::default()
    };
    served
        .server()
        .reload(config(settings.clone()))
        .expect("reloaded");
    log_in(&mut served.greeted(), "cid", "three", 230);
    ann.expect("NOOP", 200);

    let mut broken = std::fs::OpenOptions::new()
        .append(true)
        .open(&file)
        .expect("opened");
    broken.write_all(b"dora:no hash\n").expect("written");
    served
        .server()
        .reload(config(settings))
        .expect_err("a wrong line");
    log_in(&mut served.greeted(), "cid", "three", 230);
}
