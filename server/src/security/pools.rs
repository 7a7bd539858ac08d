//! Accounts of pools: an identity that is mapped to `.atlas` gets one of `atlas001`, `atlas002`, ... for good.
//!
//! The monitor keeps the leases in the gridmapdir (`accounts/src/pool_accounts.rs`).

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use gridhaul_accounts::{LeaseError, Monitor};
use tracing::error;

use super::REPEAT_INTERVAL;
use super::authorization::Denied;
use crate::locks::lock;
use crate::telemetry::Repeats;

/// How long a lease is remembered. Administrators and their programs take leases away, so the directory is examined at each
/// login. A login needs the lease several times.
const REMEMBERED: Duration = Duration::from_secs(5);

/// The limit of leases that are remembered.
const MOST: usize = 1000;

/// Leases accounts of pools, through the monitor.
#[derive(Debug)]
pub(super) struct Pools {
    monitor: Option<Arc<Monitor>>,
    failures: Mutex<Repeats>,
    leases: Mutex<HashMap<(String, String), (Instant, String)>>,
}

impl Pools {
    pub(super) fn new(monitor: Option<Arc<Monitor>>) -> Self {
        Self {
            monitor,
            failures: Mutex::new(Repeats::new(REPEAT_INTERVAL)),
            leases: Mutex::default(),
        }
    }

    /// The account of an identity (one-line form) from a pool. Blocks on the gridmapdir.
    pub(super) fn lease(&self, identity: &str, pool: &str) -> Result<String, Denied> {
        let key = (identity.to_owned(), pool.to_owned());
        if let Some(account) = self.remembered(&key) {
            return Ok(account);
        }
        let denied = |reason: String| Denied::NoPoolAccount {
            identity: identity.to_owned(),
            pool: pool.to_owned(),
            reason,
        };
        let Some(monitor) = &self.monitor else {
            return Err(denied(
                "pools need a server that was started as root".to_owned(),
            ));
        };
        let account = monitor.lease(identity, pool).map_err(|failure| {
            if let Some(untold) = lock(&self.failures).due() {
                error!(identity, pool, error = %failure, untold, "no account of a pool could be leased");
            }
            // The details are for the administrator.
            denied(match failure {
                LeaseError::Exhausted => failure.to_string(),
                _ => "the lease failed; the server's log has the reason".to_owned(),
            })
        })?;
        self.remember(key, account.clone());
        Ok(account)
    }

    fn remembered(&self, key: &(String, String)) -> Option<String> {
        let leases = lock(&self.leases);
        let (at, account) = leases.get(key)?;
        (at.elapsed() < REMEMBERED).then(|| account.clone())
    }

    fn remember(&self, key: (String, String), account: String) {
        let mut leases = lock(&self.leases);
        leases.retain(|_, (at, _)| at.elapsed() < REMEMBERED);
        if leases.len() < MOST {
            leases.insert(key, (Instant::now(), account));
        }
    }
}
