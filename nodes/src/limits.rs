//! Bounds of the interface: nothing that the other end sends makes an end grow without limit.

use std::time::Duration;

/// The longest message, in bytes.
pub(crate) const MESSAGE_BYTES: usize = 16 << 20;

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

/// Requests of a session for data channels that wait.
pub(crate) const ORDERED_REQUESTS: usize = 64;

/// Replies of a session that wait for the control server.
pub(crate) const REPLIES: usize = 64;

/// Open directories of a session.
pub(crate) const LISTS: usize = 256;

/// The entries of a directory in one reply, about.
///
/// Each may have the target of a symbolic link of 4 KiB, and a message has to hold them all.
pub(crate) const RUN_ENTRIES: usize = 1024;

/// Listeners of a session on one node.
pub(crate) const LISTENERS: usize = 64;

/// Ranges in one message about a transfer.
pub(crate) const RANGES: usize = 100_000;

/// The lines of a listing in one message, in bytes, about.
pub(crate) const LINES_BYTES: usize = 256 * 1024;
