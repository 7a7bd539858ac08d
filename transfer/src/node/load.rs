//! How busy a node is.

/// The load of a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NodeLoad {
    /// Workers that send.
    pub senders: WorkerLoad,
    /// Workers that receive.
    pub receivers: WorkerLoad,
    /// Memory of all buffers in use, in bytes.
    pub buffer_bytes: usize,
    /// The limit of `buffer_bytes`.
    pub buffer_bytes_limit: usize,
    /// Channels that wait for a buffer.
    pub buffers_awaited: usize,
}

/// The load of the workers of one direction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WorkerLoad {
    /// Workers with a permit.
    pub busy: usize,
    /// The limit of `busy`.
    pub limit: usize,
    /// Transfers that wait for a permit.
    pub awaited: usize,
}
