//! The receiving half of a queue pair: splits bytes into segments and places their payload.
//!
//! After key, bounds and rights were checked, the payload of a tagged segment is received straight
//! into the memory that it names, together with those that probably follow ([`Predictor`]). With
//! checksums it goes through the staging buffer: no byte may be placed before it was verified (RFC
//! 5044 4.4).

mod direct;
mod error;
mod incoming;
mod staging;

use std::io;
use std::os::fd::BorrowedFd;
use std::sync::Arc;

use self::direct::{BEYOND_BYTES, Direct, Progress};
pub(crate) use self::error::ReceiveError;
pub(crate) use self::incoming::{Incoming, Sink, Sinks};
use self::staging::{Filled, Staging};
use crate::mpa::fpdu::{CHECKSUM_BYTES, Checksum, LENGTH_BYTES, Trailer, padding, trailer_bytes};
use crate::prediction::{Begun, HEAD_BYTES, Predictor};
use crate::regions::{AccessError, Regions};
use crate::request::{Access, Remote};
use crate::segment::{Header, Queue, ReadRequest, SegmentError, TAGGED_BYTES, Tagged};

/// The longest control message: a TERMINATE with the headers of an offending READ (RFC 5040 4.8) has
/// 52 bytes.
const MAX_CONTROL_BYTES: usize = 64;

/// Payloads of at least this size are received straight into their place; smaller ones share a
/// call.
const DIRECT_FROM_BYTES: usize = 8 * 1024;

/// The receiving half of a queue pair.
#[derive(Debug)]
pub(crate) struct Receive {
    has_checksum: bool,
    predictor: Predictor,
    staging: Staging,
    /// A segment whose payload is being received into its place.
    direct: Option<Direct>,
    /// Whether the last tagged segment was a large one.
    expects_large: bool,
    /// The number of the next message of each queue.
    next_message: [u32; 3],
    /// The longest SEND of the peer.
    message_bytes: usize,
    /// For each queue, the first segments of an incomplete message: adapters cut messages at packet
    /// boundaries.
    begun: [Vec<u8>; 3],
}

/// The next step after parsing the staged bytes.
enum Step {
    Event(Incoming),
    /// A segment was used up, or its payload must be received.
    Again,
    /// This many bytes are needed to continue.
    Wanted(usize),
}

impl Receive {
    pub(crate) fn new(has_checksum: bool, message_bytes: usize) -> Self {
        Self {
            has_checksum,
            predictor: Predictor::default(),
            staging: Staging::new(),
            direct: None,
            expects_large: false,
            next_message: [1; 3],
            message_bytes,
            begun: Default::default(),
        }
    }

    /// The socket may have data again, and this many calls may read from it. All data that they
    /// stage is used before the next poll, because no event would follow for it.
    pub(crate) fn begin(&mut self, calls: usize) {
        self.staging.begin(calls);
    }

    /// The peer's next action, or `None` when the socket is empty for now or was checked often
    /// enough.
    ///
    /// # Errors
    ///
    /// The connection is lost or must be given up.
    pub(crate) fn next(
        &mut self,
        socket: BorrowedFd<'_>,
        regions: &Regions,
        sinks: &dyn Sinks,
    ) -> Result<Option<Incoming>, ReceiveError> {
        loop {
            let step = match self.direct.take() {
                Some(direct) => self.payload(direct, socket)?,
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
        let staged = self.staging.staged();
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
                    Tagged::Write => write_sink(regions, to, payload)?,
                    Tagged::ReadResponse => {
                        sinks.sink(to, payload).ok_or(ReceiveError::Response)?
                    }
                };
                self.expects_large = is_direct;
                self.predictor.note(payload, last);
                self.staging.consume(LENGTH_BYTES + header_bytes);
                let begun = Begun {
                    kind,
                    last,
                    key,
                    address: address.wrapping_add(payload as u64),
                    end: sink.span.offset + payload,
                    spare: sink.spare,
                };
                let trailer_bytes = trailer_bytes(length);
                let direct = Direct::begin(begun, sink, trailer_bytes, &mut self.staging);
                self.direct = Some(direct);
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
                let start = LENGTH_BYTES + header_bytes;
                let begun = &mut self.begun[queue as usize];
                begun.extend_from_slice(&self.staging.staged()[start..start + payload]);
                self.staging.consume(whole);
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
        let staged = self.staging.staged();
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

    /// Continues with the payload of a tagged segment.
    fn payload(
        &mut self,
        mut direct: Direct,
        socket: BorrowedFd<'_>,
    ) -> Result<Step, ReceiveError> {
        match direct.receive(socket, &mut self.staging, &mut self.predictor)? {
            Progress::Complete(event) => Ok(Step::Event(event)),
            Progress::Ended => Err(ReceiveError::Cut),
            Progress::Trailer(wanted) => {
                self.direct = Some(direct);
                Ok(Step::Wanted(wanted))
            }
            Progress::Waiting => {
                self.direct = Some(direct);
                Ok(Step::Wanted(0))
            }
        }
    }

    /// Reads from the socket once, if fewer than `wanted` bytes are staged; `false` if it is empty or was
    /// read often enough.
    fn fill(&mut self, wanted: usize, socket: BorrowedFd<'_>) -> Result<bool, ReceiveError> {
        if wanted == 0 {
            return Ok(false);
        }
        // Between large segments little is staged, so that little must be copied.
        let limit = if self.expects_large {
            wanted.max(BEYOND_BYTES)
        } else {
            usize::MAX
        };
        match self.staging.fill(limit, socket).map_err(io::Error::from)? {
            Filled::Some => Ok(true),
            Filled::Empty => Ok(false),
            Filled::Ended if self.staging.staged().is_empty() && self.direct.is_none() => {
                Err(ReceiveError::Ended)
            }
            Filled::Ended => Err(ReceiveError::Cut),
        }
    }
}

/// The place of a WRITE, if it is allowed.
fn write_sink(regions: &Regions, to: Remote, payload: usize) -> Result<Sink, AccessError> {
    let (region, span) = regions.find(to, payload, Access::RemoteWrite)?;
    Ok(Sink {
        memory: Arc::clone(&region.memory),
        span,
        spare: regions.spare_behind(region, span.offset + payload),
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
