//! The server's side: a pool of brokers, and [`AccountStorage`], which forwards the calls of `Storage` to one.
//!
//! ```text
//! Accounts ──> pool ──> broker ──> process     sockets of a running process
//!                          │
//! AccountStorage ──────────┴─────> exchange    one request, one answer
//! ```

mod broker;
mod counts;
mod error;
pub(crate) mod exchange;
mod limits;
mod listing;
mod pool;
mod process;
mod source;
mod storage;

use std::sync::Arc;

use rustix::io::Errno;
use tracing::info;

pub use self::counts::BrokerCounts;
pub use self::error::AccountError;
pub use self::limits::BrokerLimits;
pub(crate) use self::limits::brokers_of_account;
use self::pool::BrokerPool;
pub use self::source::{AccountRequest, BrokerSource};
pub use self::storage::AccountStorage;
use crate::messages::LONGEST_PATH;

/// The local accounts of a server that was started as root: a broker for each that is active.
#[derive(Debug)]
pub struct Accounts {
    pool: Arc<BrokerPool>,
}

impl Accounts {
    /// An empty pool: brokers, and the thread that ends idle ones, are started on demand.
    pub fn new(source: Arc<dyn BrokerSource>, limits: BrokerLimits) -> Self {
        Self {
            pool: Arc::new(BrokerPool::new(source, limits)),
        }
    }

    /// The files of an account, for a login: starts a broker if the account has none that is recent enough. May block.
    ///
    /// # Errors
    ///
    /// When the account may not be used, its root cannot be opened, or there are too many brokers.
    pub fn open(&self, request: &AccountRequest) -> Result<AccountStorage, AccountError> {
        if request.root.as_os_str().len() > LONGEST_PATH {
            return Err(AccountError::Monitor(Errno::NAMETOOLONG));
        }
        let mut broker = self.pool.newest(request)?;
        if let Some(error) = broker.root_has_gone() {
            let (account, root) = (&request.account, request.root.display());
            info!(account, %root, %error, "a root was replaced in the file system: it is opened again");
            broker = self.pool.replace(request, &broker)?;
        }
        if let Err(error) = broker.start() {
            self.pool.forget(request, &broker);
            return Err(error);
        }
        self.pool.retire_others(&broker);
        Ok(AccountStorage::new(broker))
    }

    /// The number of brokers that run.
    pub fn running(&self) -> usize {
        self.pool.running()
    }

    /// What has happened to brokers since the start.
    pub fn counts(&self) -> BrokerCounts {
        self.pool.counted()
    }

    /// Makes the next login of every account look the account up again.
    pub fn renew(&self) {
        self.pool.renew();
    }
}

impl Drop for Accounts {
    fn drop(&mut self) {
        self.pool.close();
    }
}
