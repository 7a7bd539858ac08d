//! The account of a session on a node.

use std::path::PathBuf;

use gridhaul_shares::Source;
use gridhaul_storage::StorageError;

use crate::admission::Admission;

/// The account whose files a session works with.
#[derive(Debug, Clone)]
pub struct NodeAccount {
    /// The network and account that the session's share of the node's resources counts for.
    pub source: Source,
    /// The name that the session logged in with.
    pub name: String,
    /// The local account whose rights apply to the files; `None` is the server's own, as for
    /// anonymous and password users.
    pub account: Option<String>,
    /// The directory that the session sees as `/`. For a local account `$HOME` and `$USER` in it stand
    /// for the account's home directory and its name.
    pub root: PathBuf,
    /// Refuses all changes.
    pub read_only: bool,
    /// The hosts that may open data channels to this session.
    pub admission: Admission,
}

/// Why a session cannot attach to a node.
#[derive(Debug, thiserror::Error)]
pub enum AttachError {
    /// The local account may not be used here, or not at the moment; the text has the reason and the remedy.
    #[error("{0}")]
    Account(String),
    /// The root cannot be opened.
    #[error("Your directory cannot be opened: {}.", .0.reason())]
    Root(#[from] StorageError),
}
