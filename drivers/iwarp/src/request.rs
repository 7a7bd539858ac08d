//! Registered memory, and the requests over it.

use crate::buffer::Span;

/// The peer's access to a region.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Access {
    /// None: the region is the source of WRITEs.
    Local,
    /// None: the region is the sink of READs. On iWARP the peer needs the right to write the
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
    /// Its address for the peer: the tagged offset (TO) of its first byte.
    pub address: u64,
    /// The key with which the peer proves its right (STag).
    pub key: u32,
}

/// Memory of the peer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Remote {
    /// The tagged offset (TO).
    pub address: u64,
    /// The key (STag).
    pub key: u32,
}

/// A work request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Request {
    /// Copies our memory to the peer's.
    Write {
        /// The number of the source.
        region: usize,
        /// The part of the source.
        span: Span,
        /// The destination.
        to: Remote,
    },
    /// Copies the peer's memory to ours.
    Read {
        /// The number of the destination.
        region: usize,
        /// The part of the destination.
        span: Span,
        /// The source.
        from: Remote,
    },
    /// Sends a message. It arrives after all WRITEs that were posted before on the queue pair.
    Send {
        /// The message.
        message: Message,
        /// A part of a region that follows the message.
        payload: Option<(usize, Span)>,
    },
}

/// The longest [`Message`] without its payload, in bytes: one that names a ring has a key for each of several adapters.
pub const MAX_MESSAGE_BYTES: usize = 48;

/// A short message between the two ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Message {
    bytes: [u8; MAX_MESSAGE_BYTES],
    length: usize,
}

impl Message {
    /// `None` if there are more than [`MAX_MESSAGE_BYTES`].
    pub fn new(content: &[u8]) -> Option<Self> {
        let mut bytes = [0; MAX_MESSAGE_BYTES];
        bytes.get_mut(..content.len())?.copy_from_slice(content);
        Some(Self {
            bytes,
            length: content.len(),
        })
    }

    /// Its content.
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes[..self.length]
    }
}

/// Why a request was refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum PostError {
    /// It was reported as lost, or this end has ended it.
    #[error("the queue pair is lost")]
    Lost,
    /// The queue pair has as many requests as its limits allow, so the caller's count is wrong.
    #[error("the queue pair has as many requests as it can hold")]
    Full,
}
