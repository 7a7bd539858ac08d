//! Data connections of other users, and unauthenticated ones.

use std::io::{self, Read, Write};
use std::net::{Shutdown, TcpStream};

use gridhaul_interop::UserKind;
use gridhaul_interop::raw::{Dialogue, End, GsiControl, Identity, connect_data};

use super::Site;
use crate::fixture::{DATA_TIMEOUT, HELLO, assert_reply, pattern};

/// The texts of the server for the wrong peer and the expected peer.
const WRONG_PEER: &str = "The peer authenticated as";

/// An unfinished TLS handshake: the header of a record and one byte of it.
const HALF_A_RECORD: &[u8] = b"\x16\x03\x01\x01\x00\x01";

/// Checks that a transfer fails because of the identity of the peer, and that the reply and the log contain it.
#[track_caller]
fn wrong_peer(site: &Site, dialogue: &Dialogue, [came, expected]: [UserKind; 2]) {
    let [came, expected] = [came, expected].map(|user| site.subject(user));
    let words = [WRONG_PEER, came, "Expected", expected];
    assert_reply(&dialogue.last, &[425, 426, 500], &words);
    site.logged(&["transfer finished", "last_refusal", came, expected]);
}

/// Checks that a data connection is closed without any byte, not even the end of a handshake.
#[track_caller]
fn closed_without_data(channel: io::Result<TcpStream>) {
    let Ok(mut channel) = channel else { return };
    let mut received = Vec::new();
    match channel.read_to_end(&mut received) {
        Ok(_) => {}
        Err(error) if error.kind() == io::ErrorKind::ConnectionReset => {}
        Err(error) => panic!("it was not closed: {error}"),
    }
    assert_eq!(received, b"", "it got something");
}

/// The replies for a transfer for which `identity` connects to the server's data port.
#[track_caller]
fn connect_as(identity: &Identity, session: &mut GsiControl, command: &str) -> Dialogue {
    let port = session.passive().unwrap();
    session.send_line(command).unwrap();
    let channel = identity.authenticate(connect_data(port).unwrap(), End::Connector);
    if command.starts_with("STOR") {
        // The connection may be closed already.
        let _ = channel.and_then(|mut channel| channel.write_all(b"forged"));
    } else {
        closed_without_data(channel);
    }
    session.dialogue().unwrap()
}

#[test]
fn another_user_who_connects_receives_no_data() {
    let site = Site::new(&DATA_TIMEOUT);
    let mut session = site.session();
    let refused = connect_as(&site.bob(), &mut session, "RETR hello.txt");
    wrong_peer(&site, &refused, [UserKind::Second, UserKind::Plain]);
    site.session_works(&mut session);
}

#[test]
fn another_user_who_connects_stores_no_data() {
    let site = Site::new(&DATA_TIMEOUT);
    let mut session = site.session();
    let refused = connect_as(&site.bob(), &mut session, "STOR up");
    wrong_peer(&site, &refused, [UserKind::Second, UserKind::Plain]);
    assert_eq!(site.fixture.content("up"), b"");
    site.session_works(&mut session);
}

#[test]
fn another_user_who_connects_receives_no_data_with_prot_p() {
    let site = Site::new(&DATA_TIMEOUT);
    let mut session = site.session();
    session.must("PBSZ 1048576", 200).unwrap();
    session.must("PROT P", 200).unwrap();
    let port = session.passive().unwrap();
    session.send_line("RETR hello.txt").unwrap();
    let mut channel = connect_data(port).unwrap();
    // With TLS 1.3 the client finishes before the server verifies its certificate.
    let _ = site.bob().connect_privately(&mut channel);
    closed_without_data(Ok(channel));
    let refused = session.dialogue().unwrap();
    wrong_peer(&site, &refused, [UserKind::Second, UserKind::Plain]);
    session.must("PROT C", 200).unwrap();
    site.session_works(&mut session);
}

