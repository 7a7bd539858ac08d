//! Moves ranges of files between storage and data channels.
//!
//! A session describes a transfer as a [`Plan`] and passes it to a [`NodeSession`] of a [`DataNode`], which
//! runs it and reports [`Event`]s. [`LocalNode`] is the node in the same process: it opens files through
//! [`gridhaul_storage::Storage`], builds channels from the drivers of a [`gridhaul_stack::Registry`], and
//! serves each channel with a *worker*, a thread with blocking calls.
//!
//! The unit of work is a range of a file. Stream mode is one range on one channel; MODE E is many
//! blocks on many channels; a restart transfers the complement of the ranges that arrived. A transfer succeeds only
//! if it is known to be complete: every EOD was counted, every announced byte arrived, and the file was closed
//! without an error.
//!
//! ```text
//!   node (interface)      DataNode, NodeSession, Plan, Event
//!        ^
//!        │ implements
//!   local                 sessions of a node, transfers from start to end
//!        │
//!   send      receive     stream mode and MODE E
//!        │
//!   channels  checksums   connection setup, block headers; checksums of arriving data
//!        │
//!   context               resources of the node, state of the transfer
//!        │
//!   running   workers   buffers   ledger   look_ahead
//! ```
//!
//! A transfer may be divided among several nodes: each serves some stripes ([`Share`]), and when they receive, one of them
//! opens and completes the file ([`Role`]).
//!
//! `admission` and `reach` decide which hosts may use data channels and which addresses the server connects to.
//!
//! The crate has no GridFTP commands or replies, no async runtime, and no log: [`Outcome`] has the values
//! for the transfer log.
//!
//! # Example
//!
//! One session receives a file in stream mode from another one:
//!
//! ```
//! use std::net::{IpAddr, Ipv4Addr};
//! use std::path::PathBuf;
//! use std::sync::{Arc, mpsc};
//! use std::time::Duration;
//!
//! use gridhaul_protocol::command::{Representation, StripeLayout, TransferMode};
//! use gridhaul_protocol::ranges::RangeSet;
//! use gridhaul_protocol::stack::StackSpec;
//! use gridhaul_shares::Source;
//! use gridhaul_stack::{Registry, SocketOptions};
//! use gridhaul_storage::{PosixOptions, PosixStorage};
//! use gridhaul_transfer::{
//!     AccountFiles, Admission, ConnectRequest, DataNode, Event, Handling, ListenRequest, LocalNode,
//!     NodeAccount, NodeConfig, Placement, Plan, Stripes, Task,
//! };
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let mut registry = Registry::new();
//! registry.register(gridhaul_tcp::Tcp);
//! let node = LocalNode::new(NodeConfig {
//!     registry,
//!     open_storage: Box::new(|account| {
//!         let storage = PosixStorage::open(&account.root, PosixOptions::default())?;
//!         let home = PathBuf::from("/");
//!         Ok(AccountFiles { storage: Arc::new(storage), home })
//!     }),
//!     workers: 4,
//!     block_bytes: 256 * 1024,
//!     buffer_memory_bytes: 16 * 1024 * 1024,
//!     checksum_threads: 1,
//!     remembered_checksums: 100,
//!     checksum_key: None,
//!     data_timeout: Duration::from_secs(60),
//! });
//! let directory = tempfile::tempdir()?;
//! std::fs::write(directory.path().join("from"), "content")?;
//! let account = NodeAccount {
//!     source: Source::at(Ipv4Addr::LOCALHOST.into()),
//!     name: "anonymous".to_owned(),
//!     account: None,
//!     root: directory.path().to_owned(),
//!     read_only: false,
//!     admission: Admission::Anyone,
//! };
//!
//! // PASV on one session, PORT on the other one.
//! let (sender, receiver) = (node.attach(&account)?, node.attach(&account)?);
//! let stack = StackSpec::parse("tcp")?;
//! let peers = receiver.listen(&ListenRequest {
//!     stack: stack.clone(),
//!     local: IpAddr::V4(Ipv4Addr::LOCALHOST),
//!     stripes: Stripes::One,
//!     sockets: SocketOptions::default(),
//!     session_drivers: Vec::new(),
//! })?;
//! sender.connect(&ConnectRequest {
//!     stack,
//!     peers,
//!     sockets: SocketOptions::default(),
//!     session_drivers: Vec::new(),
//! })?;
//!
//! // STOR on one, RETR on the other one.
//! let plan = |task| Plan {
//!     task,
//!     mode: TransferMode::Stream,
//!     representation: Representation::Image,
//!     parallelism: 1,
//!     layout: StripeLayout::Partitioned,
//!     handling: Handling::default(),
//!     share: None,
//! };
//! let receive = plan(Task::ReceiveFile {
//!     path: "to".into(),
//!     placement: Placement::Replace,
//!     restart: RangeSet::new(),
//!     promised: None,
//! });
//! let send = plan(Task::SendFile {
//!     path: "from".into(),
//!     offset: 0,
//!     length: None,
//!     restart: RangeSet::new(),
//! });
//! let (report, events) = mpsc::channel();
//! receiver.transfer(receive, Box::new(move |event| report.send(event).unwrap()));
//! sender.transfer(send, Box::new(|_| {}));
//! let outcome = events.iter().find_map(|event| match event {
//!     Event::Finished(outcome) => Some(outcome),
//!     _ => None,
//! });
//! outcome.expect("the last event").result?;
//! assert_eq!(std::fs::read_to_string(directory.path().join("to"))?, "content");
//! # Ok(())
//! # }
//! ```

mod admission;
mod bandwidth;
mod buffers;
mod channels;
mod checksums;
mod context;
mod division;
mod error;
mod ledger;
mod local;
mod look_ahead;
mod node;
mod reach;
mod receive;
mod restart;
mod running;
mod send;
mod sync;
mod throttle;
mod uploads;
mod workers;

pub use admission::{AddressBlock, AddressBlockError, Admission};
pub use bandwidth::{BandwidthLimit, BandwidthPart};
pub use error::{CancelReason, PeerError, SequenceError, ShareError, TransferError};
pub use local::{AccountFiles, LocalNode, NodeConfig, OpenStorage};
pub use look_ahead::LOOK_AHEAD_FILES;
pub use node::{
    Answer, AttachError, ByteSink, ChecksumRequest, Companions, ConnectRequest, Consent,
    ConsentSink, DataNode, Demands, Event, EventSink, Handling, LineIterator, LineSource,
    ListenFailure, ListenRequest, MAX_SENT_TEXT_BYTES, NodeAccount, NodeLoad, NodePart,
    NodeSession, OpenLines, Outcome, Placement, Plan, Progress, Refusal, Relabel, Role,
    RunningTransfer, SentAttachError, SentChannelError, SentListenFailure, SentPeerError,
    SentStorageError, SentSystemError, SentTransferError, Share, Stripes, Survey, SyncPolicy,
    TakeBytes, Task, UploadName, WorkerLoad,
};
pub use reach::{Reach, Unreachable, destinations};
