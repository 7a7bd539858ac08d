//! Tests of the rules for users and authorities. Results are compared with OpenSSL if it implements the rule.

use std::time::{Duration, UNIX_EPOCH};

use super::*;
use crate::name::Name;
use crate::test_pki::{CA, DAYS, FULL, Issued, Pki, Request, USER, now};
use crate::trust::TrustBuilder;
use crate::trust::test_world::{World, certificates, policy, store};

const DAY: Duration = Duration::from_secs(86400);

fn named(issued: &Issued) -> Name {
    issued.certificate.subject().clone()
}

#[test]
fn a_user_of_a_known_authority_is_accepted() {
    let world = World::new();
    for sent in [&[&world.user][..], &[&world.user, &world.root]] {
        let peer = world.validate(sent).expect("accepted");
        assert_eq!(peer.identity, named(&world.user));
        assert_eq!(peer.chain.last(), Some(&world.root.certificate));
    }
}

#[test]
fn a_certificate_counts_in_its_time_only() {
    let world = World::new();
    let short = Request {
        subject: "/DC=test/CN=Bob",
        extensions: USER,
        days: 2,
        ..Request::default()
    };
    let user = world.pki.make(&short, Some(&world.root));
    let proxy = world.pki.proxy(&user, FULL);
    let validity = user.certificate.validity();
    let chain = certificates(&[&proxy, &user]);
    let at = |time| {
        world
            .store()
            .validate(&chain, time)
            .map(|peer| peer.expires)
    };
    assert_eq!(at(now()), Ok(validity.not_after));
    assert_eq!(at(validity.not_after), Ok(validity.not_after));
    let certificate = named(&user);
    let until = validity.not_after;
    let expected = ChainError::Expired { certificate, until };
    assert_eq!(at(now() + 3 * DAY), Err(expected));
    let root = named(&world.root);
    let late = at(now() + (DAYS + 1) * DAY);
    assert!(matches!(late, Err(ChainError::Expired { certificate, .. }) if certificate == root));
    let early = at(validity.not_before - DAY);
    assert!(
        matches!(early, Err(ChainError::NotYetValid { certificate, .. }) if certificate == root)
    );
}

#[test]
fn an_expired_proxy_is_refused() {
    let world = World::new();
    let subject = format!("{}/CN=1", world.user.subject);
    let short = Request {
        subject: &subject,
        extensions: FULL,
        days: 1,
        ..Request::default()
    };
    let proxy = world.pki.make(&short, Some(&world.user));
    let chain = certificates(&[&proxy, &world.user]);
    let verdict = world.store().validate(&chain, now() + 2 * DAY);
    let certificate = named(&proxy);
    let until = proxy.certificate.validity().not_after;
    assert_eq!(verdict, Err(ChainError::Expired { certificate, until }));
}

#[test]
fn times_are_written_so_that_people_can_read_them() {
    let error = ChainError::Expired {
        certificate: named(&World::new().user),
        until: UNIX_EPOCH + 400 * DAY,
    };
    let expected = "/DC=test/CN=Alice has expired at 1971-02-05T00:00:00Z";
    assert_eq!(error.to_string(), expected);
}

#[test]
fn an_authority_is_no_user() {
    let world = World::new();
    let between = world.pki.issue(&world.root, "/DC=test/CN=CA", CA);
    for authority in [&world.root, &between] {
        let verdict = world.validate_alone(&[authority]);
        let certificate = named(authority);
        assert_eq!(verdict, Err(ChainError::AuthorityAsUser { certificate }));
    }
}

#[test]
fn an_authority_of_the_directory_is_not_a_user() {
    let world = World::new();
    // It looks like a user's certificate, but so does a root of version 1.
    let request = Request {
        subject: "/DC=test/CN=Old Root",
        ..Request::default()
    };
    let root = world.pki.make(&request, None);
    let verdict = store(&[("old.pem", root.pem())]).validate(&certificates(&[&root]), now());
    let certificate = named(&root);
    assert_eq!(verdict, Err(ChainError::AuthorityAsUser { certificate }));
}