#[test]
fn another_user_that_the_server_connects_to_exchanges_no_data() {
    let site = Site::new(&DATA_TIMEOUT);
    let mut session = site.session();
    for command in ["RETR hello.txt", "STOR up"] {
        let listener = session.active().unwrap();
        session.send_line(command).unwrap();
        let channel = site
            .bob()
            .authenticate(listener.accept().unwrap(), End::Acceptor);
        closed_without_data(channel);
        let refused = session.dialogue().unwrap();
        let [came, expected] = [UserKind::Second, UserKind::Plain].map(|user| site.subject(user));
        let words = [WRONG_PEER, came, "Expected", expected];
        assert_reply(&refused.last, &[425, 426, 500], &words);
        site.logged(&["transfer finished", came, expected]);
    }
    assert_eq!(site.fixture.content("up"), b"");
    site.session_works(&mut session);
}

#[test]
fn dcau_s_accepts_only_the_named_peer() {
    let site = Site::new(&DATA_TIMEOUT);
    let mut session = site.session();
    let bob = site.subject(UserKind::Second);
    session.must(&format!("DCAU S {bob}"), 200).unwrap();
    // This excludes the user of the session.
    let refused = connect_as(&site.alice(), &mut session, "RETR hello.txt");
    wrong_peer(&site, &refused, [UserKind::Plain, UserKind::Second]);
    let listener = session.active().unwrap();
    session.send_line("RETR hello.txt").unwrap();
    let channel = site
        .alice()
        .authenticate(listener.accept().unwrap(), End::Acceptor);
    closed_without_data(channel);
    let refused = session.dialogue().unwrap();
    assert_reply(&refused.last, &[425, 426, 500], &[WRONG_PEER, bob]);

    let port = session.passive().unwrap();
    session.send_line("RETR hello.txt").unwrap();
    let mut content = Vec::new();
    site.bob()
        .authenticate(connect_data(port).unwrap(), End::Connector)
        .unwrap()
        .read_to_end(&mut content)
        .unwrap();
    assert_eq!(content, HELLO.1);
    assert_eq!(session.dialogue().unwrap().last.code, 226);
    session.must("DCAU A", 200).unwrap();
    site.session_works(&mut session);
}

#[test]
fn an_unauthenticated_peer_receives_no_data() {
    let site = Site::new(&DATA_TIMEOUT);
    let mut session = site.session();
    for (bytes, word) in [
        (&b"clear bytes, and more of them"[..], "TLS|DCAU"),
        (HALF_A_RECORD, "timed out|time|handshake"),
        (b"", "timed out|time|handshake"),
    ] {
        let port = session.passive().unwrap();
        let mut channel = connect_data(port).unwrap();
        channel.write_all(bytes).unwrap();
        session.send_line("RETR hello.txt").unwrap();
        let refused = session.dialogue().unwrap();
        assert_reply(&refused.last, &[425, 426, 500], &[word]);
        drop(channel);
        site.session_works(&mut session);
    }
    site.logged(&["transfer finished", "last_refusal", "127.0.0.1"]);
}

#[test]
fn a_peer_that_aborts_the_handshake_receives_no_data() {
    let site = Site::new(&DATA_TIMEOUT);
    let mut session = site.session();
    let port = session.passive().unwrap();
    let mut channel = connect_data(port).unwrap();
    channel.write_all(HALF_A_RECORD).unwrap();
    channel.shutdown(Shutdown::Write).unwrap();
    session.send_line("RETR hello.txt").unwrap();
    let refused = session.dialogue().unwrap();
    assert_reply(&refused.last, &[425, 426, 500], &["handshake"]);
    drop(channel);
    site.session_works(&mut session);
}

#[test]
fn a_peer_that_the_server_connects_to_must_authenticate() {
    let site = Site::new(&DATA_TIMEOUT);
    let mut session = site.session();
    for bytes in [&b"clear bytes, and more of them"[..], HALF_A_RECORD, b""] {
        let listener = session.active().unwrap();
        session.send_line("RETR hello.txt").unwrap();
        let mut channel = listener.accept().unwrap();
        channel.write_all(bytes).unwrap();
        let refused = session.dialogue().unwrap();
        assert_reply(&refused.last, &[425, 426, 500], &[]);
        drop(channel);
        site.session_works(&mut session);
    }
}

