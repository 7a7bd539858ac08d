//! Bytes on the control channel that are no valid command lines.

use gridhaul_interop::support::usage::ProcessTree;

use crate::fixture::{Fixture, HELLO, assert_reply};

/// The allowed memory growth of the server while a peer floods it, in bytes.
const GROWTH: u64 = 24 << 20;

#[test]
fn a_line_of_one_mebibyte_is_refused_by_its_length() {
    let fixture = Fixture::ours(&[]);
    let mut control = fixture.session();
    let mut line = vec![b'A'; 1 << 20];
    line.extend(b"\r\n");
    control.send(&line).unwrap();
    assert_reply(
        &control.reply().unwrap(),
        &[500, 501],
        &["too long|longer than"],
    );
    fixture.session_works(&mut control);
    fixture.serves();
}

#[test]
fn a_long_path_within_the_limit_is_a_path() {
    let fixture = Fixture::ours(&[]);
    let mut control = fixture.session();
    // DCSC lines of clients are longer than 7 kB.
    let client = format!("SITE CLIENTINFO appname=\"{}\";", "n".repeat(60_000));
    control.must(&client, 250).unwrap();
    let reply = control
        .command(&format!("SIZE /{}", "n".repeat(60_000)))
        .unwrap();
    assert_reply(&reply, &[451, 501, 550], &["File name too long|at most"]);
    fixture.session_works(&mut control);
}

#[test]
fn an_endless_line_does_not_exhaust_memory() {
    let fixture = Fixture::ours(&[]);
    let server = ProcessTree::of(fixture.server.pid());
    let mut control = fixture.session();
    let before = server.peak_memory();
    let chunk = vec![b'A'; 1 << 20];
    // The server may also close the connection before the end.
    let sent = (0..64).try_for_each(|_| control.send(&chunk));
    if sent.is_ok() && control.send(b"\r\n").is_ok() {
        assert_reply(
            &control.reply().unwrap(),
            &[500, 501],
            &["too long|longer than"],
        );
        fixture.session_works(&mut control);
    }
    assert!(
        server.peak_memory() < before + GROWTH,
        "the server kept the line in memory"
    );
    fixture.serves();
}

#[test]
fn a_nul_is_refused_and_does_not_end_a_path() {
    let fixture = Fixture::ours(&[]);
    fixture.file("secret", b"not to be had by a shorter name");
    let mut control = fixture.session();
    for line in [
        "SIZE secret\0",
        "SIZE secret\0.txt",
        "NO\0OP",
        "\0",
        "MKD a\0b",
    ] {
        let reply = control.command(line).unwrap();
        assert_reply(&reply, &[500, 501, 550, 553], &[]);
    }
    let reply = control.command("SIZE secret\0.txt").unwrap();
    assert_reply(&reply, &[500, 501, 550, 553], &["NUL|null"]);
    assert!(!fixture.root().join("a").exists());
    fixture.session_works(&mut control);
}

#[test]
fn telnet_interrupt_and_synch_before_abor_are_skipped() {
    let fixture = Fixture::ours(&[]);
    let mut control = fixture.session();
    // RFC 959 4.1.3: IAC IP, then IAC DM as urgent data, then the command.
    control.send(b"\xff\xf4\xff\xf2ABOR\r\n").unwrap();
    assert_reply(
        &control.reply().unwrap(),
        &[225, 226],
        &["abort|no transfer"],
    );
    control.send(b"\xff\xf4").unwrap();
    let urgent = rustix::net::SendFlags::OOB;
    rustix::net::send(control.socket(), b"\xff", urgent).unwrap();
    control.send(b"\xf2ABOR\r\n").unwrap();
    assert_reply(
        &control.reply().unwrap(),
        &[225, 226],
        &["abort|no transfer"],
    );
    fixture.session_works(&mut control);
}

#[test]
fn telnet_negotiation_is_skipped() {
    let fixture = Fixture::ours(&[]);
    let mut control = fixture.session();
    for negotiation in [
        b"\xff\xfb\x01",
        b"\xff\xfc\x01",
        b"\xff\xfd\x06",
        b"\xff\xfe\x06",
    ] {
        control.send(negotiation).unwrap();
        control.must("NOOP", 200).unwrap();
    }
    fixture.session_works(&mut control);
}

#[test]
fn an_empty_line_is_an_error_and_the_session_continues() {
    let fixture = Fixture::ours(&[]);
    let mut control = fixture.session();
    for line in ["", " ", "   "] {
        assert_reply(&control.command(line).unwrap(), &[500, 501], &[]);
    }
    fixture.session_works(&mut control);
}

#[test]
fn unknown_commands_are_named() {
    let fixture = Fixture::ours(&[]);
    let mut control = fixture.session();
    for (line, word) in [
        ("XYZZY plugh", "XYZZY"),
        ("SITE XYZZY", "XYZZY"),
        ("A", "A"),
    ] {
        assert_reply(&control.command(line).unwrap(), &[500, 502, 504], &[word]);
    }
    let long = "X".repeat(5000);
    let reply = control.command(&long).unwrap();
    assert_reply(&reply, &[500, 502], &[]);
    assert!(
        reply.text().len() < 1000,
        "an unknown command came back whole: {reply}"
    );
    fixture.session_works(&mut control);
}

#[test]
fn quoted_arguments_cannot_forge_a_reply() {
    let fixture = Fixture::ours(&[]);
    let mut control = fixture.session();
    // A bare CR or LF in a name must not be echoed as the end of a line: the parser of replies in
    // this crate is strict about both. Each line must get exactly one reply.
    for line in [
        "SIZE a\r226 forged",
        "SIZE a\n226 forged",
        "CWD a\n226 forged",
    ] {
        let reply = control.command(line).unwrap();
        assert!(reply.code >= 500, "{line:?}: {reply}");
    }
    control.must("NOOP", 200).unwrap();
    fixture.session_works(&mut control);
}

#[test]
fn names_may_be_invalid_utf8() {
    let fixture = Fixture::ours(&[]);
    let mut control = fixture.session();
    control.send(b"MKD \xc3\x28\xa0\x80\r\n").unwrap();
    let made = control.reply().unwrap();
    assert_reply(&made, &[257, 501, 550, 553], &[]);
    control.send(b"SIZE \xfe\xfe\x80\r\n").unwrap();
    assert_reply(&control.reply().unwrap(), &[501, 550], &[]);
    fixture.session_works(&mut control);
}

#[test]
fn a_line_may_arrive_byte_by_byte() {
    let fixture = Fixture::ours(&[]);
    let mut control = fixture.session();
    for byte in format!("SIZE {}\r\n", fixture.path(HELLO.0)).bytes() {
        control.send(&[byte]).unwrap();
    }
    assert_reply(&control.reply().unwrap(), &[213], &["17"]);
}

#[test]
fn a_flood_of_invalid_lines_gets_one_reply_each() {
    let fixture = Fixture::ours(&[]);
    let mut control = fixture.session();
    for _ in 0..100 {
        control
            .send(&b"\xde\xad\xbe\xef\r\nRETR\r\n\r\n!\r\n".repeat(10))
            .unwrap();
        for _ in 0..40 {
            assert!(control.reply().unwrap().code >= 500);
        }
    }
    fixture.session_works(&mut control);
}
