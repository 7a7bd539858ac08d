//! The interface that starts brokers, and its request.

use std::fmt;
use std::os::fd::OwnedFd;
use std::path::PathBuf;

use rustix::io::Errno;

/// The account whose files are needed, and how they are opened.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct AccountRequest {
    /// The local account's name.
    pub account: String,
    /// The directory that paths start from, opened as the account. `$HOME` and `$USER` in it stand for the
    /// account's home directory and its name.
    pub root: PathBuf,
    /// Changes are refused.
    pub read_only: bool,
    /// Permission bits of new files, before the umask is applied.
    pub file_mode: u32,
}

/// Starts brokers.
pub trait BrokerSource: Send + Sync + fmt::Debug {
    /// Has a broker started for an account, and returns the socket to it. May block, but does not wait for the account
    /// database or the account's file system.
    ///
    /// # Errors
    ///
    /// When no process can be started, or this account may not have one.
    fn broker(&self, request: &AccountRequest) -> Result<OwnedFd, Errno>;
}
