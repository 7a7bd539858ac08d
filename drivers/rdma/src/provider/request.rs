//! Registered memory, and the requests over it.

use crate::memory::Span;

/// The peer's access to a region.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Access {
    /// None: the region is the source of WRITEs.
    Local,
    /// None: the region is the sink of READs. On iWARP the peer's device needs the right to write the
    /// responses.
    Sink,
    /// The peer may write to it.
    RemoteWrite,
    /// The peer may read from it.
    RemoteRead,
}

/// Registered memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Region {
    /// Its number in requests.
    pub id: usize,
    /// Its address for the peer.
    pub address: u64,
    /// The key with which the peer proves its right.
    pub key: u32,
}

/// Memory of the peer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Remote {
    pub address: u64,
    pub key: u32,
}

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

/// The longest message without its payload.
pub const MAX_MESSAGE_BYTES: usize = 32;

/// A short message between the two ends while data flows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Message {
    bytes: [u8; MAX_MESSAGE_BYTES],
    length: usize,
}

impl Message {
    /// `None` if there are too many bytes.
    pub fn new(content: &[u8]) -> Option<Self> {
        let mut bytes = [0; MAX_MESSAGE_BYTES];
        bytes.get_mut(..content.len())?.copy_from_slice(content);
        Some(Self {
            bytes,
            length: content.len(),
        })
    }

    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes[..self.length]
    }
}

/// Why a request was refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum PostError {
    /// See [`crate::provider::Completion::Lost`].
    #[error("the queue pair is lost")]
    Lost,
    /// The caller's count is wrong.
    #[error("the queue pair has as many requests as it can hold")]
    Full,
}
