use std::sync::Arc;
use std::time::SystemTime;

use super::handshake::{MAX_TOKENS, State};
use super::integrity::{IntegrityKeys, IntegritySecrets};
use super::*;
use crate::certificate::Certificate;
use crate::credential::Credential;
use crate::delegation::{self, DelegationError, DelegationKeys};
use crate::key::{KeyError, PrivateKey};
use crate::proxy::ProxyPolicy;
use crate::test_pki::FULL;
use crate::tls::fixtures::{Fixture, credential, trust};
use crate::tls::{TlsError, TlsSettings, TlsVersions, record_length};

const VERSIONS: [TlsVersions; 2] = [TlsVersions::Only12, TlsVersions::Only13];

/// Generates EC keys, which is fast.
#[derive(Debug)]
struct Keys;

impl DelegationKeys for Keys {
    fn take(&self) -> Result<PrivateKey, KeyError> {
        PrivateKey::generate_ec()
    }
}

fn initiator(settings: &TlsSettings, delegate: bool) -> Context {
    Context::initiator(settings, delegate).expect("sound settings")
}

fn acceptor(settings: &TlsSettings) -> Context {
    Context::acceptor(settings, Arc::new(Keys)).expect("sound settings")
}

fn data_acceptor(settings: &TlsSettings) -> Context {
    Context::data_acceptor(settings).expect("sound settings")
}

/// The next token of a context, and whether it is the last.
fn next(context: &mut Context, token: &[u8]) -> Result<(Vec<u8>, bool), ContextError> {
    Ok(match context.step(token, &mut Vec::new())? {
        Step::Continue(token) => (token, false),
        Step::Done(token) => (token, true),
    })
}

/// Completes two contexts, and returns the number of tokens.
fn establish(initiator: &mut Context, acceptor: &mut Context) -> Result<usize, ContextError> {
    let mut tokens = 0;
    let mut answer = Vec::new();
    loop {
        let (token, initiator_done) = next(initiator, &answer)?;
        tokens += 1;
        let acceptor_done;
        (answer, acceptor_done) = next(acceptor, &token)?;
        if answer.is_empty() {
            assert!(
                initiator_done && acceptor_done,
                "nobody has anything to say"
            );
            return Ok(tokens);
        }
        tokens += 1;
    }
}

/// Both sides of a complete login.
fn login(fixture: &Fixture, versions: TlsVersions, delegate: bool) -> [Context; 2] {
    let (user, host) = fixture.pair(versions);
    let mut sides = [initiator(&user, delegate), acceptor(&host)];
    let [initiator, acceptor] = &mut sides;
    let tokens = establish(initiator, acceptor).expect("both are who they are");
    assert_eq!(tokens, if delegate { 7 } else { 5 }, "{versions:?}");
    sides
}

/// A login up to the certification request.
fn requested(user: &TlsSettings, host: &TlsSettings) -> ([Context; 2], Vec<u8>) {
    let mut sides = [initiator(user, true), acceptor(host)];
    let mut token = Vec::new();
    for _ in 0..3 {
        for side in &mut sides {
            (token, _) = next(side, &token).expect("sound");
        }
    }
    assert!(matches!(sides[1].state, State::Proxy(_)));
    let mut request = Vec::new();
    let tls = &mut sides[0].tls;
    tls.advance(&token, &mut Vec::new(), &mut request)
        .expect("sound");
    (sides, request)
}

/// The acceptor's result for a message in place of the proxy.
fn delegated(
    [initiator, acceptor]: &mut [Context; 2],
    message: &[u8],
) -> Result<Credential, ContextError> {
    let mut token = Vec::new();
    initiator.tls.wrap(message, &mut token).expect("complete");
    let step = acceptor.step(&token, &mut Vec::new());
    assert_eq!(step.expect("the login goes on"), Step::Done(Vec::new()));
    acceptor.take_delegated().expect("it was tried")
}

fn limited(issuer: &Credential, request: &[u8]) -> Certificate {
    delegation::sign(issuer, request, ProxyPolicy::Limited, SystemTime::now()).expect("signed")
}