#[test]
fn other_peers_do_not_block_the_right_one() {
    let site = Site::new(&[]);
    let mut session = site.session();
    let port = session.passive().unwrap();
    let mut strangers: Vec<TcpStream> = (0..12).map(|_| connect_data(port).unwrap()).collect();
    for (stranger, bytes) in strangers
        .iter_mut()
        .zip([&b"clear"[..], HALF_A_RECORD, b""].into_iter().cycle())
    {
        stranger.write_all(bytes).unwrap();
    }
    session.send_line("RETR hello.txt").unwrap();
    // One more peer with a valid identity that is not the expected one.
    closed_without_data(
        site.bob()
            .authenticate(connect_data(port).unwrap(), End::Connector),
    );
    let mut content = Vec::new();
    site.alice()
        .authenticate(connect_data(port).unwrap(), End::Connector)
        .unwrap()
        .read_to_end(&mut content)
        .unwrap();
    assert_eq!(content, HELLO.1);
    assert_eq!(session.dialogue().unwrap().last.code, 226);
    strangers
        .into_iter()
        .for_each(|stranger| closed_without_data(Ok(stranger)));
    site.logged(&["transfer finished", "last_refusal", "result=226"]);
    site.session_works(&mut session);
}

#[test]
fn a_truncated_record_is_an_error_and_earlier_data_stays() {
    let site = Site::new(&DATA_TIMEOUT);
    let mut session = site.session();
    session.must("PBSZ 1048576", 200).unwrap();
    session.must("PROT P", 200).unwrap();
    let content = pattern(40_000);
    for change in [
        // The connection ends in the middle of a record, and in the middle of its header.
        (|record: &mut Vec<u8>| record.truncate(500)) as fn(&mut Vec<u8>),
        |record| record.truncate(3),
        |record| record[100] ^= 1,
        |record| {
            record
                .splice(.., *b"clear bytes, and more of them")
                .for_each(drop)
        },
    ] {
        let port = session.passive().unwrap();
        session.send_line("STOR up").unwrap();
        let mut channel = connect_data(port).unwrap();
        let mut engine = site.alice().connect_privately(&mut channel).unwrap();
        let mut records = Vec::new();
        engine.wrap(&content, &mut records).unwrap();
        channel.write_all(&records).unwrap();
        let mut last = Vec::new();
        engine.wrap(&pattern(1000), &mut last).unwrap();
        change(&mut last);
        channel.write_all(&last).unwrap();
        // The server may have closed the connection by then.
        let _ = channel.shutdown(Shutdown::Write);
        let refused = session.dialogue().unwrap();
        assert_reply(&refused.last, &[426, 500], &["record|TLS|decrypt"]);
        assert!(
            site.fixture.content("up") == content,
            "received data was lost"
        );
    }
    session.must("PROT C", 200).unwrap();
    site.session_works(&mut session);
}

#[test]
fn a_replayed_record_is_an_error() {
    let site = Site::new(&DATA_TIMEOUT);
    let mut session = site.session();
    session.must("PROT P", 200).unwrap();
    let port = session.passive().unwrap();
    session.send_line("STOR up").unwrap();
    let mut channel = connect_data(port).unwrap();
    let mut engine = site.alice().connect_privately(&mut channel).unwrap();
    let content = pattern(1000);
    let mut record = Vec::new();
    engine.wrap(&content, &mut record).unwrap();
    channel.write_all(&record.repeat(2)).unwrap();
    let refused = session.dialogue().unwrap();
    assert_reply(&refused.last, &[426, 500], &["record|TLS|decrypt"]);
    assert!(
        site.fixture.content("up") == content,
        "received data was lost"
    );
    session.must("PROT C", 200).unwrap();
    site.session_works(&mut session);
}
