//! The receiving half of a queue pair: bytes become segments, segments go to their place.
//!
//! The payload of a tagged segment is received straight into the memory that it names, after key, bounds and
//! rights were checked. With checksums it takes the long way, through the staging buffer: nothing may be
//! placed before it was verified (RFC 5044 4.4).

use std::io;
use std::os::fd::BorrowedFd;
use std::sync::Arc;

use rustix::io::Errno;
use rustix::net::RecvFlags;

use super::mpa::{CHECKSUM_BYTES, Checksum, LENGTH_BYTES, Trailer, padding, trailer_bytes};
use super::regions::{AccessError, Regions};
use super::segment::{Header, Queue, ReadRequest, SegmentError, TAGGED_BYTES, Tagged};
use crate::memory::{Memory, Span};
use crate::provider::{Access, Loss, MAX_MESSAGE_BYTES, Message, Remote};

/// Two FPDUs of any size.
const STAGING_BYTES: usize = 128 * 1024;

/// Segments from this size are received into their place; smaller ones come with others in one call.
const DIRECT_FROM_BYTES: usize = 8 * 1024;

/// What is received beyond the payload of a large segment: the next one's length and the shorter of the headers,
/// which it has in any case.
const NEXT_BYTES: usize = LENGTH_BYTES + TAGGED_BYTES;

/// The receiving half of a queue pair.
#[derive(Debug)]
pub(super) struct Receive {
    has_checksum: bool,
    staging: Box<[u8]>,
    /// What of `staging` was received and not used.
    start: usize,
    end: usize,
    /// A segment whose payload is being received into its place.
    direct: Option<Direct>,
    /// Whether the last tagged segment was a large one.
    expects_large: bool,
    /// For each queue the number of the next message.
    next_message: [u32; 3],
}

/// The rest of a tagged segment.
#[derive(Debug)]
struct Direct {
    memory: Arc<Memory>,
    span: Span,
    /// Padding and checksum, which follow it.
    trailer_bytes: usize,
    /// What to tell when it is there.
    event: Option<Incoming>,
}

/// What the peer did.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Incoming {
    /// It sent a message.
    Message(Message),
    /// It wants to read memory of ours.
    Read(ReadRequest),
    /// A part of the answer to the READ that was asked first.
    Answer { bytes: usize, last: bool },
    /// It ends the connection, and says why.
    Terminate { layer: u8, code: u8 },
}

/// Why the connection cannot go on.
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
    #[error("the other end sent a message of {0} bytes; {MAX_MESSAGE_BYTES} are the limit")]
    TooLong(usize),
    #[error("the other end sent a message with a wrong checksum")]
    Checksum,
    #[error("the other end sent an answer to a READ that is not the one asked for")]
    Answer,
    #[error("the other end sent more than the {0} READs at a time that were agreed")]
    TooManyReads(usize),
    #[error("the other end ended the connection: layer {layer}, code {code} (RFC 5040 4.8)")]
    Terminated { layer: u8, code: u8 },
}

impl ReceiveError {
    /// What becomes of the queue pair.
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

/// Where answers to READs may be put.
pub(super) trait Sinks {
    /// The memory for the next part of the answer that is due, if this is it.
    fn sink(&self, to: Remote, length: usize) -> Option<(Arc<Memory>, Span)>;
}

/// What becomes of the bytes that were received.
enum Step {
    Event(Incoming),
    /// A segment was used up, or its payload is to be received.
    Again,
    /// So many bytes have to be there to go on.
    Wanted(usize),
}

impl Receive {
    pub(super) fn new(has_checksum: bool) -> Self {
        Self {
            has_checksum,
            staging: vec![0; STAGING_BYTES].into_boxed_slice(),
            start: 0,
            end: 0,
            direct: None,
            expects_large: false,
            next_message: [1; 3],
        }
    }

    /// What the peer did next, or `None` when the socket has no more for now.
    ///
    /// # Errors
    ///
    /// The connection is lost, or has to be given up.
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

    /// Uses the segment at the start of the staging buffer.
    fn segment(&mut self, regions: &Regions, sinks: &dyn Sinks) -> Result<Step, ReceiveError> {
        let staged = &self.staging[self.start..self.end];
        let [high, low, segment @ ..] = staged else {
            return Ok(Step::Wanted(NEXT_BYTES));
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
                let (memory, span) = match kind {
                    Tagged::Write => {
                        let (memory, span) = regions.find(to, payload, Access::RemoteWrite)?;
                        (Arc::clone(memory), span)
                    }
                    Tagged::ReadResponse => sinks.sink(to, payload).ok_or(ReceiveError::Answer)?,
                };
                let event = (kind == Tagged::ReadResponse).then_some(Incoming::Answer {
                    bytes: payload,
                    last,
                });
                self.expects_large = is_direct;
                self.place(header_bytes, memory, span, trailer_bytes(length), event)
            }
            Header::Untagged {
                queue,
                last,
                message,
                offset,
            } => {
                if !is_whole {
                    return match payload {
                        0..=MAX_MESSAGE_BYTES => Ok(Step::Wanted(whole)),
                        _ => Err(ReceiveError::TooLong(payload)),
                    };
                }
                self.verify(length)?;
                self.count(queue, message)?;
                let start = self.start + LENGTH_BYTES + header_bytes;
                let content = start..start + payload;
                self.start += whole;
                // All messages of ours are short: one segment each.
                if !last || offset != 0 {
                    return Err(ReceiveError::TooLong(payload.max(offset as usize)));
                }
                Ok(Step::Event(message_event(queue, &self.staging[content])?))
            }
        }
    }

