//! Whether the certificate of an administrator is accepted now.
//!
//! TLS verifies the chain in the handshake. A connection may outlive a certificate, and TLS knows no revocation lists, so each
//! request is checked again: one search finds a path to an authority of administrators that holds by all rules for users
//! with certificates, with the lists of the trust directory as they are then. The path and the revocation of its
//! certificates must not be found apart: a client chooses what it sends, and could have another path checked than the one
//! that was accepted.

use std::sync::Arc;
use std::time::SystemTime;

use gridhaul_security::certificate::Certificate;

use crate::shared::Shared;

/// The authorities of administrators, and where their lists are.
#[derive(Debug)]
pub(in crate::admin) struct Revocation {
    shared: Arc<Shared>,
    authorities: Arc<[Certificate]>,
}

impl Revocation {
    pub(in crate::admin) fn new(shared: Arc<Shared>, authorities: Arc<[Certificate]>) -> Self {
        Self {
            shared,
            authorities,
        }
    }

    /// The subject of the first of these certificates, whose key the client has proved to TLS, or why it is not accepted.
    pub(super) async fn check(&self, chain: &[Vec<u8>]) -> Result<String, String> {
        let parsed: Result<Vec<_>, _> =
            chain.iter().map(|one| Certificate::from_der(one)).collect();
        let chain = parsed.map_err(|error| error.to_string())?;
        let first = chain.first().ok_or("there is none")?;
        let subject = first.subject().one_line().to_owned();
        let security = self.shared.settings().security;
        let authorities = Arc::clone(&self.authorities);
        // Blocks on the files of the trust directory.
        let checked = tokio::task::spawn_blocking(move || {
            let trust = security
                .map(|security| security.trust())
                .unwrap_or_default();
            let trust = trust.with_only_anchors(&authorities);
            trust.validate(&chain, SystemTime::now())
        });
        match checked.await {
            Ok(Ok(_)) => Ok(subject),
            Ok(Err(error)) => Err(error.to_string()),
            Err(error) => Err(error.to_string()),
        }
    }
}
