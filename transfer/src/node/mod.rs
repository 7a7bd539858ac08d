//! The data node interface: the only way for a session to reach storage and data channels.
//!
//! A session (a control channel) never touches a data socket or the content of a file. It attaches to a
//! [`DataNode`] and exchanges plain values with it: requests to listen or connect, a [`Plan`], a
//! cancellation; and gets [`Event`]s and [`Progress`] back. [`crate::LocalNode`] is the node in the same
//! process. Everything here can be sent over a network, so a node could run on another machine: the drivers of
//! a session as values that only the drivers understand ([`gridhaul_stack::Driver::session_value`]), and the
//! source of a listing ([`LineSource`]) as its lines. [`crate::BandwidthLimit`] is shared by the transfers of a
//! process; other machines need their own. Errors have values that can be sent, from which equal errors
//! are made: [`SentTransferError`] and the like.
//!
//! Several nodes can take part in one transfer, each with some of its stripes: [`Share`].

mod account;
mod consent;
mod events;
mod load;
mod plan;
mod requests;
mod sent;
mod share;

use std::fmt;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::{Duration, SystemTime};

use gridhaul_protocol::ranges::RangeSet;
use gridhaul_protocol::stack::StackSpec;
use gridhaul_stack::{Cancel, StackError};
use gridhaul_storage::{FoundChecksum, Storage, StorageError};

pub use account::{AttachError, NodeAccount};
pub use consent::{Answer, Consent, ConsentSink};
pub use events::{Event, EventSink, NodePart, Outcome, Progress, Refusal, Survey};
pub use load::{NodeLoad, WorkerLoad};
pub use plan::{
    ByteSink, Demands, Handling, LineIterator, LineSource, OpenLines, Placement, Plan, SyncPolicy,
    TakeBytes, Task, UploadName,
};
pub use requests::{
    ChecksumRequest, ConnectRequest, ListenFailure, ListenRequest, Relabel, Stripes,
};
pub use sent::{
    MAX_SENT_TEXT_BYTES, SentAttachError, SentChannelError, SentListenFailure, SentPeerError,
    SentStorageError, SentSystemError, SentTransferError,
};
pub use share::{Companions, Role, Share};

use crate::error::CancelReason;

/// Storage and data channels for any number of sessions.
pub trait DataNode: Send + Sync + fmt::Debug {
    /// Opens the files of an account for a session.
    ///
    /// # Errors
    ///
    /// When the account may not be used here, or its root cannot be opened.
    fn attach(&self, account: &NodeAccount) -> Result<Arc<dyn NodeSession>, AttachError>;

    /// Checks that a stack could be built here; opens nothing.
    ///
    /// # Errors
    ///
    /// When a driver or an option is unknown, or there is no transport.
    fn check_stack(&self, stack: &StackSpec) -> Result<(), StackError>;

    /// Whether a session currently listens for data connections at this address, as advertised to peers.
    fn listens_at(&self, address: SocketAddr) -> bool;

    /// The current load of the node.
    fn load(&self) -> NodeLoad;
}

/// The files and data channels of one session on a node.
pub trait NodeSession: Send + Sync + fmt::Debug {
    /// The session's files; every call blocks.
    fn storage(&self) -> Arc<dyn Storage>;

    /// The initial working directory, as a path beneath the root: the home directory of the local account if
    /// it lies there, else `/`.
    fn home(&self) -> PathBuf;

    /// Computes the checksum of a part of a file, and counts the bytes read in `done`. Blocks.
    ///
    /// # Errors
    ///
    /// When the file cannot be opened or read, or `cancel` was thrown (`ECANCELED`).
    fn checksum(
        &self,
        request: &ChecksumRequest,
        done: &AtomicU64,
        cancel: &Cancel,
    ) -> Result<FoundChecksum, StorageError>;

    /// Sets a file's modification time. Cached checksums of the file stay valid. Blocks.
    ///
    /// # Errors
    ///
    /// Those of [`Storage::set_modified`].
    fn set_modified(&self, path: &Path, modified: SystemTime) -> Result<(), StorageError>;

