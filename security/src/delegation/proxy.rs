//! Signs proxy certificates (RFC 3820), as globus-gssapi-gsi 14.20 does.

#[cfg(test)]
mod tests;

use std::time::{Duration, SystemTime};

use aws_lc_rs::digest::{SHA1_FOR_LEGACY_USE_ONLY, digest};
use der::Tag;
use der::asn1::ObjectIdentifier;

use super::DelegationError;
use super::request::public_key_info;
use crate::asn1::Elements;
use crate::certificate::Certificate;
use crate::credential::{Credential, CredentialError};
use crate::encode::{
    BIT_STRING, SEQUENCE, Unsigned, common_name, element, extension, number, proxy_cert_info,
    validity,
};
use crate::key::PrivateKey;
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
    let key_info = public_key_info(request)?;
    let valid = Period {
        now,
        end: issuer.expires(),
    };
    sign_key(issuer, key_info, &policy, valid)
}

/// Makes a proxy on the machine of its issuer: `key` is new, and signs nothing else. It is valid for `lifetime`, and no longer
/// than the issuer's chain.
///
/// # Errors
///
/// When the issuer may not sign such a proxy.
pub fn issue(
    issuer: &Credential,
    key: PrivateKey,
    policy: ProxyPolicy,
    now: SystemTime,
    lifetime: Duration,
) -> Result<Credential, DelegationError> {
    let end = match now.checked_add(lifetime) {
        Some(end) => end.min(issuer.expires()),
        None => issuer.expires(),
    };
    let proxy = sign_key(issuer, &key.public_key_info(), &policy, Period { now, end })?;
    let above = issuer.chain().iter().cloned();
    let chain = [proxy].into_iter().chain(above).collect();
    Credential::new(chain, key).map_err(|error| match error {
        CredentialError::Certificate(error) => error.into(),
        CredentialError::Key(error) => error.into(),
        error => DelegationError::Issuer {
            issuer: issuer.leaf().subject().one_line().to_owned(),
            reason: match error {
                CredentialError::TooLong => "its chain has too many proxies",
                _ => "the proxy has another key",
            },
        },
    })
}

/// When a proxy is valid.
struct Period {
    now: SystemTime,
    end: SystemTime,
}

/// Signs a proxy for a `SubjectPublicKeyInfo`.
fn sign_key(
    issuer: &Credential,
    key_info: &[u8],
    policy: &ProxyPolicy,
    valid: Period,
) -> Result<Certificate, DelegationError> {
    let refused = |reason| DelegationError::Issuer {
        issuer: issuer.leaf().subject().one_line().to_owned(),
        reason,
    };
    let language = policy
        .language()
        .ok_or_else(|| refused("its policy cannot be encoded"))?;
    check(issuer, policy, valid.now).map_err(refused)?;

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
    let validity = validity(valid.now - CLOCK_SKEW, valid.end)
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
