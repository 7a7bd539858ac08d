//! The share of a node in a transfer of several nodes.
//!
//! Each node serves some stripes of the transfer. By GFD.20 3.4 every stripe has its own EOF with the number of its EODs, so
//! a node knows by itself when its stripes are complete. All nodes of a receiving transfer write to one file, which the *lead*
//! opens before the others, and completes after them.

use std::fmt;
use std::path::Path;
use std::sync::Arc;

use gridhaul_protocol::ranges::RangeSet;

use crate::error::TransferError;

/// The stripes of a transfer that a node serves.
#[derive(Debug, Clone)]
pub struct Share {
    /// For each listener or peer of the session, in their order, the index of its stripe in the whole transfer.
    pub stripes: Vec<usize>,
    /// The number of stripes of the whole transfer.
    pub total: usize,
    /// What the node does apart from its stripes when it receives.
    pub role: Role,
}

/// What a node does apart from receiving its stripes.
#[derive(Clone)]
pub enum Role {
    /// Opens the file first, and completes it (length, checksums, sync, final name) after all others have closed it.
    Lead(Arc<dyn Companions>),
    /// Writes to the file that the lead has opened, whose path the plan has: neither truncates nor renames it, and does not
    /// check whether the whole file has arrived. Syncs what it has written.
    Member,
}

/// The other nodes of a transfer, from the view of its lead.
pub trait Companions: Send + Sync {
    /// The file is open: the others may write to `path`, which is that of the upload if it has a temporary name.
    fn opened(&self, path: &Path);

    /// Waits until all others have ended, and returns the ranges that they have stored. Blocks until then, or until the
    /// lead's transfer is cancelled.
    ///
    /// # Errors
    ///
    /// The error of another node: the file is not complete, and the lead keeps it as after an interrupted transfer.
    fn wait(&self) -> Result<RangeSet, TransferError>;
}

impl fmt::Debug for Role {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Lead(_) => "Lead",
            Self::Member => "Member",
        })
    }
}
