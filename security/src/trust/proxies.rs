//! The rules for proxies (RFC 3820 4, and those of Globus for limited proxies).

use std::time::SystemTime;

use der::asn1::ObjectIdentifier;

use super::{ChainError, authorities};
use crate::asn1::is_identifier;
use crate::certificate::{BASIC_CONSTRAINTS, Certificate, SUBJECT_ALTERNATIVE_NAME};
use crate::proxy::{ProxyInfo, ProxyPolicy};

const ISSUER_ALTERNATIVE_NAME: ObjectIdentifier = ObjectIdentifier::new_unwrap("2.5.29.18");

/// The number of proxies at the start of a path.
pub(super) fn count(path: &[&Certificate]) -> usize {
    path.iter().take_while(|one| one.proxy().is_some()).count()
}

/// Checks the proxies of a path, whose last certificate is that of the user or host.
pub(super) fn check(path: &[&Certificate], now: SystemTime) -> Result<(), ChainError> {
    for (index, pair) in path.windows(2).enumerate().rev() {
        let [certificate, issuer] = pair else {
            continue;
        };
        if let Some(proxy) = certificate.proxy() {
            authorities::check_itself(certificate, now)?;
            check_issuer(certificate, issuer)?;
            check_extensions(certificate)?;
            check_kind(certificate, proxy, issuer.proxy())?;
            // RFC 3820 3.8.1: counts the proxies below it.
            check_path_length(certificate, proxy, index)?;
        }
    }
    Ok(())
}

fn check_issuer(certificate: &Certificate, issuer: &Certificate) -> Result<(), ChainError> {
    let names = || (certificate.subject().clone(), issuer.subject().clone());
    // RFC 3820 3.4
    if !issuer.subject().is_extended_by(certificate.subject()) {
        let (certificate, issuer) = names();
        return Err(ChainError::ProxyName {
            certificate,
            issuer,
        });
    }
    // RFC 3820 3.1
    if issuer.is_authority() {
        let certificate = issuer.subject().clone();
        return Err(ChainError::AuthorityAsUser { certificate });
    }
    if issuer.key_usage().is_some_and(|usage| !usage.may_sign) {
        let (certificate, issuer) = names();
        return Err(ChainError::ProxyIssuerUsage {
            certificate,
            issuer,
        });
    }
    Ok(())
}

/// RFC 3820 3.5, 3.6 and 3.7
fn check_extensions(certificate: &Certificate) -> Result<(), ChainError> {
    let refuse = |identifier: &ObjectIdentifier| {
        Err(ChainError::ProxyExtension {
            certificate: certificate.subject().clone(),
            identifier: identifier.to_string(),
        })
    };
    if certificate.is_authority() {
        return refuse(&BASIC_CONSTRAINTS);
    }
    for identifier in [SUBJECT_ALTERNATIVE_NAME, ISSUER_ALTERNATIVE_NAME] {
        if certificate.find_extension(&identifier).is_some() {
            return refuse(&identifier);
        }
    }
    Ok(())
}

fn check_kind(
    certificate: &Certificate,
    proxy: &ProxyInfo,
    issuer: Option<&ProxyInfo>,
) -> Result<(), ChainError> {
    let identifier = proxy.family.extension_identifier();
    let is_critical = certificate
        .extensions()
        .any(|one| one.is_critical && is_identifier(one.identifier, &identifier));
    let certificate = certificate.subject().clone();
    // RFC 3820 3.8: software that ignores the extension would take it for a user's certificate.
    if !is_critical {
        return Err(ChainError::ProxyNotCritical { certificate });
    }
    if proxy.policy == ProxyPolicy::Other {
        return Err(ChainError::ProxyPolicy { certificate });
    }
    let Some(issuer) = issuer else {
        return Ok(());
    };
    if proxy.family != issuer.family {
        return Err(ChainError::ProxyKinds { certificate });
    }
    match (&issuer.policy, &proxy.policy) {
        (ProxyPolicy::Limited, ProxyPolicy::InheritAll) => {
            Err(ChainError::BeyondLimited { certificate })
        }
        _ => Ok(()),
    }
}

fn check_path_length(
    certificate: &Certificate,
    proxy: &ProxyInfo,
    found: usize,
) -> Result<(), ChainError> {
    match proxy.path_length {
        Some(limit) if found > limit as usize => Err(ChainError::ProxyPathLength {
            certificate: certificate.subject().clone(),
            limit,
            found,
        }),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests;
