use std::rc::Rc;

use proptest::prelude::*;

use super::fixtures::{Fixture, credential};
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

/// What an engine has to send after some input.
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

/// What an engine understands of records, and what it answers.
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
                // Keys change now and then.
                let most = (message.len().div_ceil(MAX_FRAGMENT) + 2) * 29;
                assert!(records.len() <= message.len() + most, "records are full");
                let outcome = understood(to.expect("another"), &records).expect("sound");
                assert_eq!(outcome, (message.clone(), Vec::new()));
            }
        }
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
        // Whoever ends the handshake has data behind it, and the end.
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

#[test]
fn what_is_no_tls_is_answered_by_an_alert() {
    let fixture = Fixture::new();
    for garbage in [&b"GET / HTTP/1.1\r\n\r\n"[..], b"SSH-2.0-x\r\n", &[0; 64]] {
        let [_, mut acceptor] = engines(&fixture, TlsVersions::From12To13);
        let (mut output, mut plaintext) = (Vec::new(), Vec::new());
        let result = acceptor.advance(garbage, &mut output, &mut plaintext);
        assert!(result.is_err());
        assert_eq!(output[0], 21);
        let result = acceptor.advance(&[], &mut output, &mut plaintext);
        let error = result.expect_err("it is lost").to_string();
        assert!(error.contains("failed before"), "{error}");
    }
}

#[test]
fn a_stranger_is_refused_with_the_reason_on_both_sides() {
    let fixture = Fixture::new();
    let others = Fixture::new();
    for versions in VERSIONS {
        let (mut user, mut host) = fixture.pair(versions);
        user.credential = others.proxy("Mallory");
        let mut connector = TlsEngine::connector(&user).expect("sound settings");
        let mut acceptor = TlsEngine::acceptor(&host).expect("sound settings");
        let (mut answer, mut plaintext) = (Vec::new(), Vec::new());
        let error = loop {
            let token = output(&mut connector, &answer).expect("the host is trusted");
            answer.clear();
            if let Err(error) = acceptor.advance(&token, &mut answer, &mut plaintext) {
                break error;
            }
        };
        assert!(matches!(error, TlsError::Chain(_)), "{error:?}");
        let error = output(&mut connector, &answer).expect_err("an alert");
        assert!(matches!(error, TlsError::Protocol(_)), "{error:?}");

        host.credential = others.proxy("Mallory");
        user.credential = fixture.proxy("Alice");
        let mut connector = TlsEngine::connector(&user).expect("sound settings");
        let mut acceptor = TlsEngine::acceptor(&host).expect("sound settings");
        let token = output(&mut connector, &[]).expect("a beginning");
        let answer = output(&mut acceptor, &token).expect("it has not seen anything");
        let mut alert = Vec::new();
        let error = connector.advance(&answer, &mut alert, &mut plaintext);
        let error = error.expect_err("it is not trusted");
        assert!(matches!(error, TlsError::Chain(_)), "{error:?}");
        assert_ne!(alert, []);
    }
}

#[test]
fn who_presents_no_certificate_is_refused() {
    let fixture = Fixture::new();
    let (_, host) = fixture.pair(TlsVersions::From12To13);
    let mut acceptor = TlsEngine::acceptor(&host).expect("sound settings");
    let verifier = config::client(&host).expect("sound settings").1;
    let mut config = rustls::ClientConfig::builder_with_provider(provider::provider())
        .with_safe_default_protocol_versions()
        .expect("known versions")
        .dangerous()
        .with_custom_certificate_verifier(verifier)
        .with_no_client_auth();
    config.enable_sni = false;
    let mut client =
        rustls::ClientConnection::new(Arc::new(config), config::no_name()).expect("sound settings");
    let mut result = Ok(());
    for _ in 0..2 {
        let mut token = Vec::new();
        while client.wants_write() {
            client.write_tls(&mut token).expect("a vector takes all");
        }
        let mut answer = Vec::new();
        result = acceptor.advance(&token, &mut answer, &mut Vec::new());
        client.read_tls(&mut answer.as_slice()).expect("it fits");
        let _ = client.process_new_packets();
    }
    let error = result.expect_err("it is nobody").to_string();
    assert!(error.contains("certificate"), "{error}");
}