    /// Renames a file, or changes its mode or group. Cached checksums of the file stay valid. Blocks.
    ///
    /// # Errors
    ///
    /// Those of the corresponding call of [`Storage`].
    fn relabel(&self, path: &Path, change: Relabel<'_>) -> Result<(), StorageError>;

    /// Closes all channels and listeners, and listens for new channels: `PASV`, `EPSV`, `SPAS`. Returns the
    /// addresses to advertise, one for each stripe, at least one.
    ///
    /// # Errors
    ///
    /// When the stack cannot be built or no port is free.
    fn listen(&self, request: &ListenRequest) -> Result<Vec<SocketAddr>, ListenFailure>;

    /// Closes all channels and listeners, and stores the peers for the next transfer: `PORT`, `EPRT`,
    /// `SPOR`. Each address is one stripe.
    ///
    /// # Errors
    ///
    /// When the stack cannot be built.
    fn connect(&self, request: &ConnectRequest) -> Result<(), StackError>;

    /// Closes all channels and listeners: after `MODE`, `DCAU` and the like.
    fn release(&self);

    /// Whether the node has lost the session: every call fails from now on.
    fn is_lost(&self) -> bool {
        false
    }

    /// Whether [`Self::look_ahead`] is worth a call: files that were sent recently had to be read from disk.
    fn looks_ahead(&self) -> bool;

    /// Names files that the session will probably send next, at most [`crate::LOOK_AHEAD_FILES`]. A hint;
    /// returns at once.
    fn look_ahead(&self, paths: Vec<PathBuf>);

    /// Starts a transfer; returns at once. A session has one transfer at a time: a second one
    /// fails. Events come from other threads, in order, [`Event::Finished`] last and exactly once.
    fn transfer(&self, plan: Plan, events: EventSink) -> Arc<dyn RunningTransfer>;

    /// Whether [`Self::transfer_here`] may finish sooner than another thread could be woken: a small file on
    /// an open channel.
    fn may_be_quick(&self, _plan: &Plan) -> bool {
        false
    }

    /// As [`Self::transfer`], but runs on the calling thread up to the point where it would wait for the peer.
    /// Blocks on storage. Afterwards the transfer may be held ([`RunningTransfer::is_held`]).
    fn transfer_here(&self, plan: Plan, events: EventSink) -> Arc<dyn RunningTransfer> {
        self.transfer(plan, events)
    }
}

/// A transfer under way, or just finished.
pub trait RunningTransfer: Send + Sync + fmt::Debug {
    /// Ends the transfer with [`crate::TransferError::Cancelled`] and this reason; has no effect on a finished one.
    fn cancel(&self, reason: CancelReason);

    /// The bytes moved so far.
    fn progress(&self) -> Progress;

    /// The bytes moved over each data channel so far, in the order in which the transfer began to use them. Empty for a transfer on
    /// another machine.
    fn channels(&self) -> Vec<u64> {
        Vec::new()
    }

    /// What is known of the transfer so far.
    fn survey(&self) -> Survey;

    /// Whether all data has arrived and is being synced to disk ([`SyncPolicy::Data`]) or hashed. During
    /// that time no byte moves, and a cancellation does not end the sync.
    fn is_settling(&self) -> bool;

    /// How long the transfer has waited for bandwidth until now ([`crate::BandwidthLimit`]).
    fn waited(&self) -> Duration {
        Duration::ZERO
    }

    /// The received ranges that storage has accepted and that no earlier call returned. Relative to
    /// the start of the part that is transferred, as in `111` markers.
    fn take_received(&self) -> RangeSet;

    /// Whether the transfer waits for [`Self::resume_here`] or [`Self::resume_on_worker`]: it has sent
    /// [`Event::Started`], and the peer sends nothing before it has the reply for that.
    fn is_held(&self) -> bool {
        false
    }

    /// Continues a held transfer as [`Self::resume_here`] does, if its data has begun to arrive already: the peer does not wait for the
    /// reply. Otherwise it stays held.
    fn resume_if_arrived(&self) {}

    /// Continues a held transfer, for at most a millisecond on the calling thread and then on a worker.
    fn resume_here(&self) {}

    /// Continues a held transfer on a worker.
    fn resume_on_worker(&self) {}
}
