//! Tests of the search for paths, also with forged certificates.

use std::time::Duration;

use proptest::prelude::*;

use super::*;
use crate::test_pki::{CA, FULL, Issued, Request, USER, now};
use crate::trust::test_world::{World, certificates, policy, store};

fn store_of(authorities: &[&Issued]) -> TrustStore {
    let files: Vec<_> = authorities
        .iter()
        .enumerate()
        .flat_map(|(number, one)| {
            [
                (format!("{number}.pem"), one.pem()),
                (
                    format!("{number}.signing_policy"),
                    policy(one, "/DC=test/*"),
                ),
            ]
        })
        .collect();
    let files: Vec<_> = files
        .iter()
        .map(|(name, pem)| (&**name, pem.clone()))
        .collect();
    store(&files)
}

#[test]
fn nothing_and_too_much_are_refused() {
    let world = World::new();
    assert_eq!(world.store().validate(&[], now()), Err(ChainError::Empty));
    let chain = vec![world.user.certificate.clone(); MAX_CHAIN + 1];
    let expected = ChainError::TooLong { limit: MAX_CHAIN };
    assert_eq!(world.store().validate(&chain, now()), Err(expected));
}

#[test]
fn certificates_above_the_leaf_may_come_in_any_order() {
    let world = World::new();
    let between = world.pki.issue(&world.root, "/DC=test/CN=CA", CA);
    let user = world.pki.issue(&between, "/DC=test/CN=Bob", USER);
    let proxy = world.pki.proxy(&user, FULL);
    let store = store_of(&[&world.root, &between]);
    let sent = certificates(&[&proxy, &world.root, &world.user, &between, &user]);
    let peer = store.validate(&sent, now()).expect("accepted");
    assert_eq!(
        peer.chain,
        certificates(&[&proxy, &user, &between, &world.root])
    );
}

#[test]
fn authorities_of_the_directory_need_not_be_sent() {
    let world = World::new();
    let between = world.pki.issue(&world.root, "/DC=test/CN=CA", CA);
    let user = world.pki.issue(&between, "/DC=test/CN=Bob", USER);
    let store = store_of(&[&world.root, &between]);
    store
        .validate(&certificates(&[&user]), now())
        .expect("accepted");
}

#[test]
fn an_unknown_authority_is_named() {
    let world = World::new();
    let stranger = world.pki.root("/DC=test/CN=Stranger");
    let user = world.pki.issue(&stranger, "/DC=test/CN=Bob", USER);
    let expected = ChainError::UnknownIssuer {
        certificate: user.certificate.subject().clone(),
        issuer: stranger.certificate.subject().clone(),
    };
    assert_eq!(world.validate(&[&user]), Err(expected));
    let expected = ChainError::UntrustedRoot {
        certificate: stranger.certificate.subject().clone(),
    };
    assert_eq!(world.validate(&[&user, &stranger]), Err(expected));
}

#[test]
fn an_authority_below_an_unknown_one_is_not_trusted_alone() {
    let world = World::new();
    for identifiers in ["", "subjectKeyIdentifier=none\nauthorityKeyIdentifier=none"] {
        let extensions = format!("{CA}\n{identifiers}");
        let between = world.pki.issue(&world.root, "/DC=test/CN=CA", &extensions);
        let user = world.pki.issue(&between, "/DC=test/CN=Bob", USER);
        let verdict = store_of(&[&between]).validate(&certificates(&[&user]), now());
        let expected = ChainError::UnknownIssuer {
            certificate: between.certificate.subject().clone(),
            issuer: world.root.certificate.subject().clone(),
        };
        assert_eq!(verdict, Err(expected));
    }
}

#[test]
fn an_impostor_with_the_authoritys_name_is_refused() {
    let world = World::new();
    let impostor = world.pki.root("/DC=test/CN=Root");
    // With and without key identifiers, which are compared before signatures are verified.
    for identifiers in ["", "subjectKeyIdentifier=none\nauthorityKeyIdentifier=none"] {
        let extensions = format!("{USER}\n{identifiers}");
        let user = world.pki.issue(&impostor, "/DC=test/CN=Alice", &extensions);
        for chain in [&[&user][..], &[&user, &impostor]] {
            let error = world.validate(chain).expect_err("not signed by the root");
            assert!(matches!(error, ChainError::Signature { .. }), "{error}");
        }
    }
}

#[test]
fn an_impostor_with_the_users_name_makes_no_proxies() {
    let world = World::new();
    let impostor = world.pki.root(&world.user.subject);
    let proxy = world.pki.proxy(&impostor, FULL);
    let error = world
        .validate(&[&proxy, &world.user])
        .expect_err("not signed by the user");
    assert!(matches!(error, ChainError::Signature { .. }), "{error}");
    assert!(world.validate(&[&proxy, &impostor, &world.user]).is_err());
}