/// The tokens of a handshake, and records with data behind it, by who sent them.
fn recorded(fixture: &Fixture, versions: TlsVersions) -> Vec<(usize, Vec<u8>)> {
    let mut engines = engines(fixture, versions);
    let mut tokens = Vec::new();
    let mut token = Vec::new();
    for side in [0, 1].into_iter().cycle() {
        token = output(&mut engines[side], &token).expect("sound");
        if token.is_empty() {
            break;
        }
        tokens.push((side, token.clone()));
    }
    let [connector, _] = &mut engines;
    tokens.push((0, wrapped(connector, &message(100))));
    tokens
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn a_changed_handshake_fails_and_never_panics(
        is_tls12 in any::<bool>(),
        which in 0..3_usize,
        position in any::<prop::sample::Index>(),
        bit in 0..8_u8,
    ) {
        let fixture = fixture();
        let versions = VERSIONS[usize::from(!is_tls12)];
        let mut engines = engines(&fixture, versions);
        let mut token = Vec::new();
        let mut failed = false;
        for (number, side) in [0, 1, 0, 1, 0, 1].into_iter().enumerate() {
            let (mut answer, mut plaintext) = (Vec::new(), Vec::new());
            if engines[side].advance(&token, &mut answer, &mut plaintext).is_err() {
                failed = true;
                break;
            }
            if answer.is_empty() {
                break;
            }
            if number == which {
                let position = position.index(answer.len());
                answer[position] ^= 1 << bit;
            }
            token = answer;
        }
        // A changed length may make a side wait; what it must not do is to be done on both sides. The
        // version of a record does not count (RFC 8446 5.1), and is no part of the transcript.
        let both_done = engines.iter().all(|engine| !engine.is_handshaking());
        if both_done && !failed {
            let [one, other] = &mut engines;
            let records = wrapped(one, b"data");
            prop_assert_eq!(understood(other, &records).expect("the same keys").0, b"data");
        }
    }

    #[test]
    fn changed_data_is_refused(
        is_tls12 in any::<bool>(),
        size in 1..40_000_u32,
        position in any::<prop::sample::Index>(),
        bit in 0..8_u8,
    ) {
        let fixture = fixture();
        let [mut one, mut other] = established(&fixture, VERSIONS[usize::from(!is_tls12)]);
        let message = message(size);
        let mut records = wrapped(&mut one, &message);
        let position = position.index(records.len());
        records[position] ^= 1 << bit;
        let (mut output, mut plaintext) = (Vec::new(), Vec::new());
        match other.advance(&records, &mut output, &mut plaintext) {
            // A record that became longer is waited for.
            Ok(()) => prop_assert!(plaintext.len() < message.len()),
            Err(_) => prop_assert!(!output.is_empty(), "an alert"),
        }
        prop_assert!(message.starts_with(&plaintext), "what was opened before is sound");
    }

    #[test]
    fn any_bytes_after_the_handshake_are_refused_or_waited_for(
        is_tls12 in any::<bool>(),
        bytes in prop::collection::vec(any::<u8>(), 0..200),
    ) {
        let fixture = fixture();
        let [_, mut other] = established(&fixture, VERSIONS[usize::from(!is_tls12)]);
        let (mut output, mut plaintext) = (Vec::new(), Vec::new());
        let _ = other.advance(&bytes, &mut output, &mut plaintext);
        prop_assert_eq!(plaintext, []);
    }
}

/// The same for all cases of a test.
fn fixture() -> Rc<Fixture> {
    thread_local! {
        static FIXTURE: Rc<Fixture> = Rc::new(Fixture::new());
    }
    FIXTURE.with(Rc::clone)
}