#[test]
fn a_login_without_delegation() {
    let fixture = Fixture::new();
    for versions in VERSIONS {
        let [mut initiator, mut acceptor] = login(&fixture, versions, false);
        assert!(acceptor.take_delegated().is_none());
        let peer = acceptor.peer().expect("it is known");
        assert_eq!(peer.identity.one_line(), "/DC=test/CN=Alice Smith 12345");
        assert!(peer.limited);
        let peer = initiator.peer().expect("it is known");
        assert_eq!(peer.identity.one_line(), "/DC=test/CN=server.test");

        for size in [0, 1, 5, 16384, 16385, 100_000] {
            let message: Vec<u8> = (0..size).map(|n: u32| n.to_le_bytes()[0]).collect();
            let token = initiator.wrap(&message).expect("complete");
            assert_eq!(acceptor.unwrap(&token).expect("sound"), message);
            let token = acceptor.wrap(&message).expect("complete");
            assert_eq!(initiator.unwrap(&token).expect("sound"), message);
        }
    }
}

#[test]
fn delegated_credentials_work_on_data_channels() {
    let fixture = Fixture::new();
    for versions in VERSIONS {
        let [_, mut acceptor] = login(&fixture, versions, true);
        let delegated = acceptor.take_delegated().expect("it was delegated");
        let delegated = delegated.expect("it is valid");
        let proxy = delegated.leaf().proxy().expect("it is a proxy");
        assert_eq!(proxy.policy, ProxyPolicy::Limited);

        let mut ours = fixture.settings(&Arc::new(delegated));
        ours.versions = versions;
        let (user, _) = fixture.pair(versions);
        for (connector, listener) in [(&ours, &user), (&user, &ours)] {
            let mut sides = [initiator(connector, false), data_acceptor(listener)];
            let [initiator, acceptor] = &mut sides;
            assert_eq!(establish(initiator, acceptor).expect("the same user"), 5);
            for side in sides {
                let peer = side.peer().expect("it is known");
                assert_eq!(peer.identity.one_line(), "/DC=test/CN=Alice Smith 12345");
            }
        }
    }
}

#[test]
fn the_description_names_version_and_suite() {
    let fixture = Fixture::new();
    for (versions, description) in VERSIONS.into_iter().zip([
        "TLS 1.2, TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384",
        "TLS 1.3, TLS13_AES_256_GCM_SHA384",
    ]) {
        for side in login(&fixture, versions, false) {
            assert_eq!(side.description(), description);
        }
    }
}

#[test]
fn a_data_channel_takes_one_record_at_a_time_and_none_too_many() {
    let fixture = Fixture::new();
    for versions in VERSIONS {
        let (user, host) = fixture.pair(versions);
        let mut sides = [initiator(&user, false), data_acceptor(&host)];
        let (mut token, _) = next(&mut sides[0], &[]).expect("a beginning");
        let mut done = [false; 2];
        for side in [1, 0].into_iter().cycle() {
            let mut answer = Vec::new();
            let mut rest = token.as_slice();
            while let Some(length) = record_length(rest) {
                assert!(!done[side], "a record comes after the end");
                let (record, following) = rest.split_at(length);
                let (piece, is_done) = next(&mut sides[side], record).expect("sound");
                answer.extend(piece);
                done[side] = is_done;
                rest = following;
            }
            token = answer;
            if token.is_empty() {
                break;
            }
        }
        // The initiator's context is complete when it has sent the flag.
        assert!(matches!(sides[0].state, State::Complete), "{versions:?}");
        assert!(matches!(sides[1].state, State::Complete), "{versions:?}");
    }
}

#[test]
fn a_data_channel_refuses_a_delegation() {
    let fixture = Fixture::new();
    let (user, host) = fixture.pair(TlsVersions::From12To13);
    let error = establish(&mut initiator(&user, true), &mut data_acceptor(&host));
    let error = error.expect_err("it fails").to_string();
    assert!(error.contains("on a data channel"), "{error}");
}

#[test]
fn a_delegation_beyond_the_path_length_is_no_failure_of_the_login() {
    let fixture = Fixture::new();
    let user = fixture.user("Alice");
    let proxy = fixture.pki.proxy(
        &user,
        "proxyCertInfo=critical,language:id-ppl-inheritAll,pathlen:0",
    );
    let settings = fixture.settings(&credential(&[&proxy, &user]));
    let (_, host) = fixture.pair(TlsVersions::Only13);
    let (mut sides, request) = requested(&settings, &host);

    // The initiator of this crate refuses to sign, so this test signs without the check.
    let refusal = delegation::sign(
        &settings.credential,
        &request,
        ProxyPolicy::Limited,
        SystemTime::now(),
    );
    assert!(matches!(refusal, Err(DelegationError::Issuer { .. })));
    let careless = fixture.pki.issue(
        &proxy,
        &format!("{}/CN=7", proxy.subject),
        &format!("keyUsage=critical,digitalSignature\n{FULL}"),
    );
    assert!(delegated(&mut sides, careless.certificate.der()).is_err());
}

