mod handed_over;
mod hostile;
mod key_updates;
mod released_keys;

use super::fixtures::{Fixture, credential};
use super::provider::Records;
use super::*;
use crate::test_pki::{FULL, Request, USER};

const VERSIONS: [TlsVersions; 2] = [TlsVersions::Only12, TlsVersions::Only13];

fn engines(fixture: &Fixture, versions: TlsVersions) -> [TlsEngine; 2] {
    let (user, host) = fixture.pair(versions);
    [
        TlsEngine::connector(&user).expect("sound settings"),
        TlsEngine::acceptor(&host).expect("sound settings"),
    ]
}

/// The output of an engine for some input.
fn output(engine: &mut TlsEngine, input: &[u8]) -> Result<Vec<u8>, TlsError> {
    let (mut output, mut plaintext) = (Vec::new(), Vec::new());
    engine.advance(input, &mut output, &mut plaintext)?;
    assert_eq!(plaintext, [], "nobody has said anything");
    Ok(output)
}

fn established(fixture: &Fixture, versions: TlsVersions) -> [TlsEngine; 2] {
    let [mut connector, mut acceptor] = engines(fixture, versions);
    let mut answer = Vec::new();
    while connector.is_handshaking() || acceptor.is_handshaking() {
        let token = output(&mut connector, &answer).expect("sound");
        answer = output(&mut acceptor, &token).expect("sound");
    }
    assert_eq!(output(&mut connector, &answer).expect("sound"), []);
    [connector, acceptor]
}

fn wrapped(engine: &mut TlsEngine, message: &[u8]) -> Vec<u8> {
    let mut records = Vec::new();
    engine.wrap(message, &mut records).expect("there are keys");
    records
}

/// The data that an engine receives in records, and its output.
fn understood(engine: &mut TlsEngine, records: &[u8]) -> Result<(Vec<u8>, Vec<u8>), TlsError> {
    let (mut output, mut plaintext) = (Vec::new(), Vec::new());
    engine.advance(records, &mut output, &mut plaintext)?;
    Ok((plaintext, output))
}

fn message(size: u32) -> Vec<u8> {
    (0..size)
        .map(|number| number.wrapping_mul(2_654_435_761).to_be_bytes()[0])
        .collect()
}

#[test]
fn data_goes_both_ways_in_full_records() {
    let fixture = Fixture::new();
    for versions in VERSIONS {
        let [mut one, mut other] = established(&fixture, versions);
        assert_eq!(one.description(), other.description());
        let peer = other.peer().expect("it is known");
        assert_eq!(peer.identity.one_line(), "/DC=test/CN=Alice Smith 12345");
        for size in [0, 1, 16384, 16385, 1 << 20] {
            let message = message(size);
            for [from, to] in [[0, 1], [1, 0]] {
                let engines = [&mut one, &mut other];
                let mut engines = engines.map(Some);
                let (from, to) = (engines[from].take(), engines[to].take());
                let records = wrapped(from.expect("another"), &message);
                // Some records follow a key update.
                let most = (message.len().div_ceil(MAX_FRAGMENT) + 2) * 29;
                assert!(records.len() <= message.len() + most, "records are full");
                let outcome = understood(to.expect("another"), &records).expect("sound");
                assert_eq!(outcome, (message.clone(), Vec::new()));
            }
        }
    }
}

#[test]
fn our_ends_agree_on_the_cheaper_cipher_and_others_on_what_they_like_best() {
    let fixture = Fixture::new();
    for versions in VERSIONS {
        let [connector, _] = established(&fixture, versions);
        let description = connector.description();
        assert!(description.contains("AES_128_GCM"), "{description}");

        // A client with the preferences of OpenSSL.
        let (user, host) = fixture.pair(versions);
        let mut client = Connection::connector(&user).expect("sound settings");
        let mut acceptor = TlsEngine::acceptor(&host).expect("sound settings");
        let mut answer = Vec::new();
        while acceptor.is_handshaking() {
            let mut token = Vec::new();
            client
                .advance(&answer, &mut token, &mut Vec::new())
                .expect("sound");
            answer = output(&mut acceptor, &token).expect("sound");
        }
        let description = acceptor.description();
        assert!(description.contains("AES_256_GCM"), "{description}");
    }
}

#[test]
fn records_go_into_a_buffer_that_was_used_before() {
    let fixture = Fixture::new();
    for versions in VERSIONS {
        let [mut one, mut other] = established(&fixture, versions);
        for size in [0, 1, 16385, 1 << 20] {
            let message = message(size);
            let mut records = vec![0xa5; wrapped_length(message.len())];
            let length = one.wrap_into(&message, &mut records).expect("room");
            let outcome = understood(&mut other, &records[..length]).expect("sound");
            assert_eq!(outcome, (message, Vec::new()));
        }
        let mut small = [0; 20];
        let error = one.wrap_into(b"more", &mut small).expect_err("no room");
        assert!(error.to_string().contains("no room"), "{error}");
    }
}

