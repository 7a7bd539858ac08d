//! Bounds of the interface: nothing that the other end sends makes an end grow without limit.

use std::time::Duration;

/// The longest message, in bytes. Many small entries of a message take up to 150 times the memory of their bytes while they are
/// decoded; `wire/bounds.rs` has their number before anything is kept.
pub(crate) const MESSAGE_BYTES: usize = 256 << 10;

/// Sessions over one connection at a time.
pub(crate) const SESSIONS: u32 = 16_384;

/// An end that does not answer for [`KEEPALIVE`] and [`KEEPALIVE_TIMEOUT`] is lost: its sessions end.
pub(crate) const KEEPALIVE: Duration = Duration::from_secs(5);

/// See [`KEEPALIVE`].
pub(crate) const KEEPALIVE_TIMEOUT: Duration = Duration::from_secs(10);

/// How long a connection to a node may take, with its handshake.
pub(crate) const CONNECT: Duration = Duration::from_secs(10);

/// How long a node may take to open data ports.
pub(crate) const LISTEN: Duration = Duration::from_secs(30);

/// How long a node may take to end a cancelled transfer.
pub(crate) const CANCEL: Duration = Duration::from_secs(30);

/// The longest message of a node about itself and its load, in bytes.
pub(crate) const TOLD_BYTES: usize = 64 << 10;

/// How often the load of a node is taken at most.
pub(crate) const LOAD_EVERY: Duration = Duration::from_millis(250);

/// How long a node may be silent, which tells its load every half second.
pub(crate) const SILENCE: Duration = Duration::from_secs(10);

/// Messages about the progress of a checksum that wait for its caller.
pub(crate) const PROGRESS: usize = 64;

/// Requests of a session that wait for the node to take them.
pub(crate) const REQUESTS: usize = 512;

/// Transfers of a session on a node: one that runs, and those whose end has not been sent.
pub(crate) const TRANSFERS: usize = 16;

/// Peers and details of drivers in a message about a transfer.
pub(crate) const FACTS: usize = 256;

/// How long a node may take to attach a session.
pub(crate) const ATTACH: Duration = Duration::from_secs(30);

/// Calls of a session for storage at a time; further ones wait.
pub(crate) const CALLS: usize = 32;

/// Those that wait; with more of them the session ends. A control server has at most one call for each thread of a session.
pub(crate) const WAITING_CALLS: usize = 512;

/// Requests of a session for data channels that wait.
pub(crate) const ORDERED_REQUESTS: usize = 16;

/// Requests with more bytes are large.
pub(crate) const LARGE_BYTES: usize = 1 << 10;

/// Large requests that wait or are served on a node at a time, divided in fair shares; further ones are not read.
pub(crate) const LARGE_REQUESTS: usize = 256;

/// Replies of a session that wait for the control server.
pub(crate) const REPLIES: usize = 64;

/// A control server that takes no reply of a session for this time does not serve it any more: the session ends.
pub const REPLY_TIME: Duration = Duration::from_secs(60);

/// Open directories of a session.
pub(crate) const LISTS: usize = 256;

/// The entries of a directory in one reply.
pub(crate) const RUN_ENTRIES: usize = 1024;

/// The same in bytes, about: one more entry fits into a message.
pub(crate) const RUN_BYTES: usize = 192 << 10;

/// Listeners of a session on one node.
pub(crate) const LISTENERS: usize = 64;

/// Ranges in one message about a transfer.
pub(crate) const RANGES: usize = 10_000;

/// Ranges of a transfer that one end keeps for the other. A node has at most 65,536 (`transfer/src/ledger.rs`).
pub(crate) const KEPT_RANGES: usize = 1 << 20;

/// The lines of a listing in one message, in bytes.
pub(crate) const LINES_BYTES: usize = 128 * 1024;
