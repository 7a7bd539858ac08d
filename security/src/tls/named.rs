//! The client's side of a handshake in which only the server presents a certificate: `AUTH TLS` (RFC 4217).
//!
//! The chain is validated as in GSI, and the certificate must be that of the host that was dialled (RFC 9525), or have a given
//! subject. Proxies are refused, and certificates for other purposes (RFC 5280 4.2.1.12).

use std::sync::{Arc, OnceLock};

use der::asn1::ObjectIdentifier;
use rustls::client::Resumption;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::{CertificateError, ClientConfig, DigitallySignedStruct, SignatureScheme};
use rustls_pki_types::{CertificateDer, ServerName, UnixTime};

use super::provider::{Records, provider};
use super::verifier::PeerVerifier;
use super::{Principal, TlsError, TlsVersions, config};
use crate::asn1::{Elements, is_identifier};
use crate::certificate::Certificate;
use crate::host_name::{HostName, hosts_of};
use crate::trust::{Peer, TrustStore};

const EXTENDED_KEY_USAGE: ObjectIdentifier = ObjectIdentifier::new_unwrap("2.5.29.37");
const ANY_PURPOSE: ObjectIdentifier = ObjectIdentifier::new_unwrap("2.5.29.37.0");
const SERVER: ObjectIdentifier = ObjectIdentifier::new_unwrap("1.3.6.1.5.5.7.3.1");

/// A server as a client expects it.
#[derive(Clone, Debug)]
pub struct NamedServer {
    /// Validates its chain.
    pub trust: Arc<TrustStore>,
    /// Who it is.
    pub principal: Principal,
    /// The versions that may be negotiated.
    pub versions: TlsVersions,
}

/// The client's side of one handshake.
#[derive(Debug)]
pub struct NamedConnector {
    /// For this handshake only.
    pub config: Arc<ClientConfig>,
    /// The name that the server is told (RFC 6066 3), if it is one.
    pub name: ServerName<'static>,
    verifier: Arc<NamedVerifier>,
}

/// Verifies the server of one connection.
#[derive(Debug)]
struct NamedVerifier {
    chain: Arc<PeerVerifier>,
    principal: Principal,
    fault: OnceLock<String>,
}

impl NamedConnector {
    /// A connector for one handshake.
    ///
    /// # Errors
    ///
    /// When the settings are invalid.
    pub fn new(expected: &NamedServer) -> Result<Self, TlsError> {
        let verifier = Arc::new(NamedVerifier {
            chain: config::verifier(&expected.trust),
            principal: expected.principal.clone(),
            fault: OnceLock::new(),
        });
        let mut config = ClientConfig::builder_with_provider(provider(Records::Bulk))
            .with_protocol_versions(config::versions(expected.versions))
            .map_err(|error| TlsError::protocol(error.to_string()))?
            .dangerous()
            .with_custom_certificate_verifier(Arc::clone(&verifier) as Arc<_>)
            .with_no_client_auth();
        config.resumption = Resumption::disabled();
        let name = match &expected.principal {
            Principal::Host(HostName::Name(name)) => ServerName::try_from(name.clone()).ok(),
            _ => None,
        };
        config.enable_sni = name.is_some();
        Ok(Self {
            config: Arc::new(config),
            name: name.unwrap_or_else(config::no_name),
            verifier,
        })
    }

    /// The server, after the handshake.
    pub fn peer(&self) -> Option<&Peer> {
        self.verifier.chain.peer()
    }

    /// Why the certificate of the server was refused.
    pub fn fault(&self) -> Option<String> {
        let chain = self.verifier.chain.refusal();
        let chain = chain.map(|refused| format!("its certificate is not accepted: {refused}"));
        chain.or_else(|| self.verifier.fault.get().cloned())
    }
}

impl NamedVerifier {
    /// Applies the rules for servers to the peer, whose chain is valid.
    fn judge(&self) -> Result<(), rustls::Error> {
        let peer = self.chain.peer();
        let peer = peer.ok_or(rustls::Error::NoCertificatesPresented)?;
        match fault_of(peer, &self.principal) {
            None => Ok(()),
            Some(fault) => {
                self.fault.get_or_init(|| fault);
                Err(CertificateError::ApplicationVerificationFailure.into())
            }
        }
    }
}

