use super::*;
use crate::test_pki::{CA, FULL, INDEPENDENT, Issued, LIMITED, USER};
use crate::trust::test_world::World;

/// A GSI-3 proxy's extension with this policy language.
fn gsi3(language: &str, path_length: &str) -> String {
    format!(
        "1.3.6.1.4.1.3536.1.222=critical,ASN1:SEQUENCE:info\n[info]\n{path_length}\n\
         policy=SEQUENCE:policy\n[policy]\nlanguage=OID:{language}"
    )
}

const GSI3_FULL: &str = "1.3.6.1.5.5.7.21.1";
const GSI3_LIMITED: &str = "1.3.6.1.4.1.3536.1.1.1.9";

fn named(issued: &Issued) -> crate::name::Name {
    issued.certificate.subject().clone()
}

#[test]
fn a_proxy_of_a_proxy_is_the_user() {
    let world = World::new();
    let first = world.pki.proxy(&world.user, FULL);
    let second = world.pki.proxy(&first, FULL);
    let peer = world
        .validate(&[&second, &first, &world.user])
        .expect("accepted");
    assert_eq!(peer.identity.one_line(), "/DC=test/CN=Alice");
    assert!(!peer.limited);
    assert_eq!(peer.independent_proxy(), None);
    let expected = [second, first, world.user, world.root].map(|one| one.certificate);
    assert_eq!(peer.chain, expected);
    assert_eq!(peer.expires, expected[3].validity().not_after);
}

#[test]
fn limited_proxies_may_follow_full_and_limited_ones() {
    let world = World::new();
    let full = world.pki.proxy(&world.user, FULL);
    let limited = world.pki.proxy(&full, LIMITED);
    let last = world.pki.proxy(&limited, LIMITED);
    let peer = world
        .validate(&[&last, &limited, &full, &world.user])
        .expect("accepted");
    assert!(peer.limited);
    assert_eq!(peer.identity.one_line(), "/DC=test/CN=Alice");
}

#[test]
fn a_full_proxy_below_a_limited_one_is_refused() {
    let world = World::new();
    let limited = world.pki.proxy(&world.user, LIMITED);
    let full = world.pki.proxy(&limited, FULL);
    // OpenSSL does not support limited proxies.
    let verdict = world.validate_alone(&[&full, &limited, &world.user]);
    let certificate = named(&full);
    assert_eq!(verdict, Err(ChainError::BeyondLimited { certificate }));
}

#[test]
fn an_independent_proxy_is_its_own_identity() {
    let world = World::new();
    let limited = world.pki.proxy(&world.user, LIMITED);
    let independent = world.pki.proxy(&limited, INDEPENDENT);
    let full = world.pki.proxy(&independent, FULL);
    let chain = [&full, &independent, &limited, &world.user];
    let peer = world.validate(&chain).expect("accepted");
    assert_eq!(peer.identity, named(&independent));
    assert!(peer.limited);
    assert_eq!(peer.independent_proxy(), Some(&named(&independent)));
    let expected = chain.map(named);
    assert!(peer.subjects().eq(&expected));
}

#[test]
fn gsi3_proxies_have_the_same_rules() {
    let world = World::new();
    let full = world
        .pki
        .proxy(&world.user, &gsi3(GSI3_FULL, "length=INTEGER:1"));
    let limited = world.pki.proxy(&full, &gsi3(GSI3_LIMITED, ""));
    let beyond = world.pki.proxy(&limited, &gsi3(GSI3_FULL, ""));
    // OpenSSL does not support this critical extension.
    let peer = world.validate_alone(&[&limited, &full, &world.user]);
    assert!(peer.expect("accepted").limited);
    let verdict = world.validate_alone(&[&beyond, &limited, &full, &world.user]);
    let (certificate, limit, found) = (named(&full), 1, 2);
    let expected = ChainError::ProxyPathLength {
        certificate,
        limit,
        found,
    };
    assert_eq!(verdict, Err(expected));
}

#[test]
fn the_two_kinds_of_proxies_are_not_mixed() {
    let world = World::new();
    for (first, second) in [(FULL, &*gsi3(GSI3_FULL, "")), (&gsi3(GSI3_FULL, ""), FULL)] {
        let first = world.pki.proxy(&world.user, first);
        let second = world.pki.proxy(&first, second);
        let verdict = world.validate_alone(&[&second, &first, &world.user]);
        let certificate = named(&second);
        assert_eq!(verdict, Err(ChainError::ProxyKinds { certificate }));
    }
}

#[test]
fn a_path_length_counts_the_proxies_below() {
    let world = World::new();
    for (limit, below, is_accepted) in [(0, 0, true), (0, 1, false), (1, 1, true), (1, 2, false)] {
        let first = world
            .pki
            .proxy(&world.user, &format!("{FULL},pathlen:{limit}"));
        let mut chain = vec![first];
        for _ in 0..below {
            let next = world.pki.proxy(&chain[0], FULL);
            chain.insert(0, next);
        }
        let mut sent: Vec<_> = chain.iter().collect();
        sent.push(&world.user);
        let verdict = world.validate(&sent);
        let certificate = named(&chain[below]);
        let found = below;
        match is_accepted {
            true => assert!(verdict.is_ok(), "{verdict:?}"),
            false => assert_eq!(
                verdict,
                Err(ChainError::ProxyPathLength {
                    certificate,
                    limit,
                    found
                })
            ),
        }
    }
}

