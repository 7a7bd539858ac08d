//! Events of an endpoint.

use gridhaul_iwarp::Loss;

/// An event.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Completion {
    /// A request has completed; its memory can be used again.
    Done { queue_pair: usize, id: u64 },
    /// The peer sent a message, with its inline payload.
    Received { queue_pair: usize, message: Vec<u8> },
    /// The peer wrote this many bytes with this immediate data.
    Written {
        queue_pair: usize,
        immediate: u32,
        length: u32,
    },
    /// A queue pair is lost, and none of its requests will complete. With
    /// [`crate::provider::Limits::replaces`] it may be restored; if it was lost or closed before, this
    /// event means that it will not be.
    Lost { queue_pair: usize, loss: Loss },
    /// A lost or closed queue pair works again, without requests. Requests that were posted
    /// before will not be delivered at either end.
    Restored { queue_pair: usize },
}
