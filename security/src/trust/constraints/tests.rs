//! Tests of name constraints. Every result is compared with OpenSSL.

use super::*;
use crate::test_pki::{CA, FULL, Issued, Pki, Request, USER, now};
use crate::trust::ChainError;
use crate::trust::test_world::{World, certificates, policy, store, validate};

/// The result for a user with this subject and these alternative names, below an authority with these constraints. OpenSSL
/// must agree.
fn verdict(constraints: &str, subject: &str, names: &str) -> Result<(), String> {
    let pki = Pki::new();
    let request = Request {
        subject: "/DC=test/CN=Root",
        extensions: &format!("{CA}\nnameConstraints=critical,{constraints}"),
        ..Request::default()
    };
    let root = pki.make(&request, None);
    let names = match names.is_empty() {
        true => String::new(),
        false => format!("\nsubjectAltName={names}"),
    };
    let user = pki.issue(&root, subject, &format!("{USER}{names}"));
    match validate(&pki, &root, &[&user]) {
        Ok(_) => Ok(()),
        Err(ChainError::OutsideNameConstraints { name, .. }) => Err(name),
        Err(error) => Err(error.to_string()),
    }
}

const BOB: &str = "/DC=test/O=People/CN=Bob";

#[test]
fn names_of_hosts_are_compared_by_labels() {
    for (constraints, name, is_allowed) in [
        ("permitted;DNS:example.org", "example.org", true),
        ("permitted;DNS:example.org", "a.b.Example.ORG", true),
        ("permitted;DNS:example.org", "badexample.org", false),
        ("permitted;DNS:.example.org", "a.example.org", true),
        ("permitted;DNS:.example.org", "example.org", false),
        ("permitted;DNS:a.org,permitted;DNS:b.org", "x.b.org", true),
        ("excluded;DNS:example.org", "a.example.org", false),
        ("excluded;DNS:example.org", "example.com", true),
        ("permitted;DNS:org,excluded;DNS:b.org", "a.b.org", false),
        ("permitted;email:example.org", "a.example.org", true),
    ] {
        let expected = match is_allowed {
            true => Ok(()),
            false => Err(name.to_owned()),
        };
        let found = verdict(constraints, BOB, &format!("DNS:{name}"));
        assert_eq!(found, expected, "{constraints} {name}");
    }
}

#[test]
fn the_host_in_a_common_name_counts_if_there_is_no_other() {
    const CONSTRAINTS: &str = "permitted;DNS:example.org";
    let host = |name: &str| format!("/DC=test/CN={name}");
    assert_eq!(verdict(CONSTRAINTS, &host("a.example.org"), ""), Ok(()));
    let outside = Err("a.example.com".to_owned());
    assert_eq!(verdict(CONSTRAINTS, &host("a.example.com"), ""), outside);
    assert_eq!(verdict(CONSTRAINTS, &host("Bob Smith"), ""), Ok(()));
    assert_eq!(
        verdict(CONSTRAINTS, &host("a.example.com"), "DNS:example.org"),
        Ok(())
    );
}

#[test]
fn addresses_of_mail_are_compared_by_mailbox_or_host() {
    for (constraints, name, is_allowed) in [
        ("permitted;email:bob@a.org", "bob@A.org", true),
        ("permitted;email:bob@a.org", "eve@a.org", false),
        ("permitted;email:a.org", "eve@a.org", true),
        ("permitted;email:a.org", "eve@b.a.org", false),
        ("permitted;email:.a.org", "eve@b.a.org", true),
        ("permitted;email:.a.org", "eve@a.org", false),
        ("excluded;email:a.org", "eve@a.org", false),
    ] {
        let expected = match is_allowed {
            true => Ok(()),
            false => Err(name.to_owned()),
        };
        let found = verdict(constraints, BOB, &format!("email:{name}"));
        assert_eq!(found, expected, "{constraints} {name}");
        let subject = format!("{BOB}/emailAddress={name}");
        assert_eq!(
            verdict(constraints, &subject, ""),
            expected,
            "{constraints} {subject}"
        );
    }
}

#[test]
fn addresses_of_hosts_are_compared_under_a_mask() {
    for (constraints, name, is_allowed) in [
        ("permitted;IP:192.0.2.0/255.255.255.0", "192.0.2.7", true),
        ("permitted;IP:192.0.2.0/255.255.255.0", "192.0.3.7", false),
        ("excluded;IP:192.0.2.0/255.255.255.0", "192.0.2.7", false),
    ] {
        let expected = match is_allowed {
            true => Ok(()),
            false => Err(name.to_owned()),
        };
        let found = verdict(constraints, BOB, &format!("IP:{name}"));
        assert_eq!(found, expected, "{constraints} {name}");
    }
    let network = "permitted;IP:2001:db8::/ffff:ffff::";
    assert_eq!(verdict(network, BOB, "IP:2001:db8::1"), Ok(()));
    assert!(verdict(network, BOB, "IP:2001:db9::1").is_err());
}