#[test]
fn a_user_is_no_authority() {
    let world = World::new();
    for extensions in [USER, ""] {
        let user = world.pki.issue(&world.root, "/DC=test/CN=Eve", extensions);
        let victim = world.pki.issue(&user, "/DC=test/CN=Bob", USER);
        let verdict = world.validate(&[&victim, &user]);
        let (certificate, issuer) = (named(&victim), named(&user));
        let expected = ChainError::NotAnAuthority {
            certificate,
            issuer,
        };
        assert_eq!(verdict, Err(expected));
    }
}

#[test]
fn an_authority_must_be_allowed_to_sign_certificates() {
    let world = World::new();
    let extensions = "basicConstraints=critical,CA:TRUE\nkeyUsage=critical,digitalSignature";
    let between = world.pki.issue(&world.root, "/DC=test/CN=CA", extensions);
    let user = world.pki.issue(&between, "/DC=test/CN=Bob", USER);
    let verdict = world.validate(&[&user, &between]);
    let authority = named(&between);
    assert_eq!(verdict, Err(ChainError::AuthorityUsage { authority }));
}

#[test]
fn a_path_length_counts_authorities_and_no_proxies() {
    let world = World::new();
    let limited = format!(
        "{}\nkeyUsage=keyCertSign",
        "basicConstraints=CA:TRUE,pathlen:0"
    );
    let first = world.pki.issue(&world.root, "/DC=test/CN=CA 1", &limited);
    let user = world.pki.issue(&first, "/DC=test/CN=Bob", USER);
    let proxy = world.pki.proxy(&user, FULL);
    let files = [("1.signing_policy", policy(&first, "/DC=test/*"))];
    let store = world.store_with(&files);
    let chain = certificates(&[&proxy, &user, &first]);
    store.validate(&chain, now()).expect("no authority follows");

    let second = world.pki.issue(&first, "/DC=test/CN=CA 2", CA);
    let user = world.pki.issue(&second, "/DC=test/CN=Bob", USER);
    let (authority, limit, found) = (named(&first), 0, 1);
    let expected = ChainError::PathLength {
        authority,
        limit,
        found,
    };
    let files = [
        &files[..],
        &[("2.signing_policy", policy(&second, "/DC=test/*"))],
    ]
    .concat();
    let chain = certificates(&[&user, &second, &first]);
    assert_eq!(
        world.store_with(&files).validate(&chain, now()),
        Err(expected)
    );
}

#[test]
fn roots_of_version_1_are_trusted_for_their_bytes() {
    let world = World::new();
    let root = world.pki.make(
        &Request {
            subject: "/DC=test/CN=Old Root",
            extensions: "",
            ..Request::default()
        },
        None,
    );
    let user = world.pki.issue(&root, "/DC=test/CN=Bob", USER);
    let files = [
        ("old.pem", root.pem()),
        ("old.signing_policy", policy(&root, "/DC=test/*")),
    ];
    let store = store(&files);
    store
        .validate(&certificates(&[&user]), now())
        .expect("accepted");
}

#[test]
fn the_signature_of_a_root_is_not_looked_at() {
    let world = World::new();
    let root = world.pki.make(
        &Request {
            subject: "/DC=test/CN=Old Root",
            extensions: CA,
            key: &["rsa:2048"],
            signing: &["-md5"],
            ..Request::default()
        },
        None,
    );
    let user = world.pki.issue(&root, "/DC=test/CN=Bob", USER);
    let files = [
        ("old.pem", root.pem()),
        ("old.signing_policy", policy(&root, "/DC=test/*")),
    ];
    let store = store(&files);
    store
        .validate(&certificates(&[&user]), now())
        .expect("accepted");
}

#[test]
fn broken_digests_and_short_keys_are_refused() {
    let world = World::new();
    let request = |key, signing| Request {
        subject: "/DC=test/CN=Bob",
        extensions: USER,
        key,
        signing,
        ..Request::default()
    };
    let old = world.pki.make(
        &request(Request::default().key, &["-sha1"]),
        Some(&world.root),
    );
    let expected = ChainError::BrokenAlgorithm {
        certificate: named(&old),
        algorithm: "SHA-1",
    };
    assert_eq!(world.validate(&[&old]), Err(expected));
    let short = world
        .pki
        .make(&request(&["rsa:1024"], &["-sha256"]), Some(&world.root));
    let (certificate, bits) = (named(&short), 1024);
    let expected = ChainError::KeySize { certificate, bits };
    assert_eq!(world.validate(&[&short]), Err(expected));
}

