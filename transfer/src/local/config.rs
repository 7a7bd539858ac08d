//! The configuration of a [`crate::LocalNode`].

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use gridhaul_stack::Registry;
use gridhaul_storage::{ChecksumKey, Storage};

use crate::node::{AttachError, NodeAccount};

/// The configuration of a [`crate::LocalNode`].
pub struct NodeConfig {
    /// The drivers that are compiled in and allowed.
    pub registry: Registry,
    /// Opens an account's files.
    pub open_storage: OpenStorage,
    /// The number of channels that may send at a time, and of those that may receive.
    pub workers: usize,
    /// The size of a worker's buffer, in bytes. Sent MODE E blocks are multiples of it, up to 64
    /// times as large.
    pub block_bytes: usize,
    /// The limit for the memory of all buffers, in bytes.
    pub buffer_memory_bytes: usize,
    /// The number of threads that compute checksums, in addition to those that request them.
    pub checksum_threads: usize,
    /// The number of files whose checksums are cached.
    pub remembered_checksums: usize,
    /// With a key, checksums are also stored in an attribute of the file.
    pub checksum_key: Option<ChecksumKey>,
    /// The time limit for a data connection, or for an announced EOD.
    pub data_timeout: Duration,
}

/// Opens an account's files, with the rights of the account.
pub type OpenStorage = Box<dyn Fn(&NodeAccount) -> Result<AccountFiles, AttachError> + Send + Sync>;

/// The files of an account.
#[derive(Debug, Clone)]
pub struct AccountFiles {
    /// The files beneath its root.
    pub storage: Arc<dyn Storage>,
    /// The initial working directory, as a path beneath the root.
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
