//! Whether the certificate of an administrator is revoked.
//!
//! TLS has verified the chain when the connection began. Revocation is checked for each request, with the lists of the trust
//! directory as they are then, by the rules that also hold for users with certificates.

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

    /// The subject of the first of these certificates, which TLS has verified, or why it is not accepted.
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
            trust.check_revocation(&chain, &authorities, SystemTime::now())
        });
        match checked.await {
            Ok(Ok(())) => Ok(subject),
            Ok(Err(error)) => Err(error.to_string()),
            Err(error) => Err(error.to_string()),
        }
    }
}