#[test]
fn a_handshake_that_is_cut_waits_and_says_nothing() {
    let fixture = Fixture::new();
    for versions in VERSIONS {
        let [mut connector, mut acceptor] = engines(&fixture, versions);
        let hello = output(&mut connector, &[]).expect("a beginning");
        let cut = &hello[..hello.len() - 1];
        assert_eq!(output(&mut acceptor, cut).expect("waiting"), []);
        assert!(acceptor.is_handshaking() && acceptor.peer().is_none());
    }
    for (_, token) in recorded(&fixture, TlsVersions::Only13) {
        // Replayed to somebody else, none of it makes a connection.
        let [_, mut acceptor] = engines(&fixture, TlsVersions::Only13);
        let _ = acceptor.advance(&token, &mut Vec::new(), &mut Vec::new());
        assert!(acceptor.peer().is_none());
    }
}

/// A server by rustls alone: another implementation of records, and of key updates.
struct Rustls(rustls::ServerConnection);

impl Rustls {
    /// With an engine that is connected to it.
    fn established(fixture: &Fixture, versions: TlsVersions) -> (Self, TlsEngine) {
        let (user, host) = fixture.pair(versions);
        let (config, _) = config::server(&host).expect("sound settings");
        let mut server = Self(rustls::ServerConnection::new(config).expect("sound settings"));
        let mut engine = TlsEngine::connector(&user).expect("sound settings");
        let mut answer = Vec::new();
        while engine.is_handshaking() || server.0.is_handshaking() {
            let token = output(&mut engine, &answer).expect("sound");
            server.hear(&token, 0);
            answer = server.output();
        }
        assert_eq!(output(&mut engine, &answer).expect("sound"), []);
        (server, engine)
    }

    /// Reads a message of this length.
    fn hear(&mut self, mut records: &[u8], length: usize) -> Vec<u8> {
        use std::io::Read;
        let mut message = vec![0; length];
        let mut heard = 0;
        while !records.is_empty() {
            self.0.read_tls(&mut records).expect("there is room");
            let state = self.0.process_new_packets().expect("sound");
            let end = heard + state.plaintext_bytes_to_read();
            let mut reader = self.0.reader();
            reader.read_exact(&mut message[heard..end]).expect("there");
            heard = end;
        }
        assert_eq!(heard, length);
        message
    }

    fn say(&mut self, message: &[u8]) -> Vec<u8> {
        use std::io::Write;
        self.0.set_buffer_limit(None);
        self.0.writer().write_all(message).expect("no limit");
        self.output()
    }

    fn output(&mut self) -> Vec<u8> {
        let mut output = Vec::new();
        while self.0.wants_write() {
            self.0.write_tls(&mut output).expect("a vector takes all");
        }
        output
    }
}

#[test]
fn our_key_updates_are_understood() {
    let fixture = Fixture::new();
    for versions in VERSIONS {
        let (mut server, mut engine) = Rustls::established(&fixture, versions);
        let message = message(3 << 20);
        let records = wrapped(&mut engine, &message);
        assert_eq!(server.hear(&records, message.len()), message);
    }
}

#[test]
fn key_updates_of_the_peer_are_followed_and_answered() {
    let fixture = Fixture::new();
    let (mut server, mut engine) = Rustls::established(&fixture, TlsVersions::Only13);
    for _ in 0..3 {
        server.0.refresh_traffic_keys().expect("there are keys");
        let mut records = server.output();
        records.extend(server.say(b"with new keys"));
        let (plaintext, answer) = understood(&mut engine, &records).expect("sound");
        assert_eq!(plaintext, b"with new keys");
        server.hear(&answer, 0);
        let records = wrapped(&mut engine, b"with new keys too");
        assert_eq!(server.hear(&records, 17), b"with new keys too");
    }
}

#[test]
fn key_updates_without_end_are_refused() {
    let fixture = Fixture::new();
    let (mut server, mut engine) = Rustls::established(&fixture, TlsVersions::Only13);
    let mut refused = None;
    for number in 0..100 {
        server.0.refresh_traffic_keys().expect("there are keys");
        let records = server.output();
        if let Err(error) = understood(&mut engine, &records) {
            refused = Some((number, error.to_string()));
            break;
        }
    }
    let (number, error) = refused.expect("there is a limit");
    assert!(
        number >= 16 && error.contains("without end"),
        "{number}: {error}"
    );
}
