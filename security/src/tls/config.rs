//! The configuration of rustls.

use std::sync::Arc;

use rustls::client::Resumption;
use rustls::client::danger::ServerCertVerifier;
use rustls::server::NoServerSessionStorage;
use rustls::server::danger::ClientCertVerifier;
use rustls::sign::{CertifiedKey, SigningKey, SingleCertAndKey};
use rustls::version::{TLS12, TLS13};
use rustls::{ClientConfig, ServerConfig, SupportedProtocolVersion};
use rustls_pki_types::{CertificateDer, ServerName};

use super::provider::{Records, provider};
use super::verifier::PeerVerifier;
use super::{TlsError, TlsSettings, TlsVersions};
use crate::certificate::Certificate;
use crate::credential::Credential;
use crate::trust::TrustStore;

/// The configuration for one connection of a server, and its verifier, which has the identity of the peer.
pub(super) fn server(
    settings: &TlsSettings,
    records: Records,
) -> Result<(ServerConfig, Arc<PeerVerifier>), TlsError> {
    let verifier = verifier(&settings.trust);
    let identity = identity_of(&settings.credential);
    let mut config = server_with(identity, settings.versions, records, verifier.clone())?;
    config.enable_secret_extraction = true;
    Ok((config, verifier))
}

/// The configuration for one connection of a server, whose client this verifier accepts.
pub(super) fn server_with(
    identity: Arc<SingleCertAndKey>,
    tls: TlsVersions,
    records: Records,
    verifier: Arc<dyn ClientCertVerifier>,
) -> Result<ServerConfig, TlsError> {
    let mut config = ServerConfig::builder_with_provider(provider(records))
        .with_protocol_versions(versions(tls))
        .map_err(|error| TlsError::protocol(error.to_string()))?
        .with_client_cert_verifier(verifier)
        .with_cert_resolver(identity);
    // A client that sends data does not read. If it has not read tickets, its kernel resets the connection when it closes,
    // and the end of the data is lost (observed from globus-url-copy 10.12).
    config.send_tls13_tickets = 0;
    config.session_storage = Arc::new(NoServerSessionStorage {});
    // For bulk data the client's preference decides, so that the server's preference for speed cannot weaken its choice.
    config.ignore_client_order = records == Records::Tokens;
    Ok(config)
}

/// As [`server`], for a client.
pub(super) fn client(
    settings: &TlsSettings,
    records: Records,
) -> Result<(Arc<ClientConfig>, Arc<PeerVerifier>), TlsError> {
    let verifier = verifier(&settings.trust);
    let identity = identity_of(&settings.credential);
    let mut config = client_with(identity, settings.versions, records, verifier.clone())?;
    config.enable_secret_extraction = true;
    Ok((Arc::new(config), verifier))
}

/// As [`server_with`], for a client.
pub(super) fn client_with(
    identity: Arc<SingleCertAndKey>,
    tls: TlsVersions,
    records: Records,
    verifier: Arc<dyn ServerCertVerifier>,
) -> Result<ClientConfig, TlsError> {
    let mut config = ClientConfig::builder_with_provider(provider(records))
        .with_protocol_versions(versions(tls))
        .map_err(|error| TlsError::protocol(error.to_string()))?
        .dangerous()
        .with_custom_certificate_verifier(verifier)
        .with_client_cert_resolver(identity);
    config.resumption = Resumption::disabled();
    config.enable_sni = false;
    Ok(config)
}

/// rustls requires a server name. It is neither sent nor compared.
pub(super) fn no_name() -> ServerName<'static> {
    ServerName::IpAddress(std::net::Ipv4Addr::UNSPECIFIED.into())
}

/// Validates the peer of one connection.
pub(super) fn verifier(trust: &Arc<TrustStore>) -> Arc<PeerVerifier> {
    Arc::new(PeerVerifier::new(
        Arc::clone(trust),
        provider(Records::Tokens),
    ))
}

pub(super) fn versions(versions: TlsVersions) -> &'static [&'static SupportedProtocolVersion] {
    static NEWEST_FIRST: [&SupportedProtocolVersion; 2] = [&TLS13, &TLS12];
    match versions {
        TlsVersions::From12To13 => &NEWEST_FIRST,
        TlsVersions::Only13 => &NEWEST_FIRST[..1],
        TlsVersions::Only12 => &NEWEST_FIRST[1..],
    }
}

/// The chain without roots: a peer without the root would not trust it. A self-signed leaf (`DCSC P`) is sent. Bypasses the
/// checks of rustls, which does not support proxies.
pub(super) fn identity(chain: &[Certificate], key: Arc<dyn SigningKey>) -> Arc<SingleCertAndKey> {
    let chain = chain
        .iter()
        .enumerate()
        .filter(|(position, certificate)| *position == 0 || !certificate.is_self_issued())
        .map(|(_, certificate)| CertificateDer::from(certificate.der().to_vec()))
        .collect();
    Arc::new(SingleCertAndKey::from(CertifiedKey::new(chain, key)))
}

fn identity_of(credential: &Credential) -> Arc<SingleCertAndKey> {
    identity(credential.chain(), credential.key().signing_key())
}
