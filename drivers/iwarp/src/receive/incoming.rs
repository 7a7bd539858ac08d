//! Actions of the peer, and the places of its payloads.

use std::sync::Arc;

use crate::buffer::{Buffer, Span};
use crate::request::Remote;
use crate::segment::ReadRequest;

/// An action of the peer.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Incoming {
    /// It sent a message.
    Message(Vec<u8>),
    /// It wrote to all of this part of our memory. The offset counts from address zero, because a peer
    /// may write to more than one region.
    Written(Span),
    /// It READs memory of ours.
    Read(ReadRequest),
    /// A part of the response to the oldest outstanding READ.
    Response { bytes: usize, last: bool },
    /// It terminates the connection with a reason.
    Terminate { layer: u8, code: u8 },
}

/// The memory for READ responses.
pub(crate) trait Sinks {
    /// The memory for the next part of the response that is due, if this is it.
    fn sink(&self, to: Remote, length: usize) -> Option<Sink>;
}

/// The place of a segment's payload.
#[derive(Debug)]
pub(crate) struct Sink {
    pub(crate) memory: Arc<dyn Buffer>,
    pub(crate) span: Span,
    /// How many bytes beyond it may be overwritten.
    pub(crate) spare: usize,
}
