//! Servers that do not keep to the protocol.

use std::io::Write as _;
use std::net::TcpStream;
use std::time::{Duration, Instant};

use super::scripted::{Scripted, fails};

fn send(stream: &mut TcpStream, reply: &[u8]) -> bool {
    // The client may have gone.
    stream.write_all(reply).is_ok()
}

#[test]
fn preliminary_replies_do_not_prolong_the_time_limit() {
    let server = Scripted::start(Box::new(|line, stream| {
        let is_chosen = line == "FEAT";
        while is_chosen && send(stream, b"150 wait\r\n") {
            std::thread::sleep(Duration::from_millis(200));
        }
        is_chosen
    }));
    let started = Instant::now();
    let error = fails(&["sum", "--timeout", "1", "md5", &server.url("a")]);
    assert!(error.contains("no reply to FEAT within 1 s"), "{error}");
    assert!(started.elapsed() < Duration::from_secs(20));
}

#[test]
fn a_flood_of_preliminary_replies_ends_the_session() {
    let server = Scripted::start(Box::new(|line, stream| {
        let is_chosen = line.starts_with("CKSM");
        while is_chosen && send(stream, b"112 still at it\r\n") {}
        is_chosen
    }));
    let error = fails(&["sum", "md5", &server.url("a")]);
    assert!(
        error.contains("more than 4096 preliminary replies to CKSM"),
        "{error}"
    );
}

#[test]
fn a_reply_without_an_end_is_bounded() {
    let server = Scripted::start(Box::new(|line, stream| {
        let is_chosen = line == "FEAT";
        if is_chosen && send(stream, b"211-Features\r\n") {
            while send(stream, b" SIZE\r\n") {}
        }
        is_chosen
    }));
    let error = fails(&["sum", "md5", &server.url("a")]);
    assert!(error.contains("a reply of more than"), "{error}");
}

#[test]
fn a_server_that_is_silent_during_a_checksum_is_given_up() {
    let server = Scripted::start(Box::new(|line, stream| {
        match line.split(' ').next() {
            // As long as the file is small, the time is that of other commands.
            Some("SIZE") => send(stream, b"213 999\r\n"),
            Some("CKSM") => true,
            _ => false,
        }
    }));
    let error = fails(&["sum", "--timeout", "1", "md5", &server.url("a")]);
    assert!(error.contains("no reply to CKSM within 1 s"), "{error}");
    let commands = server.commands();
    assert!(
        commands.contains(&"CKSM MD5 0 -1 /a".to_owned()),
        "{commands:?}"
    );
}

#[test]
fn a_host_that_does_not_answer_is_named() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    drop(listener);
    let error = fails(&["sum", "md5", &format!("ftp://127.0.0.1:{port}/a")]);
    assert!(
        error.contains("cannot connect to ftp://127.0.0.1"),
        "{error}"
    );
}
