//! Events of an endpoint.

/// An event.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event {
    /// A request has completed; its memory can be used again.
    Done {
        /// The queue pair.
        queue_pair: usize,
        /// The identifier of the request.
        id: u64,
    },
    /// The peer sent a message.
    Received {
        /// The queue pair.
        queue_pair: usize,
        /// The message with its payload.
        message: Vec<u8>,
    },
    /// A queue pair is lost, and none of its requests will complete.
    Lost {
        /// The queue pair.
        queue_pair: usize,
        /// The reason.
        loss: Loss,
    },
}

/// Why a queue pair was lost.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Loss {
    /// The peer closed it between two messages.
    Closed,
    /// The peer or its host reset it.
    Reset,
    /// Another reason, as text.
    Failed(String),
}