#[test]
fn names_link_without_regard_to_case_and_kinds_of_strings() {
    let world = World::new();
    // The same key, with another encoding of the name.
    let twin = Request {
        subject: "/DC=TEST/CN=root",
        extensions: CA,
        existing_key: Some(&world.root.key_file),
        ..Request::default()
    };
    let twin = world.pki.make(&twin, None);
    let user = world.pki.issue(&twin, "/DC=test/CN=Bob", USER);
    world
        .store()
        .validate(&certificates(&[&user]), now())
        .expect("accepted");
}

#[test]
fn after_a_change_of_keys_both_roots_work() {
    let world = World::new();
    let other = world.pki.root("/DC=test/CN=Root");
    let bob = world.pki.issue(&other, "/DC=test/CN=Bob", USER);
    for roots in [[&world.root, &other], [&other, &world.root]] {
        let store = store_of(&roots);
        for user in [&world.user, &bob] {
            store
                .validate(&certificates(&[user]), now())
                .expect("accepted");
        }
    }
}

#[test]
fn another_way_is_tried_when_the_first_breaks_a_rule() {
    let world = World::new();
    // An authority with certificates of an unknown root and of one in the trust directory.
    let stranger = world.pki.root("/DC=test/CN=Stranger");
    let request = Request {
        subject: "/DC=test/CN=CA",
        extensions: CA,
        ..Request::default()
    };
    let one = world.pki.make(&request, Some(&stranger));
    let existing_key = Some(&*one.key_file);
    let again = Request {
        existing_key,
        ..request
    };
    let other = world.pki.make(&again, Some(&world.root));
    let user = world.pki.issue(&one, "/DC=test/CN=Bob", USER);
    let files = [("ca.signing_policy", policy(&one, "/DC=test/*"))];
    let store = world.store_with(&files);
    for sent in [[&user, &one, &other], [&user, &other, &one]] {
        store
            .validate(&certificates(&sent), now())
            .expect("accepted");
    }
}

#[test]
fn a_web_of_authorities_costs_a_limited_number_of_signatures() {
    let world = World::new();
    // Each of them could have issued each other one.
    let mut authorities = vec![world.pki.root("/DC=test/CN=CA")];
    for _ in 0..20 {
        let request = Request {
            subject: "/DC=test/CN=CA",
            extensions: CA,
            existing_key: Some(&authorities[0].key_file),
            ..Request::default()
        };
        let again = world.pki.make(&request, Some(&authorities[0]));
        authorities.push(again);
    }
    let user = world.pki.issue(&authorities[0], "/DC=test/CN=Bob", USER);
    let mut sent = vec![&user];
    sent.extend(&authorities);
    let verdict = world.store().validate(&certificates(&sent), now());
    let certificate = user.certificate.subject().clone();
    assert_eq!(verdict, Err(ChainError::TooManyPaths { certificate }));
}

#[test]
fn a_session_may_add_anchors() {
    let world = World::new();
    let client = Request {
        subject: "/C=US/CN=Globus DCSC Cert",
        key: &["rsa:2048"],
        signing: &["-md5"],
        ..Request::default()
    };
    let client = world.pki.make(&client, None);
    let chain = certificates(&[&client]);
    assert!(world.store().validate(&chain, now()).is_err());
    let store = world.store().with_anchors(&chain);
    let peer = store.validate(&chain, now()).expect("it brought it");
    assert_eq!(peer.identity, *client.certificate.subject());
    // The authorities of the directory are still trusted.
    store
        .validate(&certificates(&[&world.user]), now())
        .expect("accepted");
}

#[test]
fn anchors_of_a_session_need_no_signing_policy() {
    let world = World::new();
    let root = world.pki.root("/DC=elsewhere/CN=Root");
    let user = world.pki.issue(&root, "/DC=elsewhere/CN=Bob", USER);
    let proxy = world.pki.proxy(&user, FULL);
    let chain = certificates(&[&proxy, &user, &root]);
    assert!(world.store().validate(&chain, now()).is_err());
    for brought in [&[&proxy, &user, &root][..], &[&proxy, &user], &[&root]] {
        let store = world.store().with_anchors(&certificates(brought));
        let peer = store.validate(&chain[..2], now()).expect("accepted");
        assert_eq!(peer.identity, *user.certificate.subject());
    }
    // A proxy is not trusted without its user.
    let store = world.store().with_anchors(&chain[..1]);
    assert!(store.validate(&chain[..2], now()).is_err());
    assert!(store.validate(&chain[..1], now()).is_err());
}

