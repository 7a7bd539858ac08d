//! VOMS attributes: the memberships of a user in virtual organizations, which the user's proxy contains.
//!
//! A proxy contains attribute certificates in a non-critical extension. An attribute certificate is valid if the vomsdir lists
//! its issuer for the virtual organization, the issuer's chain and the signature are valid, and the holder is the user of the
//! proxy. An invalid one is ignored: it does not prevent the login.

mod attribute_certificate;
mod servers;
mod verify;

use std::fmt;
use std::time::SystemTime;

use der::asn1::ObjectIdentifier;

pub use servers::{ServerError, VomsServers};

use crate::proxy::ProxyPolicy;
use crate::trust::{ChainError, Peer, TrustStore};
use attribute_certificate::{AttributeCertificate, Malformed};

/// The extension of a proxy with its attribute certificates.
const EXTENSION: ObjectIdentifier = ObjectIdentifier::new_unwrap("1.3.6.1.4.1.8005.100.100.5");

/// The maximum number of attribute certificates, each of which costs several signature verifications.
const MAX_ATTRIBUTE_CERTIFICATES: usize = 16;

const MAX_FQAN: usize = 1000;

/// A fully qualified attribute name, for example `/atlas/Role=production`. `/Role=NULL` and `/Capability=NULL` at its end are
/// removed.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Fqan(String);

/// The content of a verified attribute certificate.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Membership {
    /// The virtual organization.
    pub vo: String,
    /// Its attributes, the primary one first; there is at least one.
    pub attributes: Vec<Fqan>,
    /// The end of its validity.
    pub expires: SystemTime,
}

/// Why an attribute certificate is ignored.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum VomsError {
    /// It is malformed.
    #[error("the VOMS attributes are malformed: {0}")]
    Malformed(String),
    /// Its holder is another user.
    #[error("the VOMS attributes of {vo} belong to another certificate than the user's")]
    Holder {
        /// The virtual organization.
        vo: String,
    },
    /// It is not valid yet.
    #[error("the VOMS attributes of {vo} are not valid yet: check the clocks")]
    NotYetValid {
        /// The virtual organization.
        vo: String,
    },
    /// It has expired.
    #[error("the VOMS attributes of {vo} have expired: the user needs a new proxy")]
    Expired {
        /// The virtual organization.
        vo: String,
    },
    /// It is restricted to other hosts.
    #[error("the VOMS attributes of {vo} are meant for {targets}, and this is another host")]
    Target {
        /// The virtual organization.
        vo: String,
        /// The hosts.
        targets: String,
    },
    /// The vomsdir has no file for its server.
    #[error(
        "the vomsdir has no server of {vo} on {host}: if it is to be trusted, add {vo}/{host}.lsc"
    )]
    UnknownServer {
        /// The virtual organization.
        vo: String,
        /// The host of its server.
        host: String,
    },
    /// The vomsdir lists other signers for its server.
    #[error(
        "the VOMS attributes of {vo} were signed by {signer}, which {vo}/{host}.lsc does not name"
    )]
    Signer {
        /// The virtual organization.
        vo: String,
        /// The host of its server.
        host: String,
        /// The subject of the signer's certificate.
        signer: String,
    },
    /// The certificate of its issuer is not accepted.
    #[error("the signer of the VOMS attributes of {vo} is not accepted: {error}")]
    Chain {
        /// The virtual organization.
        vo: String,
        /// The reason.
        error: Box<ChainError>,
    },
    /// The signature algorithm is broken.
    #[error("the VOMS attributes of {vo} are signed with {algorithm}, which is broken")]
    BrokenAlgorithm {
        /// The virtual organization.
        vo: String,
        /// The algorithm.
        algorithm: &'static str,
    },
    /// The signature is wrong.
    #[error("the signature of the VOMS attributes of {vo} is wrong")]
    Signature {
        /// The virtual organization.
        vo: String,
    },
}

impl From<Malformed> for VomsError {
    fn from(Malformed(reason): Malformed) -> Self {
        Self::Malformed(reason)
    }
}

