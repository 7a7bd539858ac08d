//! TLS between hosts of one site: control servers and data nodes. Both ends present host certificates, and rustls protects the
//! records.
//!
//! Chains are validated as in GSI: trust directory, signing policies, revocation lists. In addition the peer must not have a
//! proxy, and must be the host that was dialled, or a listed control server. Verifiers refuse during the handshake, so that the
//! peer gets an alert.

mod again;

use std::str::FromStr;
use std::sync::{Arc, OnceLock};
use std::time::SystemTime;

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::sign::{SigningKey, SingleCertAndKey};
use rustls::{
    CertificateError, ClientConfig, DigitallySignedStruct, DistinguishedName, ServerConfig,
    SignatureScheme,
};
use rustls_pki_types::{CertificateDer, ServerName, UnixTime};

use super::peer_fault::PeerFault;
use super::provider::Records;
use super::verifier::PeerVerifier;
use super::{TlsError, TlsSettings, TlsVersions, config};
use crate::certificate::Certificate;
use crate::host_name::{HostName, HostNameError, hosts_of};
use crate::name::Name;
use crate::trust::{Peer, TrustStore};

pub use again::{validate_control_server, validate_node};

/// The protocol inside: HTTP/2 (RFC 9113 3.2).
const ALPN: &[u8] = b"h2";

/// A control server that a node accepts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Principal {
    /// The subject of its certificate, in the one-line form.
    Subject(String),
    /// A host that its certificate is for.
    Host(HostName),
}

/// The peer of a connection whose handshake is complete.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PeerIdentity {
    /// The subject of its certificate.
    pub subject: Name,
    /// The hosts that its certificate is for; at most four, for the log.
    pub hosts: Vec<String>,
    /// The earliest end in its chain.
    pub expires: SystemTime,
}

/// What one end of a connection between hosts presents and trusts.
#[derive(Clone, Debug)]
pub struct HostSettings {
    /// The certificate of this host.
    pub certificate: HostCertificate,
    /// Validates the chain of the peer.
    pub trust: Arc<TrustStore>,
    /// The versions that may be negotiated.
    pub versions: TlsVersions,
}

/// A host certificate with its key, which may be in another process.
#[derive(Clone, Debug)]
pub struct HostCertificate {
    leaf: Certificate,
    identity: Arc<SingleCertAndKey>,
}

/// A certificate that no peer would accept as that of a host.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum HostCertificateError {
    /// There is none.
    #[error("there is no certificate")]
    Missing,
    /// It is a proxy.
    #[error(
        "{0} is a proxy, which is refused between hosts: name a host certificate and its key with --cert and --key"
    )]
    Proxy(Name),
}

/// The accepting end of one handshake.
#[derive(Debug)]
pub struct HostAcceptor {
    /// For this handshake only.
    pub config: Arc<ServerConfig>,
    /// What it finds out about the peer.
    pub verifier: Arc<HostVerifier>,
}

/// The connecting end of one handshake.
#[derive(Debug)]
pub struct HostConnector {
    /// For this handshake only.
    pub config: Arc<ClientConfig>,
    /// What it finds out about the peer.
    pub verifier: Arc<HostVerifier>,
}

/// Verifies the peer of one connection between hosts.
#[derive(Debug)]
pub struct HostVerifier {
    chain: Arc<PeerVerifier>,
    expected: Expected,
    /// The subject of the certificate of this end.
    own: Name,
    versions: TlsVersions,
    fault: OnceLock<PeerFault>,
}

#[derive(Debug)]
enum Expected {
    Host(HostName),
    OneOf(Arc<[Principal]>),
}

impl HostCertificate {
    /// A chain, leaf first, with the key of its first certificate.
    ///
    /// # Errors
    ///
    /// When there is no certificate, or it is a proxy.
    pub fn new(
        chain: &[Certificate],
        key: Arc<dyn SigningKey>,
    ) -> Result<Self, HostCertificateError> {
        let leaf = chain.first().ok_or(HostCertificateError::Missing)?;
        if leaf.proxy().is_some() {
            return Err(HostCertificateError::Proxy(leaf.subject().clone()));
        }
        Ok(Self {
            leaf: leaf.clone(),
            identity: config::identity(chain, key),
        })
    }

