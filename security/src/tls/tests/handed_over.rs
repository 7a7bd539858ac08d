//! A server's side that is handed over between processes while its client sends.

use super::*;
use crate::tls::{ConnectionKeys, HandedConnection, TlsAcceptance};

/// The same connection in another process.
fn moved(connection: HandedConnection) -> HandedConnection {
    let keys = connection.hand_over().expect("it is open");
    let bytes = postcard::to_stdvec(&keys).expect("encoded");
    let keys = postcard::from_bytes(&bytes).expect("decoded");
    HandedConnection::new(keys).expect("sound keys")
}

/// A client, and the server's side after the handshake. `message` directly follows the client's last handshake message, in
/// pieces of this length; the bytes that the server's side has not processed are returned.
fn accepted(
    fixture: &Fixture,
    versions: TlsVersions,
    message: &[u8],
    piece: usize,
) -> (TlsEngine, HandedConnection, Vec<u8>) {
    let (user, host) = fixture.pair(versions);
    let (config, _) = config::server(&host, Records::Tokens).expect("sound settings");
    let mut acceptance = TlsAcceptance::new(config).expect("sound settings");
    let mut client = TlsEngine::connector(&user).expect("sound settings");
    let mut answer = Vec::new();
    while acceptance.is_handshaking() {
        let mut token = output(&mut client, &answer).expect("sound");
        if !client.is_handshaking() {
            token.extend(wrapped(&mut client, message));
        }
        answer.clear();
        for piece in token.chunks(piece) {
            acceptance.advance(piece, &mut answer).expect("sound");
        }
    }
    let mut rest = Vec::new();
    if client.is_handshaking() {
        // TLS 1.2: the server sends the last handshake message.
        assert_eq!(output(&mut client, &answer).expect("sound"), []);
        rest = wrapped(&mut client, message);
    }
    let (connection, behind) = acceptance.finish().expect("the handshake is over");
    (client, connection, [behind, rest].concat())
}

#[test]
fn data_directly_after_the_handshake_is_kept() {
    let fixture = Fixture::new();
    for versions in VERSIONS {
        for piece in [1, 7, 100_000] {
            let (client, mut connection, rest) = accepted(&fixture, versions, b"USER x\r\n", piece);
            assert_eq!(connection.description(), client.description());
            let mut plaintext = Vec::new();
            connection
                .advance(&rest, &mut Vec::new(), &mut plaintext)
                .expect("sound");
            assert_eq!(plaintext, b"USER x\r\n", "{versions:?}, {piece}");
        }
    }
}

#[test]
fn a_connection_goes_on_in_another_process_at_any_byte_and_with_changed_keys() {
    let fixture = Fixture::new();
    for versions in VERSIONS {
        let (mut client, mut connection, rest) = accepted(&fixture, versions, b"", 1000);
        assert_eq!(rest, []);
        // In tests the engine updates its keys every 50 records.
        for number in 0..120_usize {
            let message = format!("command {number}");
            let records = wrapped(&mut client, message.as_bytes());
            let (first, second) = records.split_at(number * 7 % records.len());
            let (mut answer, mut plaintext) = (Vec::new(), Vec::new());
            connection
                .advance(first, &mut answer, &mut plaintext)
                .expect("sound");
            connection = moved(connection);
            connection
                .advance(second, &mut answer, &mut plaintext)
                .expect("sound");
            assert_eq!(plaintext, message.as_bytes());
            connection.wrap(b"reply", &mut answer).expect("it is open");
            connection = moved(connection);
            assert_eq!(understood(&mut client, &answer).expect("sound").0, b"reply");
        }
        let mut end = Vec::new();
        client.close(&mut end);
        connection
            .advance(&end, &mut Vec::new(), &mut Vec::new())
            .expect("sound");
        assert!(moved(connection).is_closed_by_peer());
    }
}

#[test]
fn garbage_ends_the_handshake_at_once() {
    let fixture = Fixture::new();
    let (_, host) = fixture.pair(TlsVersions::From12To13);
    for garbage in [
        &b"NOOP\r\n"[..],
        &[22, 3, 1, 0xff, 0xff],
        &[23, 3, 3, 0, 1, 0],
    ] {
        let (config, _) = config::server(&host, Records::Tokens).expect("sound settings");
        let mut acceptance = TlsAcceptance::new(config).expect("sound settings");
        let mut alert = Vec::new();
        acceptance.advance(garbage, &mut alert).expect_err("no TLS");
        assert_eq!(alert.first(), Some(&21), "{garbage:?}");
    }
}

#[test]
fn an_open_handshake_and_a_closed_connection_are_not_handed_over() {
    let fixture = Fixture::new();
    let (_, host) = fixture.pair(TlsVersions::From12To13);
    let (config, _) = config::server(&host, Records::Tokens).expect("sound settings");
    let acceptance = TlsAcceptance::new(config).expect("sound settings");
    acceptance.finish().expect_err("it is not over");
    let (_, mut connection, _) = accepted(&fixture, TlsVersions::Only13, b"", 1000);
    connection.close(&mut Vec::new());
    connection.hand_over().expect_err("it is closed");
}

#[test]
fn complete_records_in_handed_over_keys_are_refused() {
    let fixture = Fixture::new();
    for (record, message) in [
        (vec![23, 3, 3, 0, 1, 0], vec![]),
        (vec![23, 3, 3, 0xff, 0xff], vec![]),
        (vec![], vec![0; 1 << 17]),
    ] {
        let (_, connection, _) = accepted(&fixture, TlsVersions::Only13, b"", 1000);
        let mut keys: ConnectionKeys = connection.hand_over().expect("it is open");
        keys.partial.record = record;
        keys.partial.message = message;
        HandedConnection::new(keys).expect_err("it is no part");
    }
}