#[test]
fn unknown_extensions_are_refused_when_they_are_critical() {
    let world = World::new();
    for (critical, is_accepted) in [("", true), ("critical,", false)] {
        let extensions = format!("{USER}\n1.2.3.4={critical}DER:0500");
        let user = world.pki.issue(&world.root, "/DC=test/CN=Bob", &extensions);
        let verdict = world.validate(&[&user]);
        let (certificate, identifier) = (named(&user), "1.2.3.4".to_owned());
        match is_accepted {
            true => assert!(verdict.is_ok()),
            false => assert_eq!(
                verdict,
                Err(ChainError::CriticalExtension {
                    certificate,
                    identifier
                })
            ),
        }
    }
}

#[test]
fn extensions_that_globus_does_not_allow_to_be_critical_are_refused() {
    let world = World::new();
    for extension in [
        "subjectAltName=critical,DNS:a.example",
        "certificatePolicies=critical,1.2.3.4",
        "crlDistributionPoints=critical,URI:http://a.example/list",
    ] {
        let user = world.pki.issue(&world.root, "/DC=test/CN=Bob", extension);
        // OpenSSL implements them.
        let verdict = world.validate_alone(&[&user]);
        assert!(
            matches!(verdict, Err(ChainError::CriticalExtension { .. })),
            "{extension}"
        );
    }
}

#[test]
fn a_subject_outside_the_signing_policy_is_refused() {
    let world = World::new();
    let user = world.pki.issue(&world.root, "/DC=other/CN=Bob", USER);
    // OpenSSL has no signing policies.
    let verdict = world.validate_alone(&[&user]);
    let (certificate, authority) = (named(&user), named(&world.root));
    let expected = ChainError::OutsideSigningPolicy {
        certificate,
        authority,
    };
    assert_eq!(verdict, Err(expected));
}

#[test]
fn every_authority_needs_a_signing_policy() {
    let world = World::new();
    let between = world.pki.issue(&world.root, "/DC=test/CN=CA", CA);
    let user = world.pki.issue(&between, "/DC=test/CN=Bob", USER);
    let chain = certificates(&[&user, &between]);
    let expected = ChainError::NoSigningPolicy {
        certificate: named(&user),
        authority: named(&between),
    };
    assert_eq!(world.store().validate(&chain, now()), Err(expected));
    let files = [("ca.signing_policy", policy(&between, "/DC=test/CN=Bob"))];
    let store = world.store_with(&files);
    store.validate(&chain, now()).expect("both have one");
    assert!(store.has_signing_policy(between.certificate.subject()));
}

#[test]
fn a_policy_with_a_hashed_name_counts_alone() {
    let world = World::new();
    let files = [(
        "5ca1ab1e.signing_policy",
        policy(&world.root, "/DC=other/*"),
    )];
    let verdict = world
        .store_with(&files)
        .validate(&certificates(&[&world.user]), now());
    assert!(matches!(
        verdict,
        Err(ChainError::OutsideSigningPolicy { .. })
    ));
}

#[test]
fn a_revoked_user_is_refused_with_all_proxies() {
    let world = World::new();
    let proxy = world.pki.proxy(&world.user, FULL);
    let list = world.pki.revocation_list(&world.root, &[&world.user]);
    let store = world.store_with(&[("root.crl", list)]);
    for chain in [&[&world.user][..], &[&proxy, &world.user]] {
        let expected = ChainError::Revoked {
            certificate: named(&world.user),
            serial: "02".to_owned(),
        };
        assert_eq!(store.validate(&certificates(chain), now()), Err(expected));
    }
}

#[test]
fn serial_numbers_of_proxies_are_not_looked_up() {
    let world = World::new();
    let proxy = world.pki.proxy(&world.user, FULL);
    let list = world.pki.revocation_list(&world.root, &[&proxy]);
    let store = world.store_with(&[("root.crl", list)]);
    let chain = certificates(&[&proxy, &world.user]);
    store
        .validate(&chain, now())
        .expect("proxies are not revoked");
}