    /// The certificate.
    pub fn certificate(&self) -> &Certificate {
        &self.leaf
    }
}

impl TryFrom<&TlsSettings> for HostSettings {
    type Error = HostCertificateError;

    fn try_from(settings: &TlsSettings) -> Result<Self, Self::Error> {
        let credential = &settings.credential;
        let key = credential.key().signing_key();
        Ok(Self {
            certificate: HostCertificate::new(credential.chain(), key)?,
            trust: Arc::clone(&settings.trust),
            versions: settings.versions,
        })
    }
}

impl Principal {
    /// Hosts with the certificate of `own`: its subject, and the names that it is for, without wildcards.
    pub fn of_own(own: &Certificate) -> Vec<Self> {
        let hosts = hosts_of(own);
        let hosts = hosts.iter().filter_map(|host| host.parse().ok());
        let subject = Self::Subject(own.subject().one_line().to_owned());
        std::iter::once(subject)
            .chain(hosts.map(Self::Host))
            .collect()
    }

    pub(super) fn is(&self, peer: &Peer) -> bool {
        match self {
            Self::Subject(subject) => peer.identity.is_written(subject),
            Self::Host(host) => host.is_certified_by(&peer.chain),
        }
    }
}

impl FromStr for Principal {
    type Err = HostNameError;

    /// A subject begins with a slash.
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text.starts_with('/') {
            true => Ok(Self::Subject(text.to_owned())),
            false => text.parse().map(Self::Host),
        }
    }
}

impl HostAcceptor {
    /// Accepts these control servers.
    ///
    /// # Errors
    ///
    /// When the settings are invalid.
    pub fn new(
        settings: &HostSettings,
        control_servers: &Arc<[Principal]>,
    ) -> Result<Self, TlsError> {
        let expected = Expected::OneOf(Arc::clone(control_servers));
        let verifier = Arc::new(HostVerifier::new(settings, expected));
        let client = Arc::clone(&verifier) as Arc<dyn ClientCertVerifier>;
        let identity = Arc::clone(&settings.certificate.identity);
        let mut config = config::server_with(identity, settings.versions, Records::Bulk, client)?;
        config.alpn_protocols = vec![ALPN.to_vec()];
        Ok(Self {
            config: Arc::new(config),
            verifier,
        })
    }
}

impl HostConnector {
    /// Connects to this host. No name is sent, and rustls compares none: pass any.
    ///
    /// # Errors
    ///
    /// When the settings are invalid.
    pub fn new(settings: &HostSettings, host: HostName) -> Result<Self, TlsError> {
        let verifier = Arc::new(HostVerifier::new(settings, Expected::Host(host)));
        let server = Arc::clone(&verifier) as Arc<dyn ServerCertVerifier>;
        let identity = Arc::clone(&settings.certificate.identity);
        let mut config = config::client_with(identity, settings.versions, Records::Bulk, server)?;
        config.alpn_protocols = vec![ALPN.to_vec()];
        Ok(Self {
            config: Arc::new(config),
            verifier,
        })
    }

    /// The name that rustls requires.
    pub fn server_name(&self) -> ServerName<'static> {
        config::no_name()
    }
}

impl HostVerifier {
    fn new(settings: &HostSettings, expected: Expected) -> Self {
        Self {
            chain: config::verifier(&settings.trust),
            expected,
            own: settings.certificate.leaf.subject().clone(),
            versions: settings.versions,
            fault: OnceLock::new(),
        }
    }