impl From<AttributeCertificate<'_>> for Membership {
    fn from(certificate: AttributeCertificate<'_>) -> Self {
        Self {
            expires: certificate.validity.not_after,
            vo: certificate.vo,
            attributes: certificate.attributes,
        }
    }
}

impl Fqan {
    /// Parses and shortens a name.
    pub fn new(text: &str) -> Option<Self> {
        let short = text.strip_suffix("/Capability=NULL").unwrap_or(text);
        let short = short.strip_suffix("/Role=NULL").unwrap_or(short);
        let is_name = short.len() <= MAX_FQAN
            && !short.contains(char::is_control)
            && short.strip_prefix('/').is_some_and(|rest| {
                rest.split('/').all(|part| !part.is_empty()) && !rest.is_empty()
            });
        is_name.then(|| Self(short.to_owned()))
    }

    /// The text.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The virtual organization: the first part.
    pub fn organization(&self) -> &str {
        let rest = &self.0[1..];
        rest.split_once('/').map_or(rest, |(first, _)| first)
    }
}

impl fmt::Display for Fqan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// The content of the attribute certificates in an extension, without verification.
///
/// # Errors
///
/// When one of them is malformed.
pub fn claims(extension: &[u8]) -> Result<Vec<Membership>, VomsError> {
    attribute_certificate::split(extension, MAX_ATTRIBUTE_CERTIFICATES)?
        .into_iter()
        .map(|encoding| Ok(AttributeCertificate::parse(encoding)?.into()))
        .collect()
}

/// The memberships in the proxies of a verified chain, those of the lowest proxy first, and why others are ignored.
/// `own_names` are the names of this host, for attributes that are restricted to certain hosts.
pub fn memberships(
    peer: &Peer,
    trust: &TrustStore,
    servers: &VomsServers,
    own_names: &[String],
    now: SystemTime,
) -> (Vec<Membership>, Vec<VomsError>) {
    let mut memberships = Vec::new();
    let mut errors = Vec::new();
    // RFC 3820 3.8.2: an independent proxy inherits no rights from its issuer, so the search ends there.
    let holder = peer.chain.iter().position(|certificate| {
        !certificate.proxy().is_some_and(|proxy| {
            matches!(proxy.policy, ProxyPolicy::InheritAll | ProxyPolicy::Limited)
        })
    });
    let (proxies, holder) = match holder {
        Some(position) => (&peer.chain[..position], &peer.chain[position]),
        None => return (memberships, errors),
    };
    let verifier = verify::Verifier {
        holder,
        trust,
        servers,
        own_names,
        now,
    };
    let mut left = MAX_ATTRIBUTE_CERTIFICATES;
    for extension in proxies
        .iter()
        .filter_map(|proxy| proxy.find_extension(&EXTENSION))
    {
        let encodings = match attribute_certificate::split(extension, left) {
            Ok(encodings) => encodings,
            Err(malformed) => {
                errors.push(malformed.into());
                continue;
            }
        };
        left -= encodings.len();
        for encoding in encodings {
            let parsed = AttributeCertificate::parse(encoding).map_err(VomsError::from);
            match parsed.and_then(|certificate| verifier.verify(certificate)) {
                Ok(membership) => memberships.push(membership),
                Err(error) => errors.push(error),
            }
        }
    }
    (memberships, errors)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fqans_are_shortened() {
        for (text, short, organization) in [
            ("/atlas/Role=NULL/Capability=NULL", "/atlas", "atlas"),
            (
                "/atlas/Role=production/Capability=NULL",
                "/atlas/Role=production",
                "atlas",
            ),
            (
                "/vo.example.org/sub/Role=NULL",
                "/vo.example.org/sub",
                "vo.example.org",
            ),
            ("/a/Role=x/Capability=y", "/a/Role=x/Capability=y", "a"),
        ] {
            let fqan = Fqan::new(text).expect(text);
            assert_eq!(fqan.as_str(), short);
            assert_eq!(fqan.organization(), organization);
        }
        for text in [
            "",
            "/",
            "atlas",
            "//",
            "/a/",
            "/a//b",
            "/a\nb",
            "/Role=NULL",
        ] {
            assert_eq!(Fqan::new(text), None, "{text:?}");
        }
    }
}
