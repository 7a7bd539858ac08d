//! A complete configuration.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use gridhaul_transfer::{Handling, UploadName};

use super::accounts::LocalAccounts;
use super::admin::Administration;
use super::as_node::AsNode;
use super::data::DataConnections;
use super::group_limits::GroupLimit;
use super::keys::Keys;
use super::limits::Limits;
use super::name_server::NameServer;
use super::nodes::NodeSource;
use super::security::Security;
use super::values::{AtomicRoot, Callout, LogFormat};

/// A complete configuration.
#[derive(Debug, Clone, PartialEq)]
pub struct Config {
    /// The served directory.
    pub root: PathBuf,
    /// The addresses of control connections: at least one, except for ssh.
    pub listen: Vec<SocketAddr>,
    /// The access of anonymous users, if they are admitted.
    pub anonymous: Option<Anonymous>,
    /// The file of users with passwords.
    pub passwords: Option<PathBuf>,
    /// Certificates, trust and maps.
    pub security: Security,
    /// The callout that is asked about logins with certificates.
    pub authz_callout: Option<Callout>,
    /// The time within which it must answer.
    pub authz_callout_timeout: Duration,
    /// The local accounts.
    pub accounts: LocalAccounts,
    /// The account to run as when started as root.
    pub user: String,
    /// The permission bits of new files.
    pub perms: u32,
    /// The greeting.
    pub banner: Option<String>,
    /// The limits.
    pub limits: Limits,
    /// Data connections.
    pub data: DataConnections,
    /// The data nodes, in order; without them this process is the only one.
    pub nodes: Vec<NodeSource>,
    /// The name servers for the names of data nodes; none are those of this machine.
    pub nodes_resolver: Vec<NameServer>,
    /// The file with the certificate and the key for enrolled data nodes, in the directory of their authority.
    pub node_authority: Option<PathBuf>,
    /// In `gridhaul-server node`: what only a data node has.
    pub node: Option<AsNode>,
    /// The address of the page of metrics.
    pub metrics_listen: Option<SocketAddr>,
    /// The administration interface.
    pub admin: Administration,
    /// The file that gets a line for each transfer.
    pub transfer_log: Option<PathBuf>,
    /// How transfers treat files.
    pub handling: Handling,
    /// The limits of groups of users.
    pub group_limits: Vec<GroupLimit>,
    /// The roots beneath which uploads have temporary names until they are complete.
    pub atomic_uploads: Vec<AtomicRoot>,
    /// The file with the key of stored checksums, if checksums are stored.
    pub checksum_key: Option<PathBuf>,
    /// The log.
    pub log: Log,
    /// The settings that it was made of, for administrators.
    pub keys: Keys,
}

impl Config {
    /// The files of all logs.
    pub(crate) fn logs(&self) -> impl Iterator<Item = &PathBuf> {
        let logs = [&self.log.file, &self.log.audit, &self.transfer_log];
        logs.into_iter().flatten()
    }

    /// The name of uploads in a session with this root until they are complete.
    pub(crate) fn upload_name(&self, root: &Path) -> UploadName {
        if self.atomic_uploads.iter().any(|named| named.is_about(root)) {
            UploadName::Temporary
        } else {
            UploadName::Final
        }
    }
}

/// The access of anonymous users.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Anonymous {
    /// The names for anonymous logins; `*` is any.
    pub names: Vec<String>,
    /// They may write, rename and delete.
    pub write: bool,
}

/// The log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Log {
    /// The file; `None` is standard error.
    pub file: Option<PathBuf>,
    /// The format.
    pub format: LogFormat,
    /// The level, or rules for levels.
    pub level: String,
    /// The file of audit records.
    pub audit: Option<PathBuf>,
}
