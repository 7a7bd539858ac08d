//! Moves ranges of files between storage and data channels.
//!
//! A session describes a transfer as a [`Plan`] and hands it to a [`DataNode`]; the node does the rest
//! and reports [`Event`]s. [`LocalNode`] is the node in the same process: it opens files by
//! [`gridhaul_storage::Storage`], makes channels by a [`gridhaul_stack::Registry`] of drivers, and
//! serves each channel by a *worker*, a thread that runs plain blocking loops.
//!
//! The unit of work is a range of a file. Stream mode is one range on one channel; MODE E is many
//! blocks on many channels; a restart is the complement of what arrived. A transfer is a success only
//! if that is proven: every EOD counted, every promised byte there, the file closed without an error.
//!
//! This crate knows no command, no reply and no runtime, and writes no log: what is worth telling is in
//! [`Outcome`].

mod admission;
mod buffers;
mod checksums;
mod dispenser;
mod embedded;
mod error;
mod establish;
mod handshakes;
mod ledger;
mod local;
mod node;
mod portion;
mod reach;
mod receive;
mod running;
mod send;
mod sync;
mod workers;

pub use admission::{AddressBlock, AddressBlockError, Admission};
pub use error::{CancelReason, PeerError, SequenceError, TransferError};
pub use local::{AccountFiles, LOOK_AHEAD_FILES, LocalNode, NodeConfig, OpenStorage};
pub use node::{
    AttachError, ChecksumRequest, ConnectRequest, DataNode, Event, EventSink, Handling,
    LineIterator, LineSource, ListenFailure, ListenRequest, NodeAccount, NodeLoad, NodeSession,
    OpenLines, Outcome, Placement, Plan, Progress, Refusal, Relabel, RunningTransfer, SyncPolicy,
    Task, WorkerLoad,
};
pub use reach::{Reach, Unreachable, destinations};
