//! Untrusted peers, and modified bytes.

use std::rc::Rc;

use proptest::prelude::*;

use super::*;

#[test]
fn data_that_is_not_tls_is_answered_by_an_alert() {
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
fn a_peer_without_a_certificate_is_refused() {
    let fixture = Fixture::new();
    let (_, host) = fixture.pair(TlsVersions::From12To13);
    let mut acceptor = TlsEngine::acceptor(&host).expect("sound settings");
    let verifier = config::client(&host, Records::Bulk)
        .expect("sound settings")
        .1;
    let mut config = rustls::ClientConfig::builder_with_provider(provider::provider(Records::Bulk))
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

/// The tokens of a handshake, followed by records with data, by sender.
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
        // A changed length may make a side wait, but the handshake must not complete on both sides. The version of a record is
        // ignored (RFC 8446 5.1) and not part of the transcript.
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
            // The rest of a record that became longer is waited for.
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

/// The settings of all cases of a test.
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
        // Replaying it to another server does not establish a connection.
        let [_, mut acceptor] = engines(&fixture, TlsVersions::Only13);
        let _ = acceptor.advance(&token, &mut Vec::new(), &mut Vec::new());
        assert!(acceptor.peer().is_none());
    }
}
