//! The order of records: replies, markers and commands during a transfer.
//!
//! A client can only decrypt tokens in the order in which the server made them, so each reply that
//! is read here proves its position.

use std::collections::HashMap;
use std::io::{Read, Write};
use std::thread;
use std::time::Instant;

use gridhaul_interop::raw::{Block, End, TIMEOUT, connect_data, write_block};

use super::Site;
use crate::fixture::{STALL, assert_reply, pattern};

/// The minimum number of replies during a transfer.
const ASKED: usize = 200;

#[test]
fn replies_and_markers_during_an_upload_are_in_order() {
    let site = Site::new(&[]);
    let mut session = site.session();
    session.must("MODE E", 200).unwrap();
    session.must("TREV PERF 1", 200).unwrap();
    session.must("TREV RESTART 1", 200).unwrap();
    let port = session.passive().unwrap();
    session.send_line("STOR up").unwrap();
    let mut channel = site
        .alice()
        .authenticate(connect_data(port).unwrap(), End::Connector)
        .unwrap();
    // Earlier commands may get their replies before the transfer.
    assert_reply(&session.reply().unwrap(), &[150], &[]);
    let part = pattern(1000);
    let (mut parts, mut markers) = (0, HashMap::from([(111, 0), (112, 0)]));
    let deadline = Instant::now() + TIMEOUT;
    while parts < ASKED || markers.values().any(|&count| count < 3) {
        assert!(Instant::now() < deadline, "markers so far: {markers:?}");
        write_block(&mut channel, (parts * part.len()) as u64, &part).unwrap();
        let (line, expected) = match parts % 2 {
            0 => ("NOOP", 200),
            _ => ("STAT", 212),
        };
        session.send_line(line).unwrap();
        parts += 1;
        let reply = loop {
            let reply = session.reply().unwrap();
            if !reply.is_preliminary() {
                break reply;
            }
            assert!(Instant::now() < deadline, "`{line}` is not answered");
            *markers.entry(reply.code).or_insert(0) += 1;
        };
        assert_reply(&reply, &[expected], &[]);
    }
    channel.write_all(&Block::end_of_file(1).bytes()).unwrap();
    assert_eq!(session.dialogue().unwrap().last.code, 226);
    assert!(site.fixture.content("up") == part.repeat(parts));
    site.session_works(&mut session);
}

#[test]
fn pipelined_commands_during_a_download_are_answered_in_order() {
    let site = Site::new(&[]);
    site.fixture.large_file("large");
    let mut session = site.session();
    let port = session.passive().unwrap();
    session.send_line("RETR large").unwrap();
    let mut channel = site
        .alice()
        .authenticate(connect_data(port).unwrap(), End::Connector)
        .unwrap();
    channel.read_exact(&mut [0; 1000]).unwrap();
    for _ in 0..ASKED {
        session.send_line("NOOP").unwrap();
    }
    let reader = thread::spawn(move || std::io::copy(&mut channel, &mut std::io::sink()).unwrap());
    let (mut noops, mut ends) = (0, 0);
    while noops < ASKED || ends < 1 {
        match session.reply().unwrap().code {
            200 => noops += 1,
            226 => ends += 1,
            code => assert!(code < 200, "{code}"),
        }
    }
    assert_eq!(reader.join().unwrap() + 1000, 64 << 20);
    site.session_works(&mut session);
}

#[test]
fn abor_in_a_token_ends_a_transfer() {
    let site = Site::new(&STALL);
    site.fixture.large_file("large");
    let mut session = site.session();
    for command in ["RETR large", "STOR up"] {
        let port = session.passive().unwrap();
        session.send_line(command).unwrap();
        let channel = site
            .alice()
            .authenticate(connect_data(port).unwrap(), End::Connector)
            .unwrap();
        assert_reply(&session.reply().unwrap(), &[150], &[]);
        session.send_line("ABOR").unwrap();
        assert_reply(&session.dialogue().unwrap().last, &[426], &["abort"]);
        assert_reply(&session.reply().unwrap(), &[225, 226], &["abort"]);
        drop(channel);
        site.session_works(&mut session);
    }
}

#[test]
fn abor_in_clear_does_not_end_a_transfer() {
    let site = Site::new(&[]);
    site.fixture.large_file("large");
    let mut session = site.session();
    let port = session.passive().unwrap();
    session.send_line("RETR large").unwrap();
    let mut channel = site
        .alice()
        .authenticate(connect_data(port).unwrap(), End::Connector)
        .unwrap();
    assert_reply(&session.reply().unwrap(), &[150], &[]);
    session.control().send_line("ABOR").unwrap();
    let length = std::io::copy(&mut channel, &mut std::io::sink()).unwrap();
    assert_eq!(length, 64 << 20);
    let codes = [session.dialogue().unwrap(), session.dialogue().unwrap()].map(|it| it.last.code);
    assert!(codes == [226, 533] || codes == [533, 226], "{codes:?}");
    site.session_works(&mut session);
}
