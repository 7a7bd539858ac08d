//! The rules for users, hosts and the authorities above them (RFC 5280 6.1, as globus-gridftp-server applies it).

use std::time::SystemTime;

use der::asn1::ObjectIdentifier;

use super::constraints::{self, ConstraintError};
use super::{ChainError, RevocationList, TrustStore};
use crate::certificate::{BASIC_CONSTRAINTS, Certificate, KEY_USAGE, NAME_CONSTRAINTS};
use crate::name::dotted;
use crate::proxy::ProxyFamily;
use crate::signature;

/// The extensions that may be critical: those that globus-gridftp-server allows, and name constraints, which it evaluates
/// but does not allow to be critical.
const KNOWN_EXTENSIONS: &[ObjectIdentifier] = &[
    BASIC_CONSTRAINTS,
    KEY_USAGE,
    NAME_CONSTRAINTS,
    // extKeyUsage is not evaluated.
    ObjectIdentifier::new_unwrap("2.5.29.37"),
    // subjectKeyIdentifier, authorityKeyIdentifier
    ObjectIdentifier::new_unwrap("2.5.29.14"),
    ObjectIdentifier::new_unwrap("2.5.29.35"),
    // netscape-cert-type
    ObjectIdentifier::new_unwrap("2.16.840.1.113730.1.1"),
];

/// Checks a chain without its proxies: user or host first, anchor last.
pub(super) fn check(
    store: &TrustStore,
    path: &[&Certificate],
    now: SystemTime,
) -> Result<(), ChainError> {
    for (index, certificate) in path.iter().enumerate().rev() {
        let (below, above) = (&path[..index], &path[index + 1..]);
        check_itself(certificate, now)?;
        match index {
            0 => check_user(store, certificate, above)?,
            _ => check_authority(certificate, below, above.is_empty())?,
        }
        let Some(issuer) = above.first().copied() else {
            continue;
        };
        check_revocation(store, certificate, issuer, now)?;
        check_signing_policy(store, certificate, issuer)?;
        // RFC 5280 6.1.4: names of self-issued authorities are not checked.
        if index == 0 || !certificate.is_self_issued() {
            check_name_constraints(above, certificate)?;
        }
    }
    Ok(())
}

/// Checks a certificate against the name constraints of all authorities above it.
pub(super) fn check_name_constraints(
    authorities: &[&Certificate],
    certificate: &Certificate,
) -> Result<(), ChainError> {
    for authority in authorities {
        constraints::check(authority, certificate).map_err(|error| {
            let (certificate, authority) =
                (certificate.subject().clone(), authority.subject().clone());
            match error {
                ConstraintError::Outside(name) => ChainError::OutsideNameConstraints {
                    certificate,
                    authority,
                    name,
                },
                ConstraintError::Unusable(reason) => ChainError::UnusableNameConstraints {
                    certificate,
                    authority,
                    reason,
                },
            }
        })?;
    }
    Ok(())
}

/// Checks the requirements on every certificate, including proxies: validity, key size, critical extensions.
pub(super) fn check_itself(certificate: &Certificate, now: SystemTime) -> Result<(), ChainError> {
    let name = || certificate.subject().clone();
    let validity = certificate.validity();
    if now < validity.not_before {
        return Err(ChainError::NotYetValid {
            certificate: name(),
            from: validity.not_before,
        });
    }
    if now > validity.not_after {
        return Err(ChainError::Expired {
            certificate: name(),
            until: validity.not_after,
        });
    }
    if let Some(bits) = signature::unusable_rsa_bits(certificate.public_key_info()) {
        return Err(ChainError::KeySize {
            certificate: name(),
            bits,
        });
    }
    let families = [ProxyFamily::Rfc3820, ProxyFamily::Gsi3].map(ProxyFamily::extension_identifier);
    for extension in certificate.extensions() {
        let mut known = KNOWN_EXTENSIONS.iter().chain(&families);
        if extension.is_critical && !known.any(|known| known.as_bytes() == extension.identifier) {
            return Err(ChainError::CriticalExtension {
                certificate: name(),
                identifier: dotted(extension.identifier).unwrap_or_default(),
            });
        }
    }
    Ok(())
}

fn check_user(
    store: &TrustStore,
    user: &Certificate,
    above: &[&Certificate],
) -> Result<(), ChainError> {
    // A session may trust any certificate for its own data channels, and clients make self-signed ones for that.
    if store.is_extra_anchor(user) && above.is_empty() {
        return Ok(());
    }
    let certificate = user.subject().clone();
    if above.is_empty() || user.is_authority() {
        return Err(ChainError::AuthorityAsUser { certificate });
    }
    if certificate.is_empty() {
        let issuer = user.issuer().clone();
        return Err(ChainError::NoSubject { issuer });
    }
    Ok(())
}