#[test]
fn a_path_length_further_down_counts_too() {
    let world = World::new();
    let first = world.pki.proxy(&world.user, &format!("{FULL},pathlen:5"));
    let second = world.pki.proxy(&first, &format!("{FULL},pathlen:0"));
    let third = world.pki.proxy(&second, FULL);
    let verdict = world.validate(&[&third, &second, &first, &world.user]);
    let error = verdict.expect_err("one too many");
    assert!(matches!(
        error,
        ChainError::ProxyPathLength {
            limit: 0,
            found: 1,
            ..
        }
    ));
}

#[test]
fn a_proxy_is_named_after_its_issuer() {
    let world = World::new();
    for subject in [
        "/DC=test/CN=Bob/CN=1",
        "/DC=test/CN=Alice",
        "/DC=test/CN=Alice/OU=1",
        "/DC=test/CN=Alice/CN=1+CN=2",
        "/DC=test/CN=Alice/CN=1/CN=2",
        "/CN=1",
    ] {
        let proxy = world.pki.issue(&world.user, subject, FULL);
        let verdict = world.validate(&[&proxy, &world.user]);
        let (certificate, issuer) = (named(&proxy), named(&world.user));
        let expected = ChainError::ProxyName {
            certificate,
            issuer,
        };
        assert_eq!(verdict, Err(expected), "{subject}");
    }
}

#[test]
fn a_proxy_with_a_policy_of_its_own_is_refused() {
    let world = World::new();
    let extension = "proxyCertInfo=critical,language:1.2.3.4,policy:text:nothing";
    let proxy = world.pki.proxy(&world.user, extension);
    // OpenSSL leaves the check of policies to its caller.
    let verdict = world.validate_alone(&[&proxy, &world.user]);
    let certificate = named(&proxy);
    assert_eq!(verdict, Err(ChainError::ProxyPolicy { certificate }));
}

#[test]
fn a_proxy_must_have_a_critical_extension() {
    let world = World::new();
    let proxy = world
        .pki
        .proxy(&world.user, "proxyCertInfo=language:id-ppl-inheritAll");
    // OpenSSL accepts it, globus-gridftp-server does not.
    let verdict = world.validate_alone(&[&proxy, &world.user]);
    let certificate = named(&proxy);
    assert_eq!(verdict, Err(ChainError::ProxyNotCritical { certificate }));
}

#[test]
fn a_user_who_may_not_sign_has_no_proxies() {
    let world = World::new();
    let usage = "keyUsage=critical,keyEncipherment";
    let user = world.pki.issue(&world.root, "/DC=test/CN=Bob", usage);
    let proxy = world.pki.proxy(&user, FULL);
    let verdict = world.validate(&[&proxy, &user]);
    let (certificate, issuer) = (named(&proxy), named(&user));
    let expected = ChainError::ProxyIssuerUsage {
        certificate,
        issuer,
    };
    assert_eq!(verdict, Err(expected));
}

#[test]
fn an_authority_has_no_proxies() {
    let world = World::new();
    let proxy = world.pki.proxy(&world.root, FULL);
    let verdict = world.validate_alone(&[&proxy, &world.root]);
    let certificate = named(&world.root);
    assert_eq!(verdict, Err(ChainError::AuthorityAsUser { certificate }));
}

#[test]
fn a_proxy_is_no_authority_and_has_no_other_names() {
    let world = World::new();
    for (extension, identifier) in [
        ("basicConstraints=critical,CA:TRUE", "2.5.29.19"),
        ("subjectAltName=DNS:a.example", "2.5.29.17"),
        ("issuerAltName=DNS:a.example", "2.5.29.18"),
    ] {
        let proxy = world
            .pki
            .proxy(&world.user, &format!("{FULL}\n{extension}"));
        let verdict = world.validate(&[&proxy, &world.user]);
        let expected = ChainError::ProxyExtension {
            certificate: named(&proxy),
            identifier: identifier.to_owned(),
        };
        assert_eq!(verdict, Err(expected));
    }
}

#[test]
fn a_proxy_issues_nothing_but_proxies() {
    let world = World::new();
    let proxy = world.pki.proxy(&world.user, FULL);
    for extensions in [USER, CA] {
        let other = world.pki.issue(&proxy, "/DC=test/CN=Bob", extensions);
        let error = world
            .validate(&[&other, &proxy, &world.user])
            .expect_err("refused");
        assert!(matches!(
            error,
            ChainError::NotAnAuthority { .. } | ChainError::AuthorityAsUser { .. }
        ));
    }
}

#[test]
fn legacy_proxies_are_named_as_such() {
    let world = World::new();
    let subject = "/DC=test/CN=Alice/CN=limited proxy";
    let proxy = world.pki.issue(&world.user, subject, "");
    let verdict = world.validate(&[&proxy, &world.user]);
    let certificate = named(&proxy);
    assert_eq!(verdict, Err(ChainError::LegacyProxy { certificate }));
}