#[test]
fn keys_of_each_kind_make_connections() {
    let fixture = Fixture::new();
    for key in [
        &["rsa:2048"][..],
        &["ec", "-pkeyopt", "ec_paramgen_curve:P-384"],
        &["ec", "-pkeyopt", "ec_paramgen_curve:P-521"],
        &["ed25519"],
    ] {
        let request = Request {
            subject: "/DC=test/CN=Alice",
            extensions: USER,
            key,
            ..Request::default()
        };
        let user = fixture.pki.make(&request, Some(&fixture.root));
        let proxy = fixture.pki.proxy(&user, FULL);
        for chain in [&[&user][..], &[&proxy, &user]] {
            for versions in VERSIONS {
                let mut settings = fixture.settings(&credential(chain));
                settings.versions = versions;
                let mut connector = TlsEngine::connector(&settings).expect("sound settings");
                let mut acceptor = TlsEngine::acceptor(&settings).expect("sound settings");
                let mut answer = Vec::new();
                while acceptor.is_handshaking() {
                    let token = output(&mut connector, &answer).expect("sound");
                    answer = output(&mut acceptor, &token).expect("sound");
                }
            }
        }
    }
}

#[test]
fn a_record_is_opened_where_it_stands() {
    let fixture = Fixture::new();
    for versions in VERSIONS {
        let [mut one, mut other] = established(&fixture, versions);
        let message = message(1000);
        let mut output = Vec::new();
        let mut record = wrapped(&mut one, &message);
        let place = other
            .open_in_place(&mut record, &mut output)
            .expect("sound");
        assert_eq!(record[place], message);

        let mut record = Vec::new();
        one.close(&mut record);
        let place = other
            .open_in_place(&mut record, &mut output)
            .expect("sound");
        assert!(place.is_empty() && other.is_closed_by_peer());
        assert_eq!(output, []);
        let error = other.open_in_place(&mut [23, 3, 3, 0, 0], &mut output);
        assert!(error.is_err(), "it is too short");
    }
}

#[test]
fn handshakes_and_data_may_come_in_pieces() {
    let fixture = Fixture::new();
    for versions in VERSIONS {
        let [mut connector, mut acceptor] = engines(&fixture, versions);
        let mut answer = Vec::new();
        let in_pieces = |engine: &mut TlsEngine, input: &[u8]| -> Vec<u8> {
            input
                .iter()
                .flat_map(|byte| output(engine, &[*byte]).expect("sound"))
                .collect()
        };
        let hello = output(&mut connector, &[]).expect("sound");
        answer.extend(in_pieces(&mut acceptor, &hello));
        while connector.is_handshaking() || acceptor.is_handshaking() {
            let token = in_pieces(&mut connector, &answer);
            answer = in_pieces(&mut acceptor, &token);
        }
        let message = message(20_000);
        let records = wrapped(&mut connector, &message);
        let mut plaintext = Vec::new();
        for piece in records.chunks(7) {
            plaintext.extend(understood(&mut acceptor, piece).expect("sound").0);
        }
        assert_eq!(plaintext, message);
    }
}

#[test]
fn data_may_follow_the_handshake_at_once() {
    let fixture = Fixture::new();
    for versions in VERSIONS {
        let [mut connector, mut acceptor] = engines(&fixture, versions);
        let mut token = Vec::new();
        // The side that completes the handshake sends data and a close_notify directly after it.
        let (mut last, mut first) = loop {
            let hello = output(&mut connector, &token).expect("sound");
            if !connector.is_handshaking() {
                token = hello;
                break (connector, acceptor);
            }
            token = output(&mut acceptor, &hello).expect("sound");
            if !acceptor.is_handshaking() {
                break (acceptor, connector);
            }
        };
        let message = message(50_000);
        last.wrap(&message, &mut token).expect("there are keys");
        last.close(&mut token);
        let (plaintext, answer) = understood(&mut first, &token).expect("sound");
        assert_eq!(plaintext, message);
        assert_eq!(answer, []);
        assert!(first.is_closed_by_peer() && !first.is_handshaking());
    }
}

#[test]
fn after_a_close_notify_nothing_counts_and_nothing_is_sent() {
    let fixture = Fixture::new();
    for versions in VERSIONS {
        let [mut one, mut other] = established(&fixture, versions);
        let mut records = wrapped(&mut one, b"last");
        one.close(&mut records);
        let length = records.len();
        one.close(&mut records);
        assert_eq!(records.len(), length, "once is enough");
        assert!(one.wrap(b"more", &mut Vec::new()).is_err());
        records.extend(b"whatever");
        let (plaintext, _) = understood(&mut other, &records).expect("sound");
        assert_eq!(plaintext, b"last");
        assert!(other.is_closed_by_peer() && !one.is_closed_by_peer());
        // The other direction is still open.
        let records = wrapped(&mut other, b"answer");
        assert_eq!(understood(&mut one, &records).expect("sound").0, b"answer");
    }
}
