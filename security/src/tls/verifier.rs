//! Validates the peer's chain against the trust store, and verifies the peer's signatures.

use std::sync::{Arc, OnceLock};
use std::time::{Duration, SystemTime};

use der::Decode;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, verify_tls13_signature_with_raw_key};
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::{
    CertificateError, DigitallySignedStruct, DistinguishedName, PeerMisbehaved, SignatureScheme,
};
use rustls_pki_types::{CertificateDer, ServerName, SubjectPublicKeyInfoDer, UnixTime};
use x509_cert::spki::SubjectPublicKeyInfoRef;

use super::{RefusedChain, TlsError, hello};
use crate::certificate::Certificate;
use crate::name::Name;
use crate::trust::{ChainError, Peer, TrustStore};

/// Verifies the peer of one connection, on either side, and keeps the result.
///
/// The helpers of rustls for signatures parse the certificate and fail at the critical extension ProxyCertInfo. So signatures
/// are verified with the public key of the certificate.
#[derive(Debug)]
pub(super) struct PeerVerifier {
    trust: Arc<TrustStore>,
    provider: Arc<CryptoProvider>,
    outcome: OnceLock<Result<Peer, Box<RefusedChain>>>,
}

impl PeerVerifier {
    pub(super) fn new(trust: Arc<TrustStore>, provider: Arc<CryptoProvider>) -> Self {
        Self {
            trust,
            provider,
            outcome: OnceLock::new(),
        }
    }

    /// The identity of the peer. Its signature is verified only when the handshake is complete.
    pub(super) fn peer(&self) -> Option<&Peer> {
        self.outcome.get()?.as_ref().ok()
    }

    /// Why the peer's chain was refused.
    pub(super) fn refusal(&self) -> Option<TlsError> {
        let refused = self.outcome.get()?.as_ref().err()?;
        Some(refused.clone().into())
    }

    fn verify(
        &self,
        leaf: &CertificateDer<'_>,
        rest: &[CertificateDer<'_>],
        now: UnixTime,
    ) -> Result<(), rustls::Error> {
        let chain = std::iter::once(leaf)
            .chain(rest)
            .map(|der| Certificate::from_der(der))
            .collect::<Result<Vec<_>, _>>()
            .map_err(|error| rustls::Error::General(error.to_string()))?;
        let now = SystemTime::UNIX_EPOCH + Duration::from_secs(now.as_secs());
        let outcome = self.outcome.get_or_init(|| {
            self.trust.validate(&chain, now).map_err(|reason| {
                Box::new(RefusedChain {
                    reason,
                    claimed: claimed(&chain),
                })
            })
        });
        match outcome {
            Ok(_) => Ok(()),
            Err(refused) => Err(rustls::Error::InvalidCertificate(alert(&refused.reason))),
        }
    }

    fn public_key(&self) -> Result<&[u8], rustls::Error> {
        // rustls verifies signatures after the certificate (RFC 8446 4.4.3).
        self.peer()
            .and_then(|peer| peer.chain.first())
            .map(Certificate::public_key_info)
            .ok_or(rustls::Error::NoCertificatesPresented)
    }

    fn verify_tls12(
        &self,
        transcript: &[u8],
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let transcript = hello::original_transcript(transcript);
        let key = SubjectPublicKeyInfoRef::from_der(self.public_key()?)
            .ok()
            .and_then(|key| key.subject_public_key.as_bytes())
            .ok_or(CertificateError::BadEncoding)?;
        let (_, algorithms) = self
            .provider
            .signature_verification_algorithms
            .mapping
            .iter()
            .find(|(scheme, _)| *scheme == signed.scheme)
            .ok_or(PeerMisbehaved::SignedHandshakeWithUnadvertisedSigScheme)?;
        // RFC 5246 7.4.1.4.1: the scheme does not determine the curve, so all are tried. A key of another kind fails.
        algorithms
            .iter()
            .any(|algorithm| {
                algorithm
                    .verify_signature(key, &transcript, signed.signature())
                    .is_ok()
            })
            .then(HandshakeSignatureValid::assertion)
            .ok_or_else(|| CertificateError::BadSignature.into())
    }

    fn verify_tls13(
        &self,
        message: &[u8],
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls13_signature_with_raw_key(
            message,
            &SubjectPublicKeyInfoDer::from(self.public_key()?),
            signed,
            &self.provider.signature_verification_algorithms,
        )
    }

    fn schemes(&self) -> Vec<SignatureScheme> {
        self.provider
            .signature_verification_algorithms
            .supported_schemes()
    }
}

/// The subject of the first certificate that is not a proxy.
fn claimed(chain: &[Certificate]) -> Option<Name> {
    let holder = chain
        .iter()
        .find(|certificate| certificate.proxy().is_none());
    holder
        .or_else(|| chain.first())
        .map(|certificate| certificate.subject().clone())
}

/// The alert for the peer. The detailed reason is only logged here.
fn alert(error: &ChainError) -> CertificateError {
    match error {
        ChainError::Expired { .. } | ChainError::NotYetValid { .. } => CertificateError::Expired,
        ChainError::Revoked { .. } => CertificateError::Revoked,
        ChainError::UnknownIssuer { .. } | ChainError::UntrustedRoot { .. } => {
            CertificateError::UnknownIssuer
        }
        _ => CertificateError::ApplicationVerificationFailure,
    }
}

impl ClientCertVerifier for PeerVerifier {
    // No hints: GSI clients have one chain, and send it.
    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        &[]
    }

    fn verify_client_cert(
        &self,
        leaf: &CertificateDer<'_>,
        rest: &[CertificateDer<'_>],
        now: UnixTime,
    ) -> Result<ClientCertVerified, rustls::Error> {
        self.verify(leaf, rest, now)
            .map(|()| ClientCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        _: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        self.verify_tls12(message, signed)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        _: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        self.verify_tls13(message, signed)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.schemes()
    }
}

impl ServerCertVerifier for PeerVerifier {
    // Host names are not checked: the callers compare identities.
    fn verify_server_cert(
        &self,
        leaf: &CertificateDer<'_>,
        rest: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        self.verify(leaf, rest, now)
            .map(|()| ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        _: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        self.verify_tls12(message, signed)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        _: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        self.verify_tls13(message, signed)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.schemes()
    }
}
