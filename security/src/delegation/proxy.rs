//! Signs proxy certificates (RFC 3820), as globus-gssapi-gsi 14.20 does.

use std::time::{Duration, SystemTime};

use aws_lc_rs::digest::{SHA1_FOR_LEGACY_USE_ONLY, digest};
use der::Tag;
use der::asn1::ObjectIdentifier;

use super::DelegationError;
use super::request::public_key_info;
use crate::asn1::Elements;
use crate::certificate::Certificate;
use crate::credential::Credential;
use crate::encode::{
    BIT_STRING, SEQUENCE, Unsigned, common_name, element, extension, number, proxy_cert_info,
    validity,
};
use crate::proxy::{ProxyFamily, ProxyPolicy};

const KEY_USAGE: ObjectIdentifier = ObjectIdentifier::new_unwrap("2.5.29.15");
const EXTENDED_KEY_USAGE: ObjectIdentifier = ObjectIdentifier::new_unwrap("2.5.29.37");

/// By how much a proxy becomes valid earlier, for verifiers whose clocks are slow.
const CLOCK_SKEW: Duration = Duration::from_secs(300);

/// Bits of the first byte of a key usage (RFC 5280 4.2.1.3).
const DIGITAL_SIGNATURE: u8 = 0x80;
const NON_REPUDIATION: u8 = 0x40;
const KEY_CERT_SIGN: u8 = 0x04;

/// Signs a proxy for a request. It is valid until the earliest end in the issuer's chain.
///
/// # Errors
///
/// When the request is invalid, or the issuer may not sign such a proxy, which no verifier would accept.
pub fn sign(
    issuer: &Credential,
    request: &[u8],
    policy: ProxyPolicy,
    now: SystemTime,
) -> Result<Certificate, DelegationError> {
    let refused = |reason| DelegationError::Issuer {
        issuer: issuer.leaf().subject().one_line().to_owned(),
        reason,
    };
    let key_info = public_key_info(request)?;
    let language = policy
        .language()
        .ok_or_else(|| refused("its policy cannot be encoded"))?;
    check(issuer, &policy, now).map_err(refused)?;

    let serial = serial(key_info);
    let leaf = issuer.leaf();
    let family = leaf
        .proxy()
        .map_or(ProxyFamily::Rfc3820, |proxy| proxy.family);
    let subject = extended(leaf.subject().as_der(), &serial.to_string())
        .ok_or_else(|| refused("its subject is malformed"))?;
    let usages = usages(leaf).ok_or_else(|| {
        refused("its key usage is malformed, or has no digital signatures (RFC 3820 3.2)")
    })?;
    let validity = validity(now - CLOCK_SKEW, issuer.expires())
        .map_err(|_| refused("its end of validity cannot be encoded"))?;
    let information = extension(
        &family.extension_identifier(),
        true,
        &proxy_cert_info(&language),
    );
    let extensions = element(SEQUENCE, &[&usages, &information]);

    let unsigned = Unsigned {
        serial: &number(serial),
        issuer: leaf.subject().as_der(),
        validity: &validity,
        subject: &subject,
        key_info,
        extensions: &extensions,
    };
    Ok(Certificate::from_der(&unsigned.sign(issuer.key())?)?)
}

/// The requirements of RFC 3820 on the issuer of a proxy.
fn check(issuer: &Credential, policy: &ProxyPolicy, now: SystemTime) -> Result<(), &'static str> {
    if issuer.expires() <= now {
        return Err("it has expired");
    }
    let proxies = issuer
        .chain()
        .iter()
        .map_while(Certificate::proxy)
        .enumerate();
    for (below, proxy) in proxies {
        if proxy.path_length.is_some_and(|most| below >= most as usize) {
            return Err("its path length allows no more proxies (RFC 3820 3.8)");
        }
    }
    let is_limited = issuer
        .leaf()
        .proxy()
        .is_some_and(|proxy| proxy.policy == ProxyPolicy::Limited);
    if is_limited && *policy == ProxyPolicy::InheritAll {
        return Err("a limited proxy cannot issue a full one");
    }
    Ok(())
}

/// The serial number, which must be new for the issuer. GSI derives it from the key.
fn serial(key_info: &[u8]) -> u32 {
    let hash = digest(&SHA1_FOR_LEGACY_USE_ONLY, key_info);
    match *hash.as_ref() {
        [a, b, c, d, ..] => u32::from_le_bytes([a, b, c, d >> 1]),
        _ => 0,
    }
}

/// RFC 3820 3.4: the issuer's name with one further CN.
fn extended(name: &[u8], value: &str) -> Option<Vec<u8>> {
    let name = Elements::only(name, Tag::Sequence).ok()?;
    Some(element(SEQUENCE, &[name.content(), &common_name(value)]))
}

/// The key usage extensions of the issuer, without the uses that are forbidden to proxies. `None` if the key usage does not
/// permit digital signatures.
fn usages(issuer: &Certificate) -> Option<Vec<u8>> {
    let mut extensions = Vec::new();
    if let Some(content) = issuer.extension(&EXTENDED_KEY_USAGE.to_string()) {
        extensions.extend(extension(&EXTENDED_KEY_USAGE, false, content));
    }
    if let Some(content) = issuer.extension(&KEY_USAGE.to_string()) {
        extensions.extend(extension(&KEY_USAGE, true, &key_usage(content)?));
    }
    Some(extensions)
}

/// A `KeyUsage` without non-repudiation and certificate signing.
fn key_usage(content: &[u8]) -> Option<Vec<u8>> {
    let bits = Elements::only(content, Tag::BitString).ok()?.content();
    let (_unused, bits) = bits.split_first()?;
    let first = bits.first()? & !(NON_REPUDIATION | KEY_CERT_SIGN);
    if first & DIGITAL_SIGNATURE == 0 {
        return None;
    }
    // The second byte has one bit: decipherOnly. X.690 11.2.2: no zeros at the end.
    let bits = match bits.get(1) {
        Some(second) if *second != 0 => vec![first, *second],
        _ => vec![first],
    };
    let unused = bits.last()?.trailing_zeros().to_be_bytes()[3];
    Some(element(BIT_STRING, &[&[unused], &bits]))
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use crate::delegation::request;
    use crate::key::PrivateKey;
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
            let text =
                run(openssl(["x509", "-inform", "DER", "-noout", "-text", "-in"]).arg(&file));
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
}
