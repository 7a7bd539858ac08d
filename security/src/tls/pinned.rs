//! TLS with a host of which only the fingerprint of its authority is known: a node that has no certificate yet, and the
//! control server that has invited it.
//!
//! The server sends the certificate of the authority too. The client accepts the authority by its fingerprint, and the
//! server by the authority.

use std::sync::{Arc, OnceLock};

use rustls::client::Resumption;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::server::NoServerSessionStorage;
use rustls::sign::{CertifiedKey, SigningKey, SingleCertAndKey};
use rustls::{
    CertificateError, ClientConfig, DigitallySignedStruct, ServerConfig, SignatureScheme,
};
use rustls_pki_types::{CertificateDer, ServerName, UnixTime};

use super::config::{no_name, versions};
use super::provider::{Records, provider};
use super::verifier::PeerVerifier;
use super::{RefusedChain, TlsError, TlsVersions};
use crate::certificate::{Certificate, Fingerprint};
use crate::trust::{Peer, TrustStore};

/// The accepting end. Its peers show no certificate. The chain is sent as it is, with its root.
///
/// # Errors
///
/// When the settings are invalid.
pub fn pinned_server(
    chain: &[Certificate],
    key: Arc<dyn SigningKey>,
    protocol: &[u8],
) -> Result<Arc<ServerConfig>, TlsError> {
    let chain = chain.iter().map(|one| one.der().to_vec().into()).collect();
    let identity = SingleCertAndKey::from(CertifiedKey::new(chain, key));
    let mut config = ServerConfig::builder_with_provider(provider(Records::Bulk))
        .with_protocol_versions(versions(TlsVersions::Only13))
        .map_err(|error| TlsError::protocol(error.to_string()))?
        .with_no_client_auth()
        .with_cert_resolver(Arc::new(identity));
    config.alpn_protocols = vec![protocol.to_vec()];
    config.send_tls13_tickets = 0;
    config.session_storage = Arc::new(NoServerSessionStorage {});
    Ok(Arc::new(config))
}

/// The connecting end of one handshake.
#[derive(Debug)]
pub struct PinnedConnector {
    /// For this handshake only.
    pub config: Arc<ClientConfig>,
    /// What it finds out about the server.
    pub verifier: Arc<PinnedVerifier>,
}

/// Verifies the server of one connection.
#[derive(Debug)]
pub struct PinnedVerifier {
    authority: Fingerprint,
    chain: OnceLock<PeerVerifier>,
}

/// Why the handshake fails. The text is a predicate: the name of the server goes before it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PinnedFault {
    /// It has no certificate of the authority.
    #[error("shows another authority than the one of the token")]
    OtherAuthority,
    /// The authority has not issued its certificate, or not for now.
    #[error(
        "presents a certificate that is not accepted: {0}; compare the clocks of both machines"
    )]
    Chain(Box<RefusedChain>),
    /// It speaks another protocol.
    #[error("does not invite nodes: is there another service at this port? ({0})")]
    Protocol(String),
}

impl PinnedConnector {
    /// Connects to a server of the authority with this fingerprint.
    ///
    /// # Errors
    ///
    /// When the settings are invalid.
    pub fn new(authority: Fingerprint, protocol: &[u8]) -> Result<Self, TlsError> {
        let verifier = Arc::new(PinnedVerifier {
            authority,
            chain: OnceLock::new(),
        });
        let server = Arc::clone(&verifier) as Arc<dyn ServerCertVerifier>;
        let mut config = ClientConfig::builder_with_provider(provider(Records::Bulk))
            .with_protocol_versions(versions(TlsVersions::Only13))
            .map_err(|error| TlsError::protocol(error.to_string()))?
            .dangerous()
            .with_custom_certificate_verifier(server)
            .with_no_client_auth();
        config.alpn_protocols = vec![protocol.to_vec()];
        config.resumption = Resumption::disabled();
        config.enable_sni = false;
        Ok(Self {
            config: Arc::new(config),
            verifier,
        })
    }

    /// The name that rustls requires.
    pub fn server_name(&self) -> ServerName<'static> {
        no_name()
    }
}

impl PinnedVerifier {
    /// The verified chain of the server, after a complete handshake.
    pub fn chain(&self) -> Option<&[Certificate]> {
        let peer: &Peer = self.chain.get()?.peer()?;
        Some(&peer.chain)
    }

    /// Why the handshake has failed with this error.
    pub fn fault(&self, error: &rustls::Error) -> PinnedFault {
        match self.chain.get().map(PeerVerifier::refusal) {
            Some(Some(TlsError::Chain(refused))) => PinnedFault::Chain(refused),
            Some(_) => PinnedFault::Protocol(error.to_string()),
            None if matches!(error, rustls::Error::InvalidCertificate(_)) => {
                PinnedFault::OtherAuthority
            }
            None => PinnedFault::Protocol(error.to_string()),
        }
    }

    fn verified(&self) -> Result<&PeerVerifier, rustls::Error> {
        // rustls verifies signatures after the certificate (RFC 8446 4.4.3).
        let verified = self.chain.get();
        verified.ok_or(rustls::Error::NoCertificatesPresented)
    }
}

impl ServerCertVerifier for PinnedVerifier {
    fn verify_server_cert(
        &self,
        leaf: &CertificateDer<'_>,
        rest: &[CertificateDer<'_>],
        name: &ServerName<'_>,
        stapled: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        let is_pinned = |one: &&CertificateDer<'_>| Fingerprint::of(one) == self.authority;
        let authority = rest.iter().find(is_pinned);
        let authority = authority.ok_or(CertificateError::UnknownIssuer)?;
        let authority = Certificate::from_der(authority);
        let authority = authority.map_err(|_| CertificateError::BadEncoding)?;
        let verifier = self.chain.get_or_init(|| {
            let trust = TrustStore::default().with_only_anchors(&[authority]);
            PeerVerifier::new(Arc::new(trust), provider(Records::Tokens))
        });
        verifier.verify_server_cert(leaf, rest, name, stapled, now)
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        leaf: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        ServerCertVerifier::verify_tls12_signature(self.verified()?, message, leaf, signed)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        leaf: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        ServerCertVerifier::verify_tls13_signature(self.verified()?, message, leaf, signed)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        provider(Records::Tokens)
            .signature_verification_algorithms
            .supported_schemes()
    }
}