#[test]
fn a_revoked_authority_is_refused() {
    let world = World::new();
    let between = world.pki.issue(&world.root, "/DC=test/CN=CA", CA);
    let user = world.pki.issue(&between, "/DC=test/CN=Bob", USER);
    let list = world.pki.revocation_list(&world.root, &[&between]);
    let policy = policy(&between, "/DC=test/*");
    let store = world.store_with(&[("root.crl", list), ("ca.signing_policy", policy)]);
    let verdict = store.validate(&certificates(&[&user, &between]), now());
    let certificate = named(&between);
    assert!(
        matches!(verdict, Err(ChainError::Revoked { certificate: it, .. }) if it == certificate)
    );
}

#[test]
fn a_list_must_be_good_if_there_is_one() {
    let world = World::new();
    let authority = named(&world.root);
    let validate = |list, time| {
        let store = world.store_with(&[("root.crl", list)]);
        store
            .validate(&certificates(&[&world.user]), time)
            .map(drop)
    };
    let list = || world.pki.revocation_list(&world.root, &[]);
    assert_eq!(validate(list(), now()), Ok(()));
    let late = validate(list(), now() + 11 * DAY);
    assert!(matches!(
        late,
        Err(ChainError::RevocationListExpired { .. })
    ));
    let future = [
        "-crl_lastupdate",
        "20400101000000Z",
        "-crl_nextupdate",
        "20410101000000Z",
    ];
    let future = world.pki.revocation_list_of(&world.root, &[], &future);
    let early = validate(future, now());
    assert!(matches!(
        early,
        Err(ChainError::RevocationListNotYetValid { .. })
    ));
    let impostor = world.pki.root("/DC=test/CN=Root");
    let forged = world.pki.revocation_list(&impostor, &[]);
    assert_eq!(closed(&world, forged), authority);
    // A list of another authority has no effect, but must not replace the authority's own.
    let other = world.pki.root("/DC=test/CN=Other");
    let unrelated = world.pki.revocation_list(&other, &[]);
    let store = world.store_with(&[("other.crl", unrelated.clone())]);
    let verdict = store.validate(&certificates(&[&world.user]), now());
    verdict.expect("it has no list");
    assert_eq!(closed(&world, unrelated), authority);
}