fn fault_of(peer: &Peer, principal: &Principal) -> Option<String> {
    let leaf = peer.chain.first()?;
    if leaf.proxy().is_some() {
        let identity = peer.identity.one_line();
        return Some(format!(
            "it presents a proxy of {identity}, which is a user"
        ));
    }
    if !is_for_servers(leaf) {
        let subject = leaf.subject().one_line();
        return Some(format!(
            "it presents {subject}, a certificate that is not for servers"
        ));
    }
    if principal.is(peer) {
        return None;
    }
    let hosts = hosts_of(leaf);
    let presented = match hosts.is_empty() {
        true => leaf.subject().one_line().to_owned(),
        false => hosts.join(", "),
    };
    Some(match principal {
        Principal::Host(host) => {
            format!("it presents the certificate of {presented}, not of {host}")
        }
        Principal::Subject(subject) => {
            format!("it presents the certificate of {presented}, not {subject}")
        }
    })
}

/// RFC 5280 4.2.1.12: a certificate without the extension is for all purposes.
fn is_for_servers(certificate: &Certificate) -> bool {
    let Some(content) = certificate.find_extension(&EXTENDED_KEY_USAGE) else {
        return true;
    };
    let Ok(purposes) = Elements::only(content, der::Tag::Sequence) else {
        return false;
    };
    let mut purposes = purposes.children();
    while let Ok(purpose) = purposes.expect(der::Tag::ObjectIdentifier) {
        if [SERVER, ANY_PURPOSE]
            .iter()
            .any(|wanted| is_identifier(purpose.content(), wanted))
        {
            return true;
        }
    }
    false
}

impl ServerCertVerifier for NamedVerifier {
    fn verify_server_cert(
        &self,
        leaf: &CertificateDer<'_>,
        rest: &[CertificateDer<'_>],
        name: &ServerName<'_>,
        stapled: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        let chain = &self.chain;
        let verified = chain.verify_server_cert(leaf, rest, name, stapled, now)?;
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
mod tests {
    use std::time::SystemTime;

    use super::*;
    use crate::test_pki::{CA, FULL, Pki, Request, USER};

    const SERVER_ONLY: &str =
        "extendedKeyUsage = serverAuth\nsubjectAltName = DNS:dtn.example.org\n";
    const CLIENT_ONLY: &str =
        "extendedKeyUsage = clientAuth\nsubjectAltName = DNS:dtn.example.org\n";

    /// The fault of a server with this chain, whose root is trusted.
    fn fault(chain: &[Certificate], root: &Certificate, principal: &str) -> Option<String> {
        let trust = TrustStore::default().with_anchors(std::slice::from_ref(root));
        let peer = trust.validate(chain, SystemTime::now()).expect("a chain");
        fault_of(&peer, &principal.parse().expect("a principal"))
    }

    #[test]
    fn a_server_has_the_certificate_of_its_host_for_servers() {
        let pki = Pki::new();
        let authority = Request {
            subject: "/CN=Root",
            extensions: CA,
            ..Request::default()
        };
        let root = pki.make(&authority, None);
        let root_certificate = &root.certificate;
        let with = |extensions| {
            let issued = pki.issue(&root, "/CN=host", extensions);
            vec![issued.certificate]
        };
        let server = with(SERVER_ONLY);
        assert_eq!(fault(&server, root_certificate, "dtn.example.org"), None);
        assert_eq!(fault(&server, root_certificate, "/CN=host"), None);
        let other = fault(&server, root_certificate, "other.example.org");
        assert_eq!(
            other.as_deref(),
            Some("it presents the certificate of dtn.example.org, not of other.example.org")
        );
        let client = fault(&with(CLIENT_ONLY), root_certificate, "dtn.example.org");
        assert!(client.is_some_and(|fault| fault.contains("not for servers")));
        assert!(fault(&server, root_certificate, "/CN=another").is_some());
    }

    #[test]
    fn a_proxy_is_no_server() {
        let pki = Pki::new();
        let root = pki.root("/CN=Root");
        let user = pki.issue(&root, "/CN=Alice", USER);
        let proxy = pki.proxy(&user, FULL);
        let chain = [proxy.certificate.clone(), user.certificate.clone()];
        let refused = fault(&chain, &root.certificate, "/CN=Alice");
        assert!(refused.is_some_and(|fault| fault.contains("which is a user")));
    }
}