#[test]
fn hosts_of_uris_are_compared_whole_or_below_a_dot() {
    for (constraints, name, is_allowed) in [
        ("permitted;URI:a.org", "https://a.org:8443/x", true),
        ("permitted;URI:a.org", "https://b.a.org/x", false),
        ("permitted;URI:.a.org", "https://b.a.org/x", true),
        ("excluded;URI:a.org", "https://A.org", false),
    ] {
        let found = verdict(constraints, BOB, &format!("URI:{name}"));
        assert_eq!(found.is_ok(), is_allowed, "{constraints} {name} {found:?}");
    }
}

/// An authority with a constraint on directory names, a user below it, and a proxy.
fn directory_verdict(kind: &str, base: &str, subject: &str) -> Result<(), ChainError> {
    let pki = Pki::new();
    let extensions = format!("{CA}\nnameConstraints=critical,{kind};dirName:base\n[base]\n{base}");
    let request = Request {
        subject: "/DC=test/CN=Root",
        extensions: &extensions,
        ..Request::default()
    };
    let root = pki.make(&request, None);
    let user = pki.issue(&root, subject, USER);
    let proxy = pki.proxy(&user, FULL);
    validate(&pki, &root, &[&proxy, &user]).map(drop)
}

#[test]
fn directory_names_are_compared_from_the_top_for_users_and_proxies() {
    let base = "DC=test\nO=people";
    assert_eq!(directory_verdict("permitted", base, BOB), Ok(()));
    assert!(directory_verdict("excluded", base, BOB).is_err());
    let other = "/DC=test/O=Others/CN=Bob";
    assert!(directory_verdict("permitted", base, other).is_err());
    assert_eq!(directory_verdict("excluded", base, other), Ok(()));
}

#[test]
fn the_name_of_a_proxy_is_compared_too() {
    let pki = Pki::new();
    let base = "[base]\nDC=test\n1.CN=Bob\n2.CN=2";
    let extensions = format!("{CA}\nnameConstraints=excluded;dirName:base\n{base}");
    let request = Request {
        subject: "/DC=test/CN=Root",
        extensions: &extensions,
        ..Request::default()
    };
    let root = pki.make(&request, None);
    let user = pki.issue(&root, "/DC=test/CN=Bob", USER);
    for (number, is_allowed) in [(1, true), (2, false)] {
        let proxy = pki.issue(&user, &format!("/DC=test/CN=Bob/CN={number}"), FULL);
        let verdict = validate(&pki, &root, &[&proxy, &user]);
        assert_eq!(verdict.is_ok(), is_allowed, "{verdict:?}");
    }
}

#[test]
fn constraints_of_every_authority_above_count() {
    let world = World::new();
    let extensions = format!("{CA}\nnameConstraints=permitted;DNS:example.org");
    let between = world.pki.issue(&world.root, "/DC=test/CN=CA", &extensions);
    let lower = world.pki.issue(&between, "/DC=test/CN=Lower CA", CA);
    let user = |names: &str| -> Issued {
        let extensions = format!("{USER}\nsubjectAltName={names}");
        world.pki.issue(&lower, "/DC=test/CN=Bob", &extensions)
    };
    let (inside, outside) = (user("DNS:a.example.org"), user("DNS:a.example.com"));
    let files = [
        ("root.pem", world.root.pem()),
        ("0.signing_policy", policy(&world.root, "/DC=test/*")),
        ("1.signing_policy", policy(&between, "/DC=test/*")),
        ("2.signing_policy", policy(&lower, "/DC=test/*")),
    ];
    let store = store(&files);
    let validate = |user: &Issued| {
        store
            .validate(&certificates(&[user, &lower, &between]), now())
            .map(drop)
    };
    assert_eq!(validate(&inside), Ok(()));
    let expected = ChainError::OutsideNameConstraints {
        certificate: outside.certificate.subject().clone(),
        authority: between.certificate.subject().clone(),
        name: "a.example.com".to_owned(),
    };
    assert_eq!(validate(&outside), Err(expected));
}

#[test]
fn kinds_of_names_that_cannot_be_compared_are_refused_where_they_count() {
    const CONSTRAINTS: &str = "permitted;otherName:1.2.3.4;UTF8:x";
    assert_eq!(verdict(CONSTRAINTS, BOB, "DNS:a.example.org"), Ok(()));
    let words = verdict(CONSTRAINTS, BOB, "otherName:1.2.3.4;UTF8:x").expect_err("refused");
    assert!(words.contains("not supported"), "{words}");
}

#[test]
fn too_many_comparisons_are_refused() {
    let world = World::new();
    let list = |kind: &str, count: usize| -> String {
        let names: Vec<_> = (0..count)
            .map(|number| format!("{kind}DNS:h{number}.org"))
            .collect();
        names.join(",")
    };
    let extensions = format!("{CA}\nnameConstraints={}", list("permitted;", 300));
    let authority = world.pki.make(
        &Request {
            extensions: &extensions,
            ..Request::default()
        },
        None,
    );
    let extensions = format!("subjectAltName={}", list("", 300));
    let user = world.pki.issue(&authority, "/DC=test/CN=Bob", &extensions);
    let expected = Err(ConstraintError::Unusable("there are too many names"));
    assert_eq!(check(&authority.certificate, &user.certificate), expected);
}