    /// Copies what is there of a tagged segment's payload to its place, and leaves the rest to be
    /// received.
    fn place(
        &mut self,
        header_bytes: usize,
        memory: Arc<Memory>,
        span: Span,
        trailer_bytes: usize,
        event: Option<Incoming>,
    ) -> Result<Step, ReceiveError> {
        self.start += LENGTH_BYTES + header_bytes;
        let there = span.first(self.end - self.start);
        memory.copy_in(
            there.offset,
            &self.staging[self.start..self.start + there.length],
        );
        self.start += there.length;
        self.direct = Some(Direct {
            memory,
            span: span.skip(there.length),
            trailer_bytes,
            event,
        });
        Ok(Step::Again)
    }

    /// Receives the rest of a tagged segment, and its trailer.
    fn receive_direct(
        &mut self,
        mut direct: Direct,
        socket: BorrowedFd<'_>,
    ) -> Result<Step, ReceiveError> {
        while direct.span.length > 0 {
            // All that was staged has been placed.
            (self.start, self.end) = (0, 0);
            let rest = &mut self.staging[..direct.trailer_bytes + NEXT_BYTES];
            match direct.memory.receive_from(socket, direct.span, rest) {
                Ok(0) => return Err(ReceiveError::Cut),
                Ok(count) => {
                    let placed = count.min(direct.span.length);
                    direct.span = direct.span.skip(placed);
                    self.end = count - placed;
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => {
                    self.direct = Some(direct);
                    return match error.kind() {
                        // Nothing is wanted but another try.
                        io::ErrorKind::WouldBlock => Ok(Step::Wanted(0)),
                        _ => Err(error.into()),
                    };
                }
            }
        }
        if self.end - self.start < direct.trailer_bytes {
            let wanted = direct.trailer_bytes;
            self.direct = Some(direct);
            return Ok(Step::Wanted(wanted));
        }
        self.start += direct.trailer_bytes;
        Ok(direct.event.map_or(Step::Again, Step::Event))
    }

    /// Compares the checksum of the whole segment at the start of the staging buffer.
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

    /// RFC 5041 5.2: the messages of a queue come in order.
    fn count(&mut self, queue: Queue, seen: u32) -> Result<(), ReceiveError> {
        let wanted = &mut self.next_message[queue as usize];
        if seen != *wanted {
            return Err(ReceiveError::Order {
                seen,
                wanted: *wanted,
            });
        }
        *wanted = wanted.wrapping_add(1);
        Ok(())
    }

    /// Receives more, until `wanted` bytes are staged or as much as there is; `false` if there is nothing.
    fn fill(&mut self, wanted: usize, socket: BorrowedFd<'_>) -> Result<bool, ReceiveError> {
        if wanted == 0 {
            return Ok(false);
        }
        self.staging.copy_within(self.start..self.end, 0);
        (self.start, self.end) = (0, self.end - self.start);
        // Between large segments little is staged, so that little has to be copied.
        let limit = if self.expects_large {
            wanted
        } else {
            self.staging.len()
        };
        let room = &mut self.staging[self.end..limit];
        match rustix::net::recv(socket, room, RecvFlags::empty()) {
            Ok((_, 0)) if self.end == 0 && self.direct.is_none() => Err(ReceiveError::Ended),
            Ok((_, 0)) => Err(ReceiveError::Cut),
            Ok((_, count)) => {
                self.end += count;
                Ok(true)
            }
            Err(Errno::INTR) => Ok(true),
            Err(Errno::AGAIN) => Ok(false),
            Err(errno) => Err(io::Error::from(errno).into()),
        }
    }
}

fn message_event(queue: Queue, content: &[u8]) -> Result<Incoming, ReceiveError> {
    Ok(match queue {
        Queue::Send => {
            let message = Message::new(content).ok_or(ReceiveError::TooLong(content.len()))?;
            Incoming::Message(message)
        }
        Queue::ReadRequest => Incoming::Read(ReadRequest::decode(content)?),
        // RFC 5040 4.8: four bits of layer, four of type, eight of code.
        Queue::Terminate => Incoming::Terminate {
            layer: content.first().map_or(0, |layers| layers >> 4),
            code: content.get(1).copied().unwrap_or(0),
        },
    })
}
