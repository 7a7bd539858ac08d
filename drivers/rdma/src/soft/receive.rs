//! The receiving half of a queue pair: splits bytes into segments and places their payload.
//!
//! After key, bounds and rights were checked, the payload of a tagged segment is received straight
//! into the memory that it names, together with those that probably follow ([`Predictor`]). With
//! checksums it goes through the staging buffer: nothing may be placed before it was verified (RFC
//! 5044 4.4).

mod direct;

use std::io;
use std::os::fd::BorrowedFd;
use std::sync::Arc;

use rustix::io::Errno;
use rustix::net::{RecvFlags, recv};

use direct::Direct;

use super::mpa::{CHECKSUM_BYTES, Checksum, LENGTH_BYTES, Trailer, padding, trailer_bytes};
use super::placed::Scattered;
use super::prediction::{Begun, HEAD_BYTES, Predictor};
use super::regions::{AccessError, Regions};
use super::segment::{Header, Queue, ReadRequest, SegmentError, TAGGED_BYTES, Tagged};
use crate::memory::{Memory, Span};
use crate::provider::{Access, Loss, Remote};

/// The longest message that does not come from an engine: a TERMINATE with the headers of an
/// offending READ (RFC 5040 4.8) has 52 bytes.
const MAX_CONTROL_BYTES: usize = 64;

/// Two FPDUs of any size, and what else one call receives.
const STAGING_BYTES: usize = 512 * 1024;

/// Payloads of at least this size are received straight into their place; smaller ones share a
/// call.
const DIRECT_FROM_BYTES: usize = 8 * 1024;

/// Bytes received beyond the payload of a large segment: its trailer, often a short message, the
/// header of the next large one, and some of its payload, which is copied.
const BEYOND_BYTES: usize = 256;

/// The receiving half of a queue pair.
#[derive(Debug)]
pub(super) struct Receive {
    has_checksum: bool,
    predictor: Predictor,
    staging: Box<[u8]>,
    /// The part of `staging` that was received and not used yet.
    start: usize,
    end: usize,
    /// A segment whose payload is being received into its place.
    direct: Option<Direct>,
    /// How many calls may still check the socket.
    calls: usize,
    /// The socket had fewer bytes than requested, so another call would find none.
    is_drained: bool,
    /// Whether the last tagged segment was a large one.
    expects_large: bool,
    /// The number of the next message of each queue.
    next_message: [u32; 3],
    /// The longest message of the peer's engine.
    message_bytes: usize,
    /// For each queue, the first segments of an incomplete message: adapters cut messages at packet
    /// boundaries.
    begun: [Vec<u8>; 3],
}

/// An action of the peer.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Incoming {
    /// It sent a message.
    Message(Vec<u8>),
    /// It wrote to all of this part of the memory that it may write to.
    Written(Span),
    /// It READs memory of ours.
    Read(ReadRequest),
    /// A part of the response to the oldest outstanding READ.
    Answer { bytes: usize, last: bool },
    /// It terminates the connection with a reason.
    Terminate { layer: u8, code: u8 },
}

