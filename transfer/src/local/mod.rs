//! The data node in the same process.

mod ahead;
mod channels;
mod job;
mod open_ports;
mod session;

use std::fmt;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use gridhaul_protocol::stack::StackSpec;
use gridhaul_stack::{Registry, StackError};
use gridhaul_storage::{ChecksumKey, Checksums, Storage};

pub use ahead::LOOK_AHEAD_FILES;
pub(crate) use ahead::LookAhead;
pub(crate) use channels::{DataChannel, DataChannels, DataPort, Role};
use open_ports::{OpenPort, OpenPorts};
pub(crate) use session::Context;
use session::LocalSession;

use crate::buffers::BufferPool;
use crate::checksums::Asked;
use crate::node::{AttachError, DataNode, NodeAccount, NodeLoad, NodeSession};
use crate::workers::{Threads, WorkerLimit};

/// What a [`LocalNode`] is made of.
pub struct NodeConfig {
    /// The drivers that are compiled in and allowed.
    pub registry: Registry,
    /// Opens an account's files.
    pub open_storage: OpenStorage,
    /// How many channels may send at a time, and how many may receive.
    pub workers: usize,
    /// The size of a worker's buffer, in bytes. MODE E blocks that are sent are multiples of it, up to 64
    /// times as large.
    pub block_bytes: usize,
    /// What the buffers of all workers may take together, in bytes.
    pub buffer_memory_bytes: usize,
    /// Threads that compute checksums beside those that ask for them.
    pub checksum_threads: usize,
    /// Files whose checksums are remembered.
    pub remembered_checksums: usize,
    /// With a key, files carry their checksums in an attribute as well.
    pub checksum_key: Option<ChecksumKey>,
    /// How long a data connection, or an announced EOD, is waited for.
    pub data_timeout: Duration,
}

/// Opens an account's files, as the account.
pub type OpenStorage = Box<dyn Fn(&NodeAccount) -> Result<AccountFiles, AttachError> + Send + Sync>;

/// The files of an account.
#[derive(Debug, Clone)]
pub struct AccountFiles {
    /// The files beneath its root.
    pub storage: Arc<dyn Storage>,
    /// Where sessions begin, as a path beneath the root.
    pub home: PathBuf,
}

impl fmt::Debug for NodeConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("NodeConfig")
            .field("workers", &self.workers)
            .field("block_bytes", &self.block_bytes)
            .field("buffer_memory_bytes", &self.buffer_memory_bytes)
            .field("checksum_threads", &self.checksum_threads)
            .field("remembered_checksums", &self.remembered_checksums)
            .field("checksum_key", &self.checksum_key)
            .field("data_timeout", &self.data_timeout)
            .finish_non_exhaustive()
    }
}

/// The data node in the same process: a call is a direct call.
#[derive(Debug)]
pub struct LocalNode {
    shared: Arc<NodeShared>,
}

/// What all sessions of a node share.
#[derive(Debug)]
pub(crate) struct NodeShared {
    pub(crate) config: NodeConfig,
    pub(crate) senders: WorkerLimit,
    pub(crate) receivers: WorkerLimit,
    pub(crate) threads: Threads,
    pub(crate) buffers: Arc<BufferPool>,
    pub(crate) checksums: Checksums,
    pub(crate) asked: Asked,
    pub(crate) open_ports: Arc<OpenPorts>,
}

impl LocalNode {
    /// A node with no session yet; threads are started when transfers need them.
    pub fn new(config: NodeConfig) -> Self {
        let shared = NodeShared {
            senders: WorkerLimit::new(config.workers),
            receivers: WorkerLimit::new(config.workers),
            threads: Threads::default(),
            buffers: BufferPool::new(config.block_bytes, config.buffer_memory_bytes),
            checksums: Checksums::new(
                config.checksum_threads,
                config.remembered_checksums,
                config.checksum_key.clone(),
            ),
            asked: Asked::new(),
            open_ports: Arc::new(OpenPorts::default()),
            config,
        };
        Self {
            shared: Arc::new(shared),
        }
    }
}

impl DataNode for LocalNode {
    fn attach(&self, account: &NodeAccount) -> Result<Arc<dyn NodeSession>, AttachError> {
        let files = (self.shared.config.open_storage)(account)?;
        Ok(Arc::new(LocalSession::new(
            self.shared.clone(),
            account.clone(),
            files,
        )))
    }

    fn check_stack(&self, stack: &StackSpec) -> Result<(), StackError> {
        self.shared.config.registry.build(stack).map(drop)
    }

    fn listens_at(&self, address: SocketAddr) -> bool {
        self.shared.open_ports.has(address)
    }

    fn load(&self) -> NodeLoad {
        let (buffer_bytes, buffer_bytes_limit) = self.shared.buffers.load();
        NodeLoad {
            senders: self.shared.senders.load(),
            receivers: self.shared.receivers.load(),
            buffer_bytes,
            buffer_bytes_limit,
        }
    }
}