#[test]
fn a_delegation_by_another_credential_of_the_user_is_not_used() {
    let fixture = Fixture::new();
    let user = fixture.user("Alice");
    let [one, other] = [(); 2].map(|()| {
        let proxy = fixture.pki.proxy(&user, FULL);
        credential(&[&proxy, &user])
    });
    let (_, host) = fixture.pair(TlsVersions::Only13);
    let (mut sides, request) = requested(&fixture.settings(&one), &host);
    assert!(delegated(&mut sides, limited(&other, &request).der()).is_err());
    let (mut sides, request) = requested(&fixture.settings(&one), &host);
    assert!(delegated(&mut sides, limited(&one, &request).der()).is_ok());
}

#[test]
fn a_delegation_for_another_key_is_not_used() {
    let fixture = Fixture::new();
    let (user, host) = fixture.pair(TlsVersions::Only13);
    let (mut sides, _) = requested(&user, &host);
    let key = PrivateKey::generate_ec().expect("a key");
    let request = delegation::request(&key).expect("a request");
    let outcome = delegated(&mut sides, limited(&user.credential, &request).der());
    assert!(matches!(outcome, Err(ContextError::Credential(_))));
}

#[test]
fn a_delegation_that_is_no_certificate_is_not_used() {
    let fixture = Fixture::new();
    let (user, host) = fixture.pair(TlsVersions::Only13);
    for message in [&b"garbage"[..], &[0x30, 0x82, 0xff, 0xff], &[0x30, 0]] {
        let (mut sides, _) = requested(&user, &host);
        let outcome = delegated(&mut sides, message);
        assert!(matches!(outcome, Err(ContextError::Certificate(_))));
    }
}

#[test]
fn data_after_the_delegated_certificate_is_ignored() {
    let fixture = Fixture::new();
    let (user, host) = fixture.pair(TlsVersions::Only13);
    let (mut sides, request) = requested(&user, &host);
    let proxy = limited(&user.credential, &request);
    let message = [proxy.der(), user.credential.leaf().der(), b"more"].concat();
    let credential = delegated(&mut sides, &message).expect("the first one counts");
    assert_eq!(credential.leaf(), &proxy);
}

#[test]
fn tokens_that_are_repeated_missing_or_changed_are_refused() {
    let fixture = Fixture::new();
    for versions in VERSIONS {
        let [mut initiator, mut acceptor] = login(&fixture, versions, false);
        let first = initiator.wrap(b"one").expect("complete");
        acceptor.unwrap(&first).expect("the first");
        acceptor.unwrap(&first).expect_err("it was repeated");
        let second = initiator.wrap(b"two").expect("complete");
        let error = acceptor.unwrap(&second).expect_err("it is lost");
        assert_eq!(error.to_string(), "the context has failed before");

        let [mut initiator, mut acceptor] = login(&fixture, versions, false);
        initiator.wrap(b"one").expect("complete");
        let second = initiator.wrap(b"two").expect("complete");
        acceptor.unwrap(&second).expect_err("one is missing");

        let [mut initiator, mut acceptor] = login(&fixture, versions, false);
        let mut token = initiator.wrap(b"one").expect("complete");
        *token.last_mut().expect("not empty") ^= 1;
        acceptor.unwrap(&token).expect_err("it was changed");
    }
}

#[test]
fn a_token_is_whole_records() {
    let fixture = Fixture::new();
    let [mut initiator, mut acceptor] = login(&fixture, TlsVersions::Only13, false);
    let mut token = initiator.wrap(&[7; 40_000]).expect("complete");
    token.pop();
    let error = acceptor.unwrap(&token).expect_err("it is cut").to_string();
    assert!(error.contains("in the middle"), "{error}");
}

#[test]
fn long_tokens_and_many_tokens_are_refused() {
    let fixture = Fixture::new();
    let (_, host) = fixture.pair(TlsVersions::Only13);
    let token = [23, 3, 3, 0, 0].repeat(MAX_TOKEN / 5 + 1);
    let error = next(&mut acceptor(&host), &token).expect_err("it is too long");
    assert_eq!(error.to_string(), "a token is too long");

    let mut acceptor = acceptor(&host);
    for _ in 0..MAX_TOKENS {
        assert_eq!(next(&mut acceptor, &[]).expect("waiting").0, []);
    }
    next(&mut acceptor, &[]).expect_err("they are too many");
}

