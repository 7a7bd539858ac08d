//! Validation of a peer whose connection is open: its certificate may have ended, been revoked, or lost its authority or its place
//! in a list since the handshake.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

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
/// Why it would not. A certificate that has ended and is revoked counts as revoked.
pub fn validate_node(
    settings: &HostSettings,
    host: &HostName,
    presented: &[CertificateDer<'_>],
    now: SystemTime,
) -> Result<(), PeerFault> {
    let (leaf, rest) = presented.split_first().ok_or(PeerFault::NoCertificate)?;
    worst(now, |now| {
        let verifier = HostVerifier::new(settings, Expected::Host(host.clone()));
        let name = config::no_name();
        let verified = verifier.verify_server_cert(leaf, rest, &name, &[], unix_time(now));
        verified.map(drop).map_err(|error| verifier.fault(&error))
    })
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
    let (leaf, rest) = presented.split_first().ok_or(PeerFault::NoCertificate)?;
    worst(now, |now| {
        let expected = Expected::OneOf(Arc::clone(control_servers));
        let verifier = HostVerifier::new(settings, expected);
        let verified = verifier.verify_client_cert(leaf, rest, unix_time(now));
        verified.map(drop).map_err(|error| verifier.fault(&error))
    })
}

/// Validates at `now`, and where something has only ended, at the time before that: a revocation or a name that is not listed any
/// more must not hide behind the end of a certificate or of a revocation list.
fn worst(
    now: SystemTime,
    validate: impl Fn(SystemTime) -> Result<(), PeerFault>,
) -> Result<(), PeerFault> {
    /// The certificates and the lists of a chain.
    const ENDS: usize = 8;
    let first = validate(now);
    let mut fault = first.as_ref().err().cloned();
    for _ in 0..ENDS {
        let Some(end) = fault.as_ref().and_then(PeerFault::end) else {
            break;
        };
        let before = end - Duration::from_secs(1);
        fault = validate(before).err();
    }
    match fault {
        Some(fault) if fault.is_for_good() => Err(fault),
        _ => first,
    }
}

fn unix_time(time: SystemTime) -> UnixTime {
    let since = time.duration_since(SystemTime::UNIX_EPOCH);
    UnixTime::since_unix_epoch(since.unwrap_or_default())
}
