//! What a session requests from a node apart from transfers: data ports, checksums, changes of metadata.

use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use gridhaul_protocol::stack::StackSpec;
use gridhaul_stack::{Driver, ListenError, SocketOptions, StackError};
use gridhaul_storage::ChecksumAlgorithm;

/// Where a session listens.
#[derive(Debug, Clone)]
pub struct ListenRequest {
    /// The driver stack.
    pub stack: StackSpec,
    /// The local address. A node on another machine listens at its own one.
    pub local: IpAddr,
    /// How many listeners.
    pub stripes: Stripes,
    /// The session's socket options.
    pub sockets: SocketOptions,
    /// Drivers with the identity of this session; each replaces the node's driver of the same name. A node on another machine
    /// gets them as values ([`Driver::session_value`]).
    pub session_drivers: Vec<Arc<dyn Driver>>,
}

/// How many listeners a data port has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stripes {
    /// One, for one address in the reply.
    One,
    /// One for each stripe of a striped transfer. A single node has `at_most` of them; a cluster has one on each node that can
    /// be used, up to `at_most`.
    Many {
        /// The number of stripes that the administrator allows.
        at_most: usize,
    },
}

impl Stripes {
    /// The number of listeners of a single node.
    pub fn most(self) -> usize {
        match self {
            Self::One => 1,
            Self::Many { at_most } => at_most,
        }
    }
}

/// Where a session connects to.
#[derive(Debug, Clone)]
pub struct ConnectRequest {
    /// The driver stack.
    pub stack: StackSpec,
    /// The stripes of the peer, in order.
    pub peers: Vec<SocketAddr>,
    /// The session's socket options.
    pub sockets: SocketOptions,
    /// As in [`ListenRequest::session_drivers`].
    pub session_drivers: Vec<Arc<dyn Driver>>,
}

/// Why a node does not listen.
#[derive(Debug, thiserror::Error)]
pub enum ListenFailure {
    /// The stack cannot be built.
    #[error(transparent)]
    Stack(#[from] StackError),
    /// No port is free, or the address is not local.
    #[error(transparent)]
    Listen(#[from] ListenError),
    /// None of the nodes of a cluster listens; the text has the reason of each.
    #[error("{0}")]
    Nodes(String),
}

/// A change of a file's metadata that leaves its content as it is.
#[derive(Debug, Clone, Copy)]
pub enum Relabel<'a> {
    /// Another name; see [`gridhaul_storage::Storage::rename`].
    Name(&'a Path),
    /// Other permission bits; see [`gridhaul_storage::Storage::set_mode`].
    Mode(u32),
    /// Another group; see [`gridhaul_storage::Storage::set_group`].
    Group(&'a str),
}

/// A request for the checksum of a file or a part of it.
#[derive(Debug, Clone)]
pub struct ChecksumRequest {
    /// The file.
    pub path: PathBuf,
    /// The algorithm.
    pub algorithm: ChecksumAlgorithm,
    /// Where the part starts, in bytes; past the end of the file the part is empty.
    pub offset: u64,
    /// The length of the part at most, in bytes; `None` is to the end of the file.
    pub length: Option<u64>,
}
