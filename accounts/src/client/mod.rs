//! The server's side: which brokers there are, and how many.

mod broker;
mod listing;
mod running;
mod shared;
mod storage;
pub(crate) mod talk;

use std::fmt;
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use rustix::io::Errno;
use tracing::info;

use self::shared::Shared;
pub(crate) use self::shared::brokers_of_account;
pub use self::storage::AccountStorage;
use crate::messages::LONGEST_PATH;
use crate::policy::{Refusal, words};

/// The local accounts of a server that was started as root: a broker for each that is active.
#[derive(Debug)]
pub struct Accounts {
    shared: Arc<Shared>,
}

/// How many brokers there are, and for how long.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BrokerLimits {
    /// Brokers at a time. Past it, one that is idle ends.
    pub brokers: usize,
    /// How long a broker may do nothing before it ends. The next call starts another.
    pub idle: Duration,
    /// How long a call may take, but for the removal of a tree, which takes as long as its caller wants. A broker
    /// that needs longer is taken for one whose files hang.
    pub call: Duration,
    /// How long a broker serves new logins. A login that comes later has another started, which looks the account up
    /// again: its groups may have changed, or it may have been disabled. Sessions go over to that one.
    pub fresh: Duration,
}

impl BrokerLimits {
    /// How long a broker serves new logins by default.
    pub const FRESH: Duration = Duration::from_secs(60);

    /// What a call may take by default: as long as a file system over a network that repeats what was lost.
    pub const CALL: Duration = Duration::from_secs(60);
}

/// Whose files are wanted, and how.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct AccountRequest {
    /// The local account's name.
    pub account: String,
    /// The directory that paths start from, opened as the account. `$HOME` and `$USER` in it stand for the
    /// account's home directory and its name.
    pub root: PathBuf,
    /// Nothing may be changed.
    pub read_only: bool,
    /// Permission bits of new files, less the umask.
    pub file_mode: u32,
}

/// Why the files of a local account cannot be had.
#[derive(Debug, thiserror::Error)]
pub enum AccountError {
    /// The account may not be used, or cannot.
    #[error(transparent)]
    Refused(#[from] Refusal),
    /// Without root there is one account.
    #[error(
        "the server was started without root by '{own}', and the map asks for '{wanted}': start it as \
         root, or map to '{own}'"
    )]
    NotOurs {
        /// The server's own account.
        own: String,
        /// The account that was asked for.
        wanted: String,
    },
    /// Every broker is at work.
    #[error(
        "{0} accounts are at work, and that is the limit: try again later, or raise max-brokers"
    )]
    Busy(usize),
    /// The account has its share of brokers at work.
    #[error(
        "{0} processes act for this account already, and others need theirs: try again when fewer directories of it are \
         in use, or raise max-brokers"
    )]
    AccountBusy(usize),
    /// A new login needs another broker, and earlier ones still work.
    #[error(
        "{0} processes still finish listings and other work of the account's earlier sessions, and a login needs another: \
         try again when that is done"
    )]
    Finishing(usize),
    /// The account database, or the root's file system, does not answer.
    #[error("looking up the account and opening its root took more than {} seconds", .0.as_secs())]
    Silent(Duration),
    /// The account's files hang: an earlier call had no answer in time.
    #[error("the account's files do not answer within {} seconds", .0.as_secs())]
    Unresponsive(Duration),
    /// No broker can be started: the monitor is gone, or the machine lacks something.
    #[error("no process can be started to act as the account: {}", words(*.0))]
    Monitor(Errno),
}

/// Has brokers started.
pub trait BrokerSource: Send + Sync + fmt::Debug {
    /// Has a broker started for an account, and returns the socket to it. May block, but not for what the account
    /// database or the account's files take.
    ///
    /// # Errors
    ///
    /// When no process can be started, or this account may not have one.
    fn broker(&self, request: &AccountRequest) -> Result<OwnedFd, Errno>;
}

impl Accounts {
    /// Starts no broker and no thread yet.
    pub fn new(source: Arc<dyn BrokerSource>, limits: BrokerLimits) -> Self {
        Self {
            shared: Arc::new(Shared::new(source, limits)),
        }
    }

    /// The files of an account, as they are at a login: starts a broker if there is none yet. May block.
    ///
    /// # Errors
    ///
    /// When the account may not be used, its root cannot be opened, or there are too many brokers.
    pub fn open(&self, request: &AccountRequest) -> Result<AccountStorage, AccountError> {
        if request.root.as_os_str().len() > LONGEST_PATH {
            return Err(AccountError::Monitor(Errno::NAMETOOLONG));
        }
        let mut broker = self.shared.newest(request)?;
        if let Some(error) = broker.root_has_gone() {
            let (account, root) = (&request.account, request.root.display());
            info!(account, %root, %error, "a root is not what was opened: it is opened anew");
            broker = self.shared.replace(request, &broker)?;
        }
        if let Err(error) = broker.start() {
            self.shared.forget(request, &broker);
            return Err(error);
        }
        self.shared.retire_others(&broker);
        Ok(AccountStorage::new(broker))
    }

    /// How many brokers there are.
    pub fn running(&self) -> usize {
        self.shared.running()
    }

    /// Lets the next login of every account look it up again.
    pub fn renew(&self) {
        self.shared.renew();
    }
}

impl Drop for Accounts {
    fn drop(&mut self) {
        self.shared.close();
    }
}