fn check_authority(
    authority: &Certificate,
    below: &[&Certificate],
    is_anchor: bool,
) -> Result<(), ChainError> {
    let constraints = authority.basic_constraints();
    // Anchors of version 1 have no extensions, and are trusted by their bytes.
    let may_issue = constraints.map_or(is_anchor, |constraints| constraints.is_authority);
    // `below` is not empty: every path begins with a user or host.
    let issued = below[below.len() - 1];
    if !may_issue || authority.proxy().is_some() {
        return Err(match is_legacy_proxy(issued, authority) {
            true => ChainError::LegacyProxy {
                certificate: issued.subject().clone(),
            },
            false => ChainError::NotAnAuthority {
                certificate: issued.subject().clone(),
                issuer: authority.subject().clone(),
            },
        });
    }
    if authority
        .key_usage()
        .is_some_and(|usage| !usage.may_sign_certificates)
    {
        return Err(ChainError::AuthorityUsage {
            authority: authority.subject().clone(),
        });
    }
    // RFC 5280 4.2.1.9: neither self-issued authorities nor the user count.
    let found = below[1..]
        .iter()
        .filter(|one| !one.is_self_issued())
        .count();
    let limit = constraints.and_then(|constraints| constraints.path_length);
    match limit {
        Some(limit) if found > limit as usize => Err(ChainError::PathLength {
            authority: authority.subject().clone(),
            limit,
            found,
        }),
        _ => Ok(()),
    }
}

/// GSI-2 proxies have no extension and are recognized by their names.
fn is_legacy_proxy(certificate: &Certificate, issuer: &Certificate) -> bool {
    let names = certificate.subject().common_names();
    issuer.subject().is_extended_by(certificate.subject())
        && matches!(
            names.last().map(String::as_str),
            Some("proxy" | "limited proxy")
        )
}

fn check_signing_policy(
    store: &TrustStore,
    certificate: &Certificate,
    issuer: &Certificate,
) -> Result<(), ChainError> {
    if certificate.is_self_issued() || !store.needs_signing_policy(issuer) {
        return Ok(());
    }
    let (subject, authority) = (certificate.subject(), issuer.subject());
    let policies = store.signing_policies(authority);
    let (certificate, name) = (subject.clone(), authority.clone());
    if policies.is_empty() {
        return Err(ChainError::NoSigningPolicy {
            certificate,
            authority: name,
        });
    }
    let (issuer, issued) = (authority.one_line(), subject.one_line());
    if policies.iter().any(|policy| policy.allows(issuer, issued)) {
        return Ok(());
    }
    Err(ChainError::OutsideSigningPolicy {
        certificate,
        authority: name,
    })
}

/// Without a revocation list of the issuer, a certificate counts as not revoked. With one, a valid list must cover the
/// certificate.
fn check_revocation(
    store: &TrustStore,
    certificate: &Certificate,
    issuer: &Certificate,
    now: SystemTime,
) -> Result<(), ChainError> {
    let authority = || issuer.subject().clone();
    if let Some(file) = store.unusable_list_of(issuer.subject()) {
        return Err(ChainError::RevocationListUnusable {
            authority: authority(),
            file: file.to_owned(),
        });
    }
    let lists = store.revocation_lists_of(certificate.issuer());
    if lists.is_empty() {
        return Ok(());
    }
    // After a key rollover an authority has two lists.
    let signed: Vec<_> = lists
        .iter()
        .filter(|list| list.is_signed_by(issuer))
        .collect();
    if signed.is_empty() {
        return Err(ChainError::RevocationListSignature {
            authority: authority(),
        });
    }
    let mut is_covered = false;
    for list in signed.iter().filter(|list| list.covers(certificate)) {
        is_covered = true;
        // Of several issues of a list only the newest is used.
        if !signed.iter().any(|other| other.replaces(list)) {
            check_list(list, certificate, now)?;
        }
    }
    match is_covered {
        true => Ok(()),
        false => Err(ChainError::RevocationListScope {
            certificate: certificate.subject().clone(),
            authority: authority(),
        }),
    }
}

fn check_list(
    list: &RevocationList,
    certificate: &Certificate,
    now: SystemTime,
) -> Result<(), ChainError> {
    let authority = || list.issuer().clone();
    if now < list.this_update() {
        return Err(ChainError::RevocationListNotYetValid {
            authority: authority(),
            from: list.this_update(),
        });
    }
    if let Some(until) = list.next_update().filter(|until| now > *until) {
        return Err(ChainError::RevocationListExpired {
            authority: authority(),
            until,
        });
    }
    if list.has_revoked(certificate.serial()) {
        return Err(ChainError::Revoked {
            certificate: certificate.subject().clone(),
            serial: certificate
                .serial()
                .iter()
                .map(|byte| format!("{byte:02x}"))
                .collect(),
        });
    }
    Ok(())
}

#[cfg(test)]
mod tests;
