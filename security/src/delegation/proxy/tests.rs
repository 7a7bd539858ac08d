//! Proxies that OpenSSL verifies, and those that are not signed.

use std::fs;

use super::*;
use crate::credential::credential_pem;
use crate::delegation::request;
use crate::test_pki::{FULL, LIMITED, Pki, Request, USER, now, openssl, run};
use crate::tls::fixtures::credential;

fn key_and_request() -> (PrivateKey, Vec<u8>) {
    let key = PrivateKey::generate_ec().expect("a key");
    let request = request(&key).expect("a request");
    (key, request)
}

#[test]
fn openssl_verifies_proxies_for_issuers_of_each_kind() {
    let pki = Pki::new();
    let root = pki.root("/DC=test/CN=Root");
    for key in [
        &["rsa:2048"][..],
        &["ec", "-pkeyopt", "ec_paramgen_curve:P-256"],
        &["ec", "-pkeyopt", "ec_paramgen_curve:P-384"],
        &["ec", "-pkeyopt", "ec_paramgen_curve:P-521"],
        &["ed25519"],
    ] {
        let user = pki.make(
            &Request {
                subject: "/DC=test/CN=Zoë \\/ Alice",
                extensions: "keyUsage=critical,digitalSignature,nonRepudiation,keyAgreement\n\
                             extendedKeyUsage=clientAuth,emailProtection",
                key,
                ..Request::default()
            },
            Some(&root),
        );
        let issuer = credential(&[&user]);
        let (proxy_key, request) = key_and_request();
        let proxy = sign(&issuer, &request, ProxyPolicy::Limited, now()).expect("signed");

        assert_eq!(proxy.issuer(), issuer.leaf().subject());
        assert!(proxy.issuer().is_extended_by(proxy.subject()));
        assert_eq!(proxy.public_key_info(), proxy_key.public_key_info());
        assert_eq!(
            proxy.validity().not_after,
            issuer.leaf().validity().not_after
        );
        assert!(proxy.validity().not_before < now());
        let serial: Vec<u8> = proxy.serial().to_vec();
        let number = serial
            .iter()
            .fold(0, |sum, byte| sum << 8 | u64::from(*byte));
        let last = format!("/CN={number}");
        let subject = proxy.subject().one_line();
        assert!(subject.ends_with(&last), "{subject} {number}");

        let file = pki.path().join("proxy.der");
        fs::write(&file, proxy.der()).expect("written");
        let text = run(openssl(["x509", "-inform", "DER", "-noout", "-text", "-in"]).arg(&file));
        for expected in [
            "Digital Signature, Key Agreement\n",
            "TLS Web Client Authentication, E-mail Protection",
            "Policy Language: 1.3.6.1.4.1.3536.1.1.1.9",
        ] {
            assert!(text.contains(expected), "{expected}: {text}");
        }
        run(openssl(["verify", "-allow_proxy_certs", "-CAfile"])
            .arg(&root.certificate_file)
            .arg("-untrusted")
            .arg(&user.certificate_file)
            .arg(&file));
    }
}

#[test]
fn proxies_of_proxies_are_signed() {
    let pki = Pki::new();
    let root = pki.root("/DC=test/CN=Root");
    let user = pki.issue(&root, "/DC=test/CN=Alice", USER);
    for (kind, policy) in [
        (FULL, ProxyPolicy::InheritAll),
        (FULL, ProxyPolicy::Limited),
        (LIMITED, ProxyPolicy::Limited),
        (LIMITED, ProxyPolicy::Independent),
    ] {
        let proxy = pki.proxy(&user, kind);
        let issuer = credential(&[&proxy, &user]);
        let (_, request) = key_and_request();
        let second = sign(&issuer, &request, policy.clone(), now()).expect("signed");
        let info = second.proxy().expect("it is a proxy");
        assert_eq!(info.policy, policy);
        assert_eq!(info.family, ProxyFamily::Rfc3820);
        assert_eq!(info.path_length, None);
    }
}

#[test]
fn invalid_proxies_are_not_signed() {
    let pki = Pki::new();
    let root = pki.root("/DC=test/CN=Root");
    let user = pki.issue(&root, "/DC=test/CN=Alice", USER);
    let limited = pki.proxy(&user, LIMITED);
    let last = pki.proxy(&user, &format!("{FULL},pathlen:0"));
    let next_to_last = pki.proxy(&user, &format!("{FULL},pathlen:1"));
    let below = pki.proxy(&next_to_last, FULL);
    let enciphers = pki.issue(
        &root,
        "/DC=test/CN=Bob",
        "keyUsage=critical,keyEncipherment",
    );
    let (_, request) = key_and_request();
    let later = now() + Duration::from_secs(60 * 86400);
    for (chain, policy, time, reason) in [
        (
            &[&limited, &user][..],
            ProxyPolicy::InheritAll,
            now(),
            "limited",
        ),
        (&[&last, &user], ProxyPolicy::Limited, now(), "path length"),
        (
            &[&below, &next_to_last, &user],
            ProxyPolicy::Limited,
            now(),
            "path length",
        ),
        (&[&enciphers], ProxyPolicy::Limited, now(), "key usage"),
        (&[&user], ProxyPolicy::Other, now(), "policy"),
        (&[&user], ProxyPolicy::Limited, later, "expired"),
    ] {
        let error = sign(&credential(chain), &request, policy, time).expect_err(reason);
        assert!(error.to_string().contains(reason), "{error}");
    }
    let issuer = credential(&[&next_to_last, &user]);
    sign(&issuer, &request, ProxyPolicy::Limited, now()).expect("one is allowed");
}

#[test]
fn issued_proxies_end_after_their_lifetime_or_with_the_issuer() {
    let pki = Pki::new();
    let root = pki.root("/DC=test/CN=Root");
    let user = pki.issue(&root, "/DC=test/CN=Alice", USER);
    let issuer = credential(&[&user]);
    let hour = Duration::from_secs(3600);
    for (lifetime, end) in [
        (hour, now() + hour),
        (Duration::from_secs(u64::from(u32::MAX)), issuer.expires()),
        (Duration::MAX, issuer.expires()),
    ] {
        let key = PrivateKey::generate_ec().expect("a key");
        let start = now();
        let proxy = issue(&issuer, key, ProxyPolicy::InheritAll, start, lifetime).expect("signed");
        let not_after = proxy.leaf().validity().not_after;
        let early = end.duration_since(not_after).unwrap_or_default();
        // Certificates have whole seconds, and time passes.
        assert!(
            not_after <= end && early < Duration::from_secs(60),
            "{early:?}"
        );
        assert_eq!(proxy.identity(), issuer.leaf().subject());

        let pem = credential_pem(proxy.key(), proxy.chain()).expect("made here");
        let read = Credential::from_pem(&pem).expect("a proxy file");
        assert_eq!(
            read.chain(),
            [proxy.leaf(), issuer.leaf()].map(Clone::clone)
        );
    }
}

#[test]
fn a_chain_of_proxies_is_bounded() {
    let pki = Pki::new();
    let root = pki.root("/DC=test/CN=Root");
    let user = pki.issue(&root, "/DC=test/CN=Alice", USER);
    let mut issuer = credential(&[&user]);
    let error = loop {
        let key = PrivateKey::generate_ec().expect("a key");
        let hour = Duration::from_secs(3600);
        match issue(&issuer, key, ProxyPolicy::InheritAll, now(), hour) {
            Ok(proxy) => issuer = proxy.into(),
            Err(error) => break error,
        }
    };
    assert!(error.to_string().contains("too many proxies"), "{error}");
}
