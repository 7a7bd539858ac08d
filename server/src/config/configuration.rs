//! A complete configuration.

use std::net::SocketAddr;
use std::path::PathBuf;

use gridhaul_transfer::Handling;

use super::accounts::LocalAccounts;
use super::data::DataConnections;
use super::limits::Limits;
use super::security::Security;
use super::values::LogFormat;

/// A complete configuration.
#[derive(Debug, Clone, PartialEq)]
pub struct Config {
    /// The directory that is served.
    pub root: PathBuf,
    /// Where control connections are accepted: at least one address, unless ssh has brought the one.
    pub listen: Vec<SocketAddr>,
    /// Whether, and how, anonymous users are let in.
    pub anonymous: Option<Anonymous>,
    /// The file of users with passwords.
    pub passwords: Option<PathBuf>,
    /// How identities are proved.
    pub security: Security,
    /// How local accounts are used.
    pub accounts: LocalAccounts,
    /// The account to run as when started as root.
    pub user: String,
    /// The permission bits of new files.
    pub perms: u32,
    /// What the greeting says.
    pub banner: Option<String>,
    /// How much of everything there may be.
    pub limits: Limits,
    /// How data connections are made.
    pub data: DataConnections,
    /// Where metrics can be had.
    pub metrics_listen: Option<SocketAddr>,
    /// The file that gets a line for each transfer.
    pub transfer_log: Option<PathBuf>,
    /// How transfers treat files.
    pub handling: Handling,
    /// The file with the key of the checksums that files carry, if they do.
    pub checksum_key: Option<PathBuf>,
    /// The log.
    pub log: Log,
}

/// How anonymous users are let in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Anonymous {
    /// The names that they may use; `*` is any.
    pub names: Vec<String>,
    /// They may change things.
    pub write: bool,
}

/// What is logged, where and how.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Log {
    /// The file; `None` is standard error.
    pub file: Option<PathBuf>,
    /// Text or JSON.
    pub format: LogFormat,
    /// Level, or rules.
    pub level: String,
}