/// The authority that is refused because of this list, as named in the error.
fn closed(world: &World, list: Vec<u8>) -> Name {
    let mut builder = TrustBuilder::default();
    builder.add("root.pem", &world.root.pem());
    builder.add("root.signing_policy", &policy(&world.root, "/DC=test/*"));
    builder.add("root.crl", &list);
    let (store, problems) = builder.build();
    assert!(
        matches!(&problems[..], [problem] if problem.is_grave),
        "{problems:?}"
    );
    match store.validate(&certificates(&[&world.user]), now()) {
        Err(ChainError::RevocationListUnusable { authority, .. }) => authority,
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_list_that_does_not_say_all_closes_its_authority() {
    let world = World::new();
    let point = "issuingDistributionPoint=critical,@point\n[point]\n";
    for extensions in [
        "2.5.29.27=critical,ASN1:INTEGER:1".to_owned(),
        "2.5.29.27=ASN1:INTEGER:1".to_owned(),
        "1.2.3.4=critical,DER:0500".to_owned(),
        format!("{point}indirectCRL=TRUE"),
        format!("{point}onlyAA=TRUE"),
        format!("{point}onlysomereasons=keyCompromise"),
        format!("{point}relativename=name\n[name]\nCN=point"),
        "issuingDistributionPoint=indirectCRL:TRUE".to_owned(),
    ] {
        for revoked in [&[][..], &[&world.user]] {
            let list = world
                .pki
                .revocation_list_with(&world.root, revoked, &extensions);
            assert_eq!(closed(&world, list), named(&world.root), "{extensions}");
        }
    }
    // Extensions without further content.
    for extensions in ["authorityKeyIdentifier=keyid", "1.2.3.4=DER:0500"] {
        let list = world.pki.revocation_list_with(&world.root, &[], extensions);
        let store = world.store_with(&[("root.crl", list)]);
        let verdict = store.validate(&certificates(&[&world.user]), now());
        verdict.expect("all is said");
    }
}

#[test]
fn a_list_counts_for_the_certificates_that_it_is_about() {
    let world = World::new();
    let uri = "URI:http://a.example/list";
    let extensions = format!("{USER}\ncrlDistributionPoints={uri}");
    let pointed = world
        .pki
        .issue(&world.root, "/DC=test/CN=Pointed", &extensions);
    let between = world.pki.issue(&world.root, "/DC=test/CN=CA", CA);
    let below = world.pki.issue(&between, "/DC=test/CN=Below", USER);
    let chains = [&[&world.user][..], &[&pointed], &[&below, &between]];
    let point = "issuingDistributionPoint=critical,@point\n[point]\n";
    for (scope, covered) in [
        (format!("{point}onlyuser=TRUE"), [true, true, false]),
        (format!("{point}onlyCA=TRUE"), [false, false, true]),
        (format!("{point}fullname={uri}"), [false, true, false]),
        (format!("{point}fullname={uri}/2"), [false, false, false]),
        (format!("{point}onlyuser=FALSE"), [true, true, true]),
    ] {
        for (chain, covered) in chains.iter().zip(covered) {
            let revoked = chain[chain.len() - 1];
            let verdict = |revoked: &[&Issued]| {
                let list = world.pki.revocation_list_with(&world.root, revoked, &scope);
                let store = world.store_with(&[
                    ("root.crl", list),
                    ("ca.signing_policy", policy(&between, "/DC=test/*")),
                ]);
                store.validate(&certificates(chain), now()).map(drop)
            };
            if covered {
                assert_eq!(verdict(&[]), Ok(()), "{scope}");
                assert!(matches!(
                    verdict(&[revoked]),
                    Err(ChainError::Revoked { .. })
                ));
            } else {
                let expected = Err(ChainError::RevocationListScope {
                    certificate: named(revoked),
                    authority: named(&world.root),
                });
                assert_eq!(verdict(&[]), expected, "{scope}");
            }
        }
    }
}

#[test]
fn an_authority_must_be_allowed_to_sign_lists() {
    let pki = Pki::new();
    let request = Request {
        subject: "/DC=test/CN=Root",
        extensions: "basicConstraints=critical,CA:TRUE\nkeyUsage=critical,keyCertSign",
        ..Request::default()
    };
    let root = pki.make(&request, None);
    let user = pki.issue(&root, "/DC=test/CN=Alice", USER);
    let world = World { pki, root, user };
    let list = world.pki.revocation_list(&world.root, &[]);
    assert_eq!(closed(&world, list), named(&world.root));

    // The key of an authority that is not in the directory is in the chain only.
    let world = World::new();
    let between = world
        .pki
        .issue(&world.root, "/DC=test/CN=CA", request.extensions);
    let user = world.pki.issue(&between, "/DC=test/CN=Bob", USER);
    let store = world.store_with(&[
        ("ca.crl", world.pki.revocation_list(&between, &[])),
        ("ca.signing_policy", policy(&between, "/DC=test/*")),
    ]);
    let authority = named(&between);
    assert_eq!(
        store.validate(&certificates(&[&user, &between]), now()),
        Err(ChainError::RevocationListSignature { authority })
    );
}

#[test]
fn the_unusable_list_of_an_authority_that_peers_send_closes_it() {
    let world = World::new();
    let between = world.pki.issue(&world.root, "/DC=test/CN=CA", CA);
    let user = world.pki.issue(&between, "/DC=test/CN=Bob", USER);
    let mut builder = TrustBuilder::default();
    builder.add("root.pem", &world.root.pem());
    builder.add("root.signing_policy", &policy(&world.root, "/DC=test/*"));
    builder.add("ca.signing_policy", &policy(&between, "/DC=test/*"));
    builder.add("ca.r0", b"");
    let (store, _) = builder.build();
    let verdict = store.validate(&certificates(&[&user, &between]), now());
    let (authority, file) = (named(&between), "ca.r0".to_owned());
    assert_eq!(
        verdict,
        Err(ChainError::RevocationListUnusable { authority, file })
    );
    store
        .validate(&certificates(&[&world.user]), now())
        .expect("it is another's list");
}

#[test]
fn of_two_lists_the_newer_one_counts() {
    let world = World::new();
    let old = [
        "-crl_lastupdate",
        "20200101000000Z",
        "-crl_nextupdate",
        "20200201000000Z",
    ];
    let old = world
        .pki
        .revocation_list_of(&world.root, &[&world.user], &old);
    let new = world.pki.revocation_list(&world.root, &[]);
    let store = world.store_with(&[("5ca1ab1e.r0", old), ("5ca1ab1e.r1", new)]);
    store
        .validate(&certificates(&[&world.user]), now())
        .expect("the old one is replaced");
}
