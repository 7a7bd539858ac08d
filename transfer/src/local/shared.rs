//! The state that all sessions of a node share.

use std::sync::Arc;

use gridhaul_storage::Checksums;

use super::config::NodeConfig;
use super::requested_checksums::RequestedChecksums;
use crate::buffers::BufferPool;
use crate::channels::OpenPorts;
use crate::context::Resources;
use crate::workers::{Threads, WorkerLimit};

/// The state that all sessions of a node share.
#[derive(Debug)]
pub(super) struct NodeShared {
    pub(super) config: NodeConfig,
    pub(super) resources: Arc<Resources>,
    pub(super) requested: RequestedChecksums,
    pub(super) open_ports: Arc<OpenPorts>,
}

impl NodeShared {
    pub(super) fn new(config: NodeConfig) -> Self {
        let resources = Resources {
            senders: WorkerLimit::new(config.workers),
            receivers: WorkerLimit::new(config.workers),
            threads: Arc::new(Threads::default()),
            buffers: BufferPool::new(config.block_bytes, config.buffer_memory_bytes),
            checksums: Checksums::new(
                config.checksum_threads,
                config.remembered_checksums,
                config.checksum_key.clone(),
            ),
            data_timeout: config.data_timeout,
            uploads: Arc::default(),
        };
        Self {
            resources: Arc::new(resources),
            requested: RequestedChecksums::new(),
            open_ports: Arc::new(OpenPorts::default()),
            config,
        }
    }
}