#[test]
fn a_context_is_not_used_before_it_is_complete() {
    let fixture = Fixture::new();
    let (user, _) = fixture.pair(TlsVersions::Only13);
    let mut context = initiator(&user, false);
    context.wrap(b"early").expect_err("there are no keys");
    context.unwrap(b"early").expect_err("there are no keys");
    assert!(context.peer().is_none());
}

#[test]
fn an_untrusted_peer_gets_an_alert() {
    let fixture = Fixture::new();
    for versions in VERSIONS {
        let (mut user, host) = fixture.pair(versions);
        user.credential = Fixture::new().proxy("Mallory");
        let [mut initiator, mut acceptor] = [initiator(&user, false), acceptor(&host)];
        let (mut alert, mut answer) = (Vec::new(), Vec::new());
        let error = loop {
            let (token, _) = next(&mut initiator, &answer).expect("the host is trusted");
            match acceptor.step(&token, &mut alert) {
                Ok(Step::Continue(token)) => answer = token,
                Ok(Step::Done(_)) => panic!("Mallory is in"),
                Err(error) => break error,
            }
        };
        assert!(matches!(error, ContextError::Tls(TlsError::Chain(_))));
        let told = next(&mut initiator, &alert).expect_err("an alert");
        assert!(told.to_string().contains("alert"), "{told}");
        next(&mut acceptor, &[]).expect_err("it has failed");
    }
}

#[test]
fn an_acceptor_that_is_not_trusted_is_refused() {
    let fixture = Fixture::new();
    let (mut user, host) = fixture.pair(TlsVersions::From12To13);
    user.trust = trust(&Fixture::new().root);
    let error = establish(&mut initiator(&user, false), &mut acceptor(&host));
    let error = error.expect_err("it fails");
    assert!(matches!(error, ContextError::Tls(TlsError::Chain(_))));
}

#[test]
fn a_version_that_only_one_side_has_is_refused() {
    let fixture = Fixture::new();
    let (user, mut host) = fixture.pair(TlsVersions::Only12);
    host.versions = TlsVersions::Only13;
    establish(&mut initiator(&user, false), &mut acceptor(&host)).expect_err("nothing in common");
}

fn integrity_keys(context: &Context) -> IntegrityKeys {
    let secrets = IntegritySecrets::new(&context.tls).expect("established");
    IntegrityKeys::new(secrets.as_ref(), 0).expect("AES-GCM")
}

/// The protection of messages after a login, whose keys were serialized as for another process.
fn handed_over(acceptor: Context) -> MessageProtection {
    let established = acceptor.into_established().expect("complete");
    let bytes = postcard::to_stdvec(&established.keys).expect("encoded");
    let keys = postcard::from_bytes(&bytes).expect("decoded");
    MessageProtection::new(keys).expect("sound keys")
}

#[test]
fn another_process_goes_on_with_the_keys() {
    let fixture = Fixture::new();
    for versions in VERSIONS {
        for delegate in [false, true] {
            let [mut initiator, acceptor] = login(&fixture, versions, delegate);
            let description = initiator.description();
            let identity = acceptor.peer().expect("known").identity.clone();
            let established = acceptor.into_established().expect("complete");
            assert_eq!(established.peer.identity, identity);
            assert_eq!(established.delegated.is_some(), delegate);
            assert_eq!(established.keys.description(), description);
            let mut protection = MessageProtection::new(established.keys).expect("sound keys");
            for number in 0..3 {
                let message = format!("message {number}");
                let token = initiator.wrap(message.as_bytes()).expect("wrapped");
                let opened = protection.unwrap(&token).expect("the next one");
                assert_eq!(opened, message.as_bytes());
                let reply = protection.wrap(b"632 reply").expect("wrapped");
                assert_eq!(initiator.unwrap(&reply).expect("opened"), b"632 reply");
            }
            let sealed = integrity_keys(&initiator).seal(0, b"last");
            assert_eq!(protection.unwrap(&sealed).expect("the first one"), b"last");
            protection.unwrap(&sealed).expect_err("it was repeated");
            protection.wrap(b"x").expect_err("the context is lost");
        }
    }
}

#[test]
fn the_peer_may_change_its_keys_after_they_were_handed_over() {
    let fixture = Fixture::new();
    let [mut initiator, acceptor] = login(&fixture, TlsVersions::Only13, false);
    let mut protection = handed_over(acceptor);
    for _ in 0..3 {
        let mut update = Vec::new();
        initiator.tls.change_keys(&mut update);
        assert_eq!(protection.unwrap(&update).expect("a key update"), b"");
        let token = initiator.wrap(b"after it").expect("wrapped");
        assert_eq!(protection.unwrap(&token).expect("opened"), b"after it");
        let reply = protection.wrap(b"reply").expect("wrapped");
        assert_eq!(initiator.unwrap(&reply).expect("opened"), b"reply");
    }
}

