//! What an endpoint and its queue pairs can take.

/// The limits of an endpoint.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// The number of queue pairs.
    pub queue_pairs: usize,
    /// Outstanding requests of one queue pair.
    pub requests: usize,
    /// Outstanding READs of one queue pair.
    pub reads: usize,
    /// The largest WRITE or READ, in bytes.
    pub transfer_bytes: usize,
    /// The longest payload of a message in bytes.
    pub payload_bytes: usize,
}
