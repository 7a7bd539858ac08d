//! Validation of a peer whose connection is open: its certificate may have ended, been revoked, or lost its authority or its place
//! in a list since the handshake.

use std::sync::Arc;
use std::time::SystemTime;

use rustls::client::danger::ServerCertVerifier as _;
use rustls::server::danger::ClientCertVerifier as _;
use rustls_pki_types::{CertificateDer, UnixTime};

use super::{Expected, HostSettings, HostVerifier, Principal};
use crate::host_name::HostName;
use crate::tls::config;
use crate::tls::peer_fault::PeerFault;

/// Whether a node would be accepted at `now` with the chain that it has presented, leaf first.
///
/// # Errors
///
/// Why it would not.
pub fn validate_node(
    settings: &HostSettings,
    host: HostName,
    presented: &[CertificateDer<'_>],
    now: SystemTime,
) -> Result<(), PeerFault> {
    let verifier = HostVerifier::new(settings, Expected::Host(host));
    let (leaf, rest) = presented.split_first().ok_or(PeerFault::NoCertificate)?;
    let verified = verifier.verify_server_cert(leaf, rest, &config::no_name(), &[], unix_time(now));
    verified.map(drop).map_err(|error| verifier.fault(&error))
}

/// The same for a control server.
///
/// # Errors
///
/// Why it would not be accepted.
pub fn validate_control_server(
    settings: &HostSettings,
    control_servers: &Arc<[Principal]>,
    presented: &[CertificateDer<'_>],
    now: SystemTime,
) -> Result<(), PeerFault> {
    let expected = Expected::OneOf(Arc::clone(control_servers));
    let verifier = HostVerifier::new(settings, expected);
    let (leaf, rest) = presented.split_first().ok_or(PeerFault::NoCertificate)?;
    let verified = verifier.verify_client_cert(leaf, rest, unix_time(now));
    verified.map(drop).map_err(|error| verifier.fault(&error))
}

fn unix_time(time: SystemTime) -> UnixTime {
    let since = time.duration_since(SystemTime::UNIX_EPOCH);
    UnixTime::since_unix_epoch(since.unwrap_or_default())
}
