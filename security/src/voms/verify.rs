//! Verifies attribute certificates.

use std::time::{Duration, SystemTime};

use super::attribute_certificate::AttributeCertificate;
use super::servers::VomsServers;
use super::{Membership, VomsError};
use crate::certificate::Certificate;
use crate::signature::{self, SignatureError};
use crate::trust::{Peer, TrustStore};

/// The tolerance for the clock of a VOMS server that is ahead, so that new attribute certificates are valid at once.
const CLOCK_SKEW: Duration = Duration::from_secs(300);

/// The maximum number of certificates with the subject of a signer that are tried. A vomsdir has one or two.
const MAX_CANDIDATES: usize = 4;

/// The context of a verification.
pub(super) struct Verifier<'a> {
    /// The certificate that has issued the user's first proxy.
    pub(super) holder: &'a Certificate,
    pub(super) trust: &'a TrustStore,
    pub(super) servers: &'a VomsServers,
    pub(super) own_names: &'a [String],
    pub(super) now: SystemTime,
}

impl Verifier<'_> {
    /// Verifies an attribute certificate, cheap checks first.
    pub(super) fn verify(
        &self,
        certificate: AttributeCertificate<'_>,
    ) -> Result<Membership, VomsError> {
        self.check_holder(&certificate)?;
        self.check_time(&certificate)?;
        self.check_targets(&certificate)?;
        self.check_signer(&certificate)?;
        Ok(certificate.into())
    }

    /// RFC 5755 4.2.2: the holder is named by the issuer of its certificate. Older VOMS servers, and voms-proxy-fake 2.1, write
    /// the holder's subject instead, and the VOMS library accepts both.
    fn check_holder(&self, certificate: &AttributeCertificate<'_>) -> Result<(), VomsError> {
        let named = &certificate.holder_issuer;
        let is_named = named.matches(self.holder.issuer()) || named.matches(self.holder.subject());
        if is_named && certificate.holder_serial == self.holder.serial() {
            return Ok(());
        }
        Err(VomsError::Holder {
            vo: certificate.vo.clone(),
        })
    }

    fn check_time(&self, certificate: &AttributeCertificate<'_>) -> Result<(), VomsError> {
        let vo = || certificate.vo.clone();
        if certificate.validity.not_before > self.now + CLOCK_SKEW {
            return Err(VomsError::NotYetValid { vo: vo() });
        }
        if certificate.validity.not_after < self.now {
            return Err(VomsError::Expired { vo: vo() });
        }
        Ok(())
    }

    /// RFC 5755 4.3.2. Only host names are supported as targets.
    fn check_targets(&self, certificate: &AttributeCertificate<'_>) -> Result<(), VomsError> {
        let Some(targets) = &certificate.targets else {
            return Ok(());
        };
        let is_own = |target: &String| {
            let mut names = self.own_names.iter();
            names.any(|name| name.eq_ignore_ascii_case(target))
        };
        if targets.iter().any(is_own) {
            return Ok(());
        }
        Err(VomsError::Target {
            vo: certificate.vo.clone(),
            targets: match &targets[..] {
                [] => "no host".to_owned(),
                targets => targets.join(", "),
            },
        })
    }

    /// With an `.lsc` file, the signer is the certificate that was sent along, whose chain the file must list. Without one, the
    /// signer is a certificate of the vomsdir.
    fn check_signer(&self, certificate: &AttributeCertificate<'_>) -> Result<(), VomsError> {
        let AttributeCertificate { vo, host, .. } = certificate;
        let server = self.servers.server(vo, host);
        if let (Some(server), Some(signer)) = (server, certificate.certificates.first()) {
            let chain = self.validate(certificate, &certificate.certificates)?.chain;
            let is_named = signer.subject().matches(&certificate.issuer) && server.matches(&chain);
            if !is_named {
                return Err(VomsError::Signer {
                    vo: vo.clone(),
                    host: host.clone(),
                    signer: signer.subject().to_string(),
                });
            }
            return check_signature(certificate, signer);
        }
        let candidates = self.servers.certificates(vo, &certificate.issuer);
        let mut result = Err(VomsError::UnknownServer {
            vo: vo.clone(),
            host: host.clone(),
        });
        for signer in candidates.take(MAX_CANDIDATES) {
            result = check_signature(certificate, signer);
            if result.is_ok() {
                self.validate(certificate, std::slice::from_ref(signer))?;
                break;
            }
        }
        result
    }

    fn validate(
        &self,
        certificate: &AttributeCertificate<'_>,
        chain: &[Certificate],
    ) -> Result<Peer, VomsError> {
        self.trust
            .validate(chain, self.now)
            .map_err(|error| VomsError::Chain {
                vo: certificate.vo.clone(),
                error: Box::new(error),
            })
    }
}

fn check_signature(
    certificate: &AttributeCertificate<'_>,
    signer: &Certificate,
) -> Result<(), VomsError> {
    let verified = signature::verify(
        signer.public_key_info(),
        certificate.signature_algorithm,
        certificate.signed,
        certificate.signature,
    );
    verified.map_err(|error| {
        let vo = certificate.vo.clone();
        match error {
            SignatureError::Broken(algorithm) => VomsError::BrokenAlgorithm { vo, algorithm },
            SignatureError::Unknown | SignatureError::Wrong => VomsError::Signature { vo },
        }
    })
}

#[cfg(test)]
mod tests;
