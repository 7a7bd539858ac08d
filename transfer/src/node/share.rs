//! The share of a node in a transfer of several nodes.
//!
//! Each node serves some stripes of the transfer. A sending node sends the bytes that the layout gives to its stripes among
//! those of all nodes, so that all nodes together send every byte once. By GFD.20 3.4 every stripe has its own EOF with the
//! number of its EODs, so a node knows by itself when its stripes are complete.
//!
//! All nodes of a receiving transfer write to one file, on a file system that shows each of them at once what the others have
//! written. The *lead* opens it before the *members*, and completes it after them:
//!
//! ```text
//!   lead       opens, truncates ── Companions::opened ── its stripes ── Companions::wait ── completes
//!                                         │                                    ^
//!   members                               └──> open ── their stripes ── sync, close
//! ```
//!
//! The session that makes the plans connects them:
//!
//! - A member's plan has the path from [`Companions::opened`], and the placement, restart and handling of the lead's plan.
//! - When the transfer of one node fails, also before [`Companions::opened`], the session cancels those of the others: a node
//!   knows of no other one. A member that is not cancelled fails when no data connection comes within the data timeout.
//! - An interrupted upload is continued by a restart with the `111` markers of all nodes together. The nodes that continue it
//!   need not be the same.
//! - The transfer moves as long as one node does, so stalls are detected by the sum of [`crate::Progress`]. The
//!   [`crate::Survey::total_bytes`] of the lead is that of all nodes, and members have none; senders have those of their stripes.
//!
//! Several nodes serve files in MODE E only. They cannot write in the order of the file ([`crate::Handling::ordered`]), because
//! no node knows what has arrived at the others, and cannot append ([`crate::Placement::Append`]), because the end of the file
//! moves while they open it. A session uses one node for such a transfer, or names the offset ([`crate::Placement::At`]); otherwise
//! the node refuses its share with [`crate::ShareError`].

use std::fmt;
use std::path::Path;
use std::sync::Arc;

use gridhaul_protocol::ranges::RangeSet;

use crate::error::TransferError;

/// The stripes of a transfer that a node serves.
#[derive(Debug, Clone)]
pub struct Share {
    /// For each listener or peer of the session, in their order, the index of its stripe in the whole transfer. Progress and
    /// outcome of the node have the stripes in this order.
    pub stripes: Vec<usize>,
    /// The number of stripes of the whole transfer.
    pub total: usize,
    /// What the node does apart from its stripes when it receives.
    pub role: Role,
}

impl Share {
    /// Whether the node serves all stripes.
    pub(crate) fn is_whole(&self) -> bool {
        self.stripes.len() == self.total
    }
}

/// What a node does apart from receiving its stripes.
#[derive(Clone)]
pub enum Role {
    /// Opens the file first, and completes it (size in `ALLO`, length, checksums, demands, sync, final name) after all others
    /// have closed it. Checksums are computed from the complete file, because only a part of it arrives here.
    Lead(Arc<dyn Companions>),
    /// Writes to the file that the lead has opened, whose path the plan has, also if it is that of an unfinished upload. Neither
    /// creates, truncates, lengthens nor renames it, and does not check whether the whole file has arrived. Syncs what it has
    /// written; if that fails the error is [`TransferError::Lost`].
    Member,
}

/// The other nodes of a transfer, from the view of its lead.
pub trait Companions: Send + Sync {
    /// The file is open: the others may write to `path`, which is that of the upload if it has a temporary name. Called at most
    /// once, before [`crate::Event::Started`]. Returns at once.
    fn opened(&self, path: &Path);

    /// Waits until all others have ended, and returns the ranges that they have stored, as in `111` markers and without those of
    /// earlier attempts. Called at most once, when all stripes of the lead have arrived; a lead that fails before does not call
    /// it.
    ///
    /// Called on a thread of its own: if the lead's transfer is cancelled meanwhile, it ends within 100 ms, and no node wakes
    /// that thread. The session does, because the [`crate::Event::Finished`] of the lead lets it cancel the others: this call
    /// must then return, with any result.
    ///
    /// # Errors
    ///
    /// The error of another node: the file is not complete, and the lead keeps it as after an interrupted transfer. After
    /// [`TransferError::Lost`] it removes an upload, which a restart must not continue; so that error comes before others.
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
