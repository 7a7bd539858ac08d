//! What rustls is told.

use std::sync::Arc;

use rustls::client::Resumption;
use rustls::server::NoServerSessionStorage;
use rustls::sign::{CertifiedKey, SingleCertAndKey};
use rustls::version::{TLS12, TLS13};
use rustls::{ClientConfig, ServerConfig, SupportedProtocolVersion};
use rustls_pki_types::{CertificateDer, ServerName};

use super::provider::{Records, provider};
use super::verifier::PeerVerifier;
use super::{TlsError, TlsSettings, TlsVersions};
use crate::credential::Credential;

/// Everything for one connection of the side that waits. Its verifier says who the peer is.
pub(super) fn server(
    settings: &TlsSettings,
    records: Records,
) -> Result<(ServerConfig, Arc<PeerVerifier>), TlsError> {
    let provider = provider(records);
    let verifier = verifier(settings);
    let mut config = ServerConfig::builder_with_provider(provider)
        .with_protocol_versions(versions(settings.versions))
        .map_err(|error| TlsError::protocol(error.to_string()))?
        .with_client_cert_verifier(verifier.clone())
        .with_cert_resolver(identity(&settings.credential));
    // A client that sends data never reads. Tickets that it did not read make its kernel reset the
    // connection when it closes, and we lose the end of the data (observed from globus-url-copy 10.12).
    config.send_tls13_tickets = 0;
    config.session_storage = Arc::new(NoServerSessionStorage {});
    // The client's preference chooses the cipher for files, so that it does not get a weaker one for our speed.
    config.ignore_client_order = records == Records::Tokens;
    config.enable_secret_extraction = true;
    Ok((config, verifier))
}

/// As [`server`], for the side that begins.
pub(super) fn client(
    settings: &TlsSettings,
    records: Records,
) -> Result<(Arc<ClientConfig>, Arc<PeerVerifier>), TlsError> {
    let provider = provider(records);
    let verifier = verifier(settings);
    let mut config = ClientConfig::builder_with_provider(provider)
        .with_protocol_versions(versions(settings.versions))
        .map_err(|error| TlsError::protocol(error.to_string()))?
        .dangerous()
        .with_custom_certificate_verifier(verifier.clone())
        .with_client_cert_resolver(identity(&settings.credential));
    config.resumption = Resumption::disabled();
    config.enable_sni = false;
    config.enable_secret_extraction = true;
    Ok((Arc::new(config), verifier))
}

/// rustls wants the server's name; it is neither sent nor compared.
pub(super) fn no_name() -> ServerName<'static> {
    ServerName::IpAddress(std::net::Ipv4Addr::UNSPECIFIED.into())
}

fn verifier(settings: &TlsSettings) -> Arc<PeerVerifier> {
    Arc::new(PeerVerifier::new(
        Arc::clone(&settings.trust),
        provider(Records::Tokens),
    ))
}

fn versions(versions: TlsVersions) -> &'static [&'static SupportedProtocolVersion] {
    static NEWEST_FIRST: [&SupportedProtocolVersion; 2] = [&TLS13, &TLS12];
    match versions {
        TlsVersions::From12To13 => &NEWEST_FIRST,
        TlsVersions::Only13 => &NEWEST_FIRST[..1],
        TlsVersions::Only12 => &NEWEST_FIRST[1..],
    }
}

/// The chain as it is, whatever rustls thinks of it, without roots: who does not have them will not trust
/// them. A leaf that signed itself (`DCSC P`) is sent all the same.
fn identity(credential: &Credential) -> Arc<SingleCertAndKey> {
    let chain = credential
        .chain()
        .iter()
        .enumerate()
        .filter(|(position, certificate)| *position == 0 || !certificate.is_self_issued())
        .map(|(_, certificate)| CertificateDer::from(certificate.der().to_vec()))
        .collect();
    let key = CertifiedKey::new(chain, credential.key().signing_key());
    Arc::new(SingleCertAndKey::from(key))
}
