//! Work requests.

use gridhaul_iwarp::{Message, Remote, Span};

/// A work request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Request {
    /// Identifies its completion.
    pub id: u64,
    pub work: Work,
}

/// The operation of a work request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Work {
    /// Copies our memory to the peer's. Immediate data announces it to the peer, after everything
    /// that was posted before on the queue pair; it needs [`crate::provider::Limits::immediate`].
    Write {
        region: usize,
        span: Span,
        to: Remote,
        immediate: Option<u32>,
    },
    /// Copies the peer's memory to ours.
    Read {
        region: usize,
        span: Span,
        from: Remote,
    },
    /// Sends a message. It arrives after all WRITEs that were posted before on the queue pair.
    Send(Message),
    /// The same, followed by a part of our memory.
    Carry {
        message: Message,
        region: usize,
        span: Span,
    },
}

impl Work {
    /// The bytes that it moves; at least one.
    pub(crate) fn bytes(&self) -> usize {
        match self {
            Self::Write { span, .. } | Self::Read { span, .. } => span.length.max(1),
            Self::Send(message) => message.as_bytes().len().max(1),
            Self::Carry { message, span, .. } => message.as_bytes().len() + span.length,
        }
    }
}