#[test]
fn a_forged_authority_does_not_hide_the_revocation_of_the_real_one() {
    let world = World::new();
    let between = world.pki.issue(&world.root, "/DC=test/CN=CA", CA);
    let leaf = world.pki.issue(&between, "/DC=test/CN=Ada", USER);
    // The name and the public key of the authority, signed by a user.
    let forged = Request {
        subject: "/DC=test/CN=CA",
        extensions: CA,
        existing_key: Some(&between.key_file),
        ..Request::default()
    };
    let forged = world.pki.make(&forged, Some(&world.user));
    let roots = certificates(&[&world.root]);
    let store = |list| store(&[("root.r0", list)]).with_only_anchors(&roots);
    let validate = |store: &TrustStore, sent: &[&Issued]| {
        let verdict = store.validate(&certificates(sent), now());
        verdict.map(|peer| peer.chain)
    };
    let (path, all) = (
        certificates(&[&leaf, &between, &world.root]),
        [&leaf, &forged, &world.user, &between],
    );
    let good = store(world.pki.revocation_list(&world.root, &[]));
    assert_eq!(validate(&good, &all), Ok(path));
    assert!(validate(&good, &[&leaf, &forged, &world.user]).is_err());
    let revoking = store(world.pki.revocation_list(&world.root, &[&between]));
    let verdict = validate(&revoking, &[&leaf, &between]);
    assert!(
        matches!(verdict, Err(ChainError::Revoked { .. })),
        "{verdict:?}"
    );
    let late = [
        "-crl_lastupdate",
        "20200101000000Z",
        "-crl_nextupdate",
        "20200201000000Z",
    ];
    let expired = store(world.pki.revocation_list_of(&world.root, &[], &late));
    for store in [revoking, expired] {
        let [first, others @ ..] = all;
        for turn in 0..others.len() {
            let mut sent = others.to_vec();
            sent.rotate_left(turn);
            sent.insert(0, first);
            validate(&store, &sent).expect_err("a certificate of the only path is refused");
        }
    }
}

#[test]
fn certificates_of_administrators_need_no_policy_and_no_authority_of_the_directory() {
    let world = World::new();
    let root = world.pki.root("/DC=elsewhere/CN=Root");
    let between = world.pki.issue(&root, "/DC=elsewhere/CN=CA", CA);
    let ada = world.pki.issue(&between, "/DC=elsewhere/CN=Ada", USER);
    let store = world.store().with_only_anchors(&certificates(&[&root]));
    let sent = certificates(&[&ada, &between]);
    let peer = store.validate(&sent, now()).expect("accepted");
    assert_eq!(peer.identity, *ada.certificate.subject());
    let users = certificates(&[&world.user, &world.root]);
    store.validate(&users, now()).expect_err("it is a user");
    // A connection may outlive a certificate.
    let late = ada.certificate.validity().not_after + Duration::from_secs(1);
    let verdict = store.validate(&sent, late);
    assert!(
        matches!(verdict, Err(ChainError::Expired { .. })),
        "{verdict:?}"
    );
    // The requirements on issuers hold.
    for extensions in [
        USER,
        "basicConstraints=critical,CA:TRUE\nkeyUsage=critical,cRLSign",
    ] {
        let between = world.pki.issue(&root, "/DC=elsewhere/CN=Other", extensions);
        let eve = world.pki.issue(&between, "/DC=elsewhere/CN=Eve", USER);
        let sent = certificates(&[&eve, &between]);
        store
            .validate(&sent, now())
            .expect_err("the issuer may not issue");
    }
}

#[test]
fn an_authority_that_a_session_brings_has_no_proxies() {
    let world = World::new();
    let root = world.pki.root("/DC=elsewhere/CN=Root");
    let proxy = world.pki.proxy(&root, FULL);
    let chain = certificates(&[&proxy, &root]);
    let verdict = world.store().with_anchors(&chain).validate(&chain, now());
    let certificate = root.certificate.subject().clone();
    assert_eq!(verdict, Err(ChainError::AuthorityAsUser { certificate }));
}

#[test]
fn changed_chains_are_refused_without_panic() {
    let world = World::new();
    let proxy = world.pki.proxy(&world.user, FULL);
    let chain = certificates(&[&proxy, &world.user]);
    let store = world.store();
    proptest!(|(which in 0..2_usize, at in any::<prop::sample::Index>(), flip in 1..=u8::MAX)| {
        let mut der = chain[which].der().to_vec();
        let at = at.index(der.len());
        der[at] ^= flip;
        if let Ok(changed) = Certificate::from_der(&der) {
            let mut chain = chain.clone();
            chain[which] = changed;
            prop_assert!(store.validate(&chain, now()).is_err());
        }
    });
}