#[test]
fn protection_goes_on_in_another_process_at_any_message() {
    let fixture = Fixture::new();
    for versions in VERSIONS {
        let [mut initiator, acceptor] = login(&fixture, versions, false);
        let seal = integrity_keys(&initiator);
        let mut protection = handed_over(acceptor);
        for number in 0..4 {
            if versions == TlsVersions::Only13 {
                // The answer is sent with the next message.
                let mut update = Vec::new();
                initiator.tls.change_keys(&mut update);
                assert_eq!(protection.unwrap(&update).expect("a key update"), b"");
            }
            let token = initiator.wrap(b"sealed").expect("wrapped");
            assert_eq!(protection.unwrap(&token).expect("the next one"), b"sealed");
            let token = seal.seal(number, b"signed");
            assert_eq!(protection.unwrap(&token).expect("the next one"), b"signed");
            let keys = protection.hand_over().expect("it goes on");
            let bytes = postcard::to_stdvec(&keys).expect("encoded");
            let keys = postcard::from_bytes(&bytes).expect("decoded");
            protection = MessageProtection::new(keys).expect("sound keys");
            let reply = protection.wrap(b"reply").expect("wrapped");
            assert_eq!(initiator.unwrap(&reply).expect("opened"), b"reply");
        }
        protection
            .unwrap(&seal.seal(3, b"signed"))
            .expect_err("it was repeated");
        protection.hand_over().expect_err("the context is lost");
    }
}

#[test]
fn keys_that_the_peer_changed_before_are_handed_over_as_they_are() {
    let fixture = Fixture::new();
    let [mut initiator, mut acceptor] = login(&fixture, TlsVersions::Only13, false);
    let mut update = Vec::new();
    initiator.tls.change_keys(&mut update);
    acceptor.unwrap(&update).expect("a key update");
    // The acceptor answers with a key update of its own, which is sent with its next message.
    let answer = acceptor.wrap(b"first").expect("wrapped");
    assert_eq!(initiator.unwrap(&answer).expect("opened"), b"first");
    let mut protection = handed_over(acceptor);
    update.clear();
    initiator.tls.change_keys(&mut update);
    protection.unwrap(&update).expect("a key update");
    let token = initiator.wrap(b"after it").expect("wrapped");
    assert_eq!(protection.unwrap(&token).expect("opened"), b"after it");
    let reply = protection.wrap(b"reply").expect("wrapped");
    assert_eq!(initiator.unwrap(&reply).expect("opened"), b"reply");
}

#[test]
fn an_incomplete_context_is_not_handed_over() {
    let fixture = Fixture::new();
    let (_, host) = fixture.pair(TlsVersions::Only13);
    acceptor(&host).into_established().expect_err("no peer yet");
}

#[test]
fn integrity_only_tokens_are_taken_in_order() {
    let fixture = Fixture::new();
    for versions in VERSIONS {
        let [initiator, mut acceptor] = login(&fixture, versions, false);
        let keys = || integrity_keys(&initiator);
        let token = |sequence, message: &[u8]| keys().seal(sequence, message);
        for sequence in 0..3 {
            let message = format!("message {sequence}");
            let token = token(sequence, message.as_bytes());
            let opened = acceptor.unwrap(&token).expect("the next one");
            assert_eq!(opened, message.as_bytes());
        }
        assert_eq!(acceptor.unwrap(&token(3, b"")).expect("the next one"), b"");
        let error = acceptor
            .unwrap(&token(3, b""))
            .expect_err("it was repeated");
        assert!(error.to_string().contains("next one"), "{error}");
    }
}

#[test]
fn integrity_only_tokens_that_are_changed_or_cut_are_refused() {
    let fixture = Fixture::new();
    let [initiator, acceptor] = login(&fixture, TlsVersions::Only13, false);
    let keys = || integrity_keys(&acceptor);
    let token = integrity_keys(&initiator).seal(0, b"message");
    keys().open(&token).expect("as it was made");
    for length in 0..token.len() {
        assert!(keys().open(&token[..length]).is_err(), "{length} bytes");
    }
    for position in 0..token.len() {
        for bit in 0..8 {
            let mut token = token.clone();
            token[position] ^= 1 << bit;
            assert!(keys().open(&token).is_err(), "byte {position}, bit {bit}");
        }
    }
}