/// Why the connection cannot continue.
#[derive(Debug, thiserror::Error)]
pub(super) enum ReceiveError {
    #[error("{0}")]
    Network(#[from] io::Error),
    #[error("the connection ended")]
    Ended,
    #[error("the connection ended in the middle of a message")]
    Cut,
    #[error("the other end sent {0}")]
    Segment(#[from] SegmentError),
    #[error("the other end may not do that: {0}")]
    Access(#[from] AccessError),
    #[error("the other end sent message {seen} of a queue, not message {wanted}")]
    Order { seen: u32, wanted: u32 },
    #[error("the other end sent byte {seen} of a message, not byte {wanted}")]
    Offset { seen: u32, wanted: usize },
    #[error("the other end sent a message of {bytes} bytes; {limit} are the limit")]
    TooLong { bytes: usize, limit: usize },
    #[error("the other end sent a message with a wrong checksum")]
    Checksum,
    #[error("the other end sent {0}")]
    Scattered(#[from] Scattered),
    #[error("the other end sent an answer to a READ that is not the one asked for")]
    Answer,
    #[error("the other end sent more than the {0} READs at a time that were agreed")]
    TooManyReads(usize),
    #[error("the other end ended the connection: layer {layer}, code {code} (RFC 5040 4.8)")]
    Terminated { layer: u8, code: u8 },
}

impl ReceiveError {
    /// The reason for the loss of the queue pair.
    pub(super) fn loss(&self) -> Loss {
        match self {
            Self::Ended => Loss::Closed,
            Self::Network(error)
                if matches!(
                    error.kind(),
                    io::ErrorKind::ConnectionReset | io::ErrorKind::BrokenPipe
                ) =>
            {
                Loss::Reset
            }
            other => Loss::Failed(other.to_string()),
        }
    }
}

/// The memory for READ responses.
pub(super) trait Sinks {
    /// The memory for the next part of the response that is due, if this is it.
    fn sink(&self, to: Remote, length: usize) -> Option<Sink>;
}

/// The place of a segment's payload.
#[derive(Debug)]
pub(super) struct Sink {
    pub(super) memory: Arc<Memory>,
    pub(super) span: Span,
    /// How many bytes beyond it may be overwritten.
    pub(super) spare: usize,
}

/// The result of looking at received bytes.
enum Step {
    Event(Incoming),
    /// A segment was used up, or its payload must be received.
    Again,
    /// This many bytes are needed to continue.
    Wanted(usize),
}

impl Receive {
    pub(super) fn new(has_checksum: bool, message_bytes: usize) -> Self {
        Self {
            has_checksum,
            predictor: Predictor::default(),
            staging: vec![0; STAGING_BYTES].into_boxed_slice(),
            start: 0,
            end: 0,
            direct: None,
            calls: 0,
            is_drained: false,
            expects_large: false,
            next_message: [1; 3],
            message_bytes,
            begun: Default::default(),
        }
    }

    /// The socket may have data again, and this many calls may check it. All data that they stage
    /// is used before the next poll, because no event would follow for it.
    pub(super) fn begin(&mut self, calls: usize) {
        self.calls = calls;
        self.is_drained = false;
    }

    /// The peer's next action, or `None` when the socket is empty for now or was checked often
    /// enough.
    ///
    /// # Errors
    ///
    /// The connection is lost or must be given up.
    pub(super) fn next(
        &mut self,
        socket: BorrowedFd<'_>,
        regions: &Regions,
        sinks: &dyn Sinks,
    ) -> Result<Option<Incoming>, ReceiveError> {
        loop {
            let step = match self.direct.take() {
                Some(direct) => self.receive_direct(direct, socket)?,
                None => self.segment(regions, sinks)?,
            };
            match step {
                Step::Event(event) => return Ok(Some(event)),
                Step::Again => {}
                Step::Wanted(bytes) => {
                    if !self.fill(bytes, socket)? {
                        return Ok(None);
                    }
                }
            }
        }
    }

    /// Handles the segment at the start of the staging buffer.
    fn segment(&mut self, regions: &Regions, sinks: &dyn Sinks) -> Result<Step, ReceiveError> {
        let staged = &self.staging[self.start..self.end];
        let [high, low, segment @ ..] = staged else {
            return Ok(Step::Wanted(HEAD_BYTES));
        };
        let length = usize::from(u16::from_be_bytes([*high, *low]));
        let header_bytes = segment
            .first()
            .map_or(TAGGED_BYTES, |&b| Header::bytes_of(b));
        if length < header_bytes {
            return Err(SegmentError::TooShort(length).into());
        }
        if segment.len() < header_bytes {
            return Ok(Step::Wanted(LENGTH_BYTES + header_bytes));
        }
        let whole = LENGTH_BYTES + length + trailer_bytes(length);
        let is_whole = staged.len() >= whole;
        let payload = length - header_bytes;
        match Header::decode(&segment[..header_bytes])? {
            Header::Tagged {
                kind,
                last,
                key,
                address,
            } => {
                let is_direct = !self.has_checksum && payload >= DIRECT_FROM_BYTES;
                if !is_whole && !is_direct {
                    return Ok(Step::Wanted(whole));
                }
                if is_whole {
                    self.verify(length)?;
                }
                let to = Remote { address, key };
                let sink = match kind {
                    Tagged::Write => written(regions, to, payload)?,
                    Tagged::ReadResponse => sinks.sink(to, payload).ok_or(ReceiveError::Answer)?,
                };
                self.expects_large = is_direct;
                self.predictor.note(payload, last);
                self.start += LENGTH_BYTES + header_bytes;
                let begun = Begun {
                    kind,
                    last,
                    key,
                    address: address.wrapping_add(payload as u64),
                    end: sink.span.offset + payload,
                    spare: sink.spare,
                };
                self.place(begun, sink, trailer_bytes(length));
                Ok(Step::Again)
            }
            Header::Untagged {
                queue,
                last,
                message,
                offset,
            } => {
                self.check_message(queue, message, offset, payload)?;
                if !is_whole {
                    return Ok(Step::Wanted(whole));
                }
                self.verify(length)?;
                let start = self.start + LENGTH_BYTES + header_bytes;
                let begun = &mut self.begun[queue as usize];
                begun.extend_from_slice(&self.staging[start..start + payload]);
                self.start += whole;
                if !last {
                    return Ok(Step::Again);
                }
                let content = std::mem::take(begun);
                let number = &mut self.next_message[queue as usize];
                *number = number.wrapping_add(1);
                Ok(Step::Event(message_event(queue, content)?))
            }
        }
    }

    /// Verifies the checksum of the complete segment at the start of the staging buffer.
    fn verify(&self, length: usize) -> Result<(), ReceiveError> {
        if !self.has_checksum {
            return Ok(());
        }
        let staged = &self.staging[self.start..];
        let mut checksum = Checksum::new();
        checksum.update(&staged[..LENGTH_BYTES + length]);
        let trailer = Trailer::new(length, Some(checksum.finish(length)));
        let start = LENGTH_BYTES + length + padding(length);
        let seen = &staged[start..start + CHECKSUM_BYTES];
        if trailer.as_bytes().ends_with(seen) {
            Ok(())
        } else {
            Err(ReceiveError::Checksum)
        }
    }

    /// RFC 5041 5.2: messages of a queue arrive in order, and the segments of a message in order
    /// with its number.
    fn check_message(
        &self,
        queue: Queue,
        seen: u32,
        offset: u32,
        payload: usize,
    ) -> Result<(), ReceiveError> {
        let wanted = self.next_message[queue as usize];
        if seen != wanted {
            return Err(ReceiveError::Order { seen, wanted });
        }
        let begun = self.begun[queue as usize].len();
        if offset as usize != begun {
            return Err(ReceiveError::Offset {
                seen: offset,
                wanted: begun,
            });
        }
        let limit = match queue {
            Queue::Send => self.message_bytes,
            Queue::ReadRequest | Queue::Terminate => MAX_CONTROL_BYTES,
        };
        match begun + payload {
            bytes if bytes > limit => Err(ReceiveError::TooLong { bytes, limit }),
            _ => Ok(()),
        }
    }

    /// Receives until `wanted` bytes are staged or the socket is empty; `false` if there is
    /// nothing.
    fn fill(&mut self, wanted: usize, socket: BorrowedFd<'_>) -> Result<bool, ReceiveError> {
        if wanted == 0 || self.is_drained || self.calls == 0 {
            return Ok(false);
        }
        self.calls -= 1;
        self.staging.copy_within(self.start..self.end, 0);
        (self.start, self.end) = (0, self.end - self.start);
        // Between large segments little is staged, so that little must be copied.
        let limit = if self.expects_large {
            wanted.max(BEYOND_BYTES)
        } else {
            self.staging.len()
        };
        let room = &mut self.staging[self.end..limit];
        match recv(socket, room, RecvFlags::empty()) {
            Ok((_, 0)) if self.end == 0 && self.direct.is_none() => Err(ReceiveError::Ended),
            Ok((_, 0)) => Err(ReceiveError::Cut),
            Ok((_, count)) => {
                self.is_drained = self.end + count < limit;
                self.end += count;
                Ok(true)
            }
            Err(Errno::INTR) => Ok(true),
            Err(Errno::AGAIN) => Ok(false),
            Err(errno) => Err(io::Error::from(errno).into()),
        }
    }
}

/// The place of a WRITE, if it is allowed.
fn written(regions: &Regions, to: Remote, payload: usize) -> Result<Sink, AccessError> {
    let (memory, span) = regions.find(to, payload, Access::RemoteWrite)?;
    Ok(Sink {
        memory: Arc::clone(memory),
        span,
        spare: regions.spare_behind(memory, span.offset + payload),
    })
}

fn message_event(queue: Queue, content: Vec<u8>) -> Result<Incoming, ReceiveError> {
    Ok(match queue {
        Queue::Send => Incoming::Message(content),
        Queue::ReadRequest => Incoming::Read(ReadRequest::decode(&content)?),
        // RFC 5040 4.8: four bits of layer, four of type, eight of code.
        Queue::Terminate => Incoming::Terminate {
            layer: content.first().map_or(0, |layers| layers >> 4),
            code: content.get(1).copied().unwrap_or(0),
        },
    })
}

#[cfg(test)]
mod tests;