    /// The peer, after a complete handshake that has negotiated this protocol.
    ///
    /// # Errors
    ///
    /// When the peer speaks another protocol: rustls accepts peers that negotiate none.
    pub fn accepted(&self, protocol: Option<&[u8]>) -> Result<PeerIdentity, PeerFault> {
        if protocol != Some(ALPN) {
            return Err(PeerFault::OtherProtocol);
        }
        let peer = self.chain.peer().ok_or(PeerFault::NoCertificate)?;
        Ok(PeerIdentity {
            subject: peer.identity.clone(),
            hosts: peer.chain.first().map_or(Vec::new(), hosts_of),
            expires: peer.expires,
        })
    }

    /// Why the handshake has failed with this error.
    pub fn fault(&self, error: &rustls::Error) -> PeerFault {
        match (self.fault.get(), self.chain.refusal()) {
            (Some(fault), _) => fault.clone(),
            (None, Some(TlsError::Chain(refused))) => PeerFault::Chain(refused),
            _ => PeerFault::of(error, &self.own, self.versions),
        }
    }

    /// Applies the rules for hosts to the peer, whose chain is valid.
    fn judge(&self) -> Result<(), rustls::Error> {
        let peer = self.chain.peer();
        let peer = peer.ok_or(rustls::Error::NoCertificatesPresented)?;
        let Err(fault) = self.expected.check(peer) else {
            return Ok(());
        };
        self.fault.get_or_init(|| fault);
        Err(CertificateError::ApplicationVerificationFailure.into())
    }
}

impl Expected {
    fn check(&self, peer: &Peer) -> Result<(), PeerFault> {
        // A validated chain is never empty.
        let Some(leaf) = peer.chain.first() else {
            return Err(PeerFault::NoCertificate);
        };
        if leaf.proxy().is_some() {
            let holder = peer.subjects().last();
            return Err(PeerFault::Proxy {
                proxy: leaf.subject().clone(),
                identity: holder.unwrap_or(&peer.identity).clone(),
            });
        }
        match self {
            Self::Host(host) if host.is_certified_by(&peer.chain) => Ok(()),
            Self::Host(host) => Err(PeerFault::OtherHost {
                wanted: host.clone(),
                subject: leaf.subject().clone(),
                hosts: hosts_of(leaf),
            }),
            Self::OneOf(listed) if listed.iter().any(|one| one.is(peer)) => Ok(()),
            Self::OneOf(_) => Err(PeerFault::NotListed {
                identity: peer.identity.clone(),
                hosts: hosts_of(leaf),
            }),
        }
    }
}

impl ClientCertVerifier for HostVerifier {
    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        ClientCertVerifier::root_hint_subjects(&*self.chain)
    }

    fn verify_client_cert(
        &self,
        leaf: &CertificateDer<'_>,
        rest: &[CertificateDer<'_>],
        now: UnixTime,
    ) -> Result<ClientCertVerified, rustls::Error> {
        let verified = self.chain.verify_client_cert(leaf, rest, now)?;
        self.judge().map(|()| verified)
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        leaf: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        ClientCertVerifier::verify_tls12_signature(&*self.chain, message, leaf, signed)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        leaf: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        ClientCertVerifier::verify_tls13_signature(&*self.chain, message, leaf, signed)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        ClientCertVerifier::supported_verify_schemes(&*self.chain)
    }
}

impl ServerCertVerifier for HostVerifier {
    fn verify_server_cert(
        &self,
        leaf: &CertificateDer<'_>,
        rest: &[CertificateDer<'_>],
        name: &ServerName<'_>,
        stapled: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        let verified = self
            .chain
            .verify_server_cert(leaf, rest, name, stapled, now)?;
        self.judge().map(|()| verified)
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        leaf: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        ServerCertVerifier::verify_tls12_signature(&*self.chain, message, leaf, signed)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        leaf: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        ServerCertVerifier::verify_tls13_signature(&*self.chain, message, leaf, signed)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        ServerCertVerifier::supported_verify_schemes(&*self.chain)
    }
}

#[cfg(test)]
mod tests;
