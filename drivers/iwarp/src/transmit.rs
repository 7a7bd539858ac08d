//! The sending half of a queue pair: requests become segments, segments become bytes.

use std::collections::VecDeque;
use std::io;
use std::os::fd::BorrowedFd;
use std::sync::Arc;

use crate::buffer::{Buffer, Span};
use crate::mpa::fpdu::{Checksum, LENGTH_BYTES, Trailer};
use crate::request::{MAX_MESSAGE_BYTES, Message, Remote};
use crate::segment::{Header, Queue, Tagged, UNTAGGED_BYTES};
use crate::socket::{self, Piece};

/// The most segments that are prepared: as many as one call sends.
const MAX_SEGMENTS: usize = socket::MAX_PIECES / 3;

/// A message or a transfer to send.
#[derive(Debug)]
pub(crate) enum Job {
    /// Our memory to memory of the peer.
    Tagged {
        kind: Tagged,
        memory: Arc<dyn Buffer>,
        span: Span,
        to: Remote,
    },
    /// A message to one of the peer's queues, followed by memory of ours.
    Untagged {
        queue: Queue,
        message: Message,
        payload: Option<(Arc<dyn Buffer>, Span)>,
    },
}

impl Job {
    /// A message without a payload.
    pub(crate) fn untagged(queue: Queue, message: Message) -> Self {
        Self::Untagged {
            queue,
            message,
            payload: None,
        }
    }
}

/// The sending half of a queue pair.
#[derive(Debug)]
pub(crate) struct Transmit {
    /// The largest payload of a tagged segment in bytes.
    segment_bytes: usize,
    has_checksum: bool,
    /// Jobs that were not cut into segments completely, each with the request that it completes.
    jobs: VecDeque<(Job, Option<u64>)>,
    /// The payload of each segment of the first job but its last, once that job has begun.
    cut: Option<usize>,
    segments: VecDeque<Segment>,
    /// Bytes of the first segment that were sent.
    sent: usize,
    /// The number of the next message of each of the peer's queues.
    next_message: [u32; 3],
}

/// An FPDU that is being sent.
#[derive(Debug)]
struct Segment {
    /// Length, header and message.
    head: [u8; MAX_HEAD_BYTES],
    head_bytes: usize,
    payload: Option<(Arc<dyn Buffer>, Span)>,
    trailer: Trailer,
    /// The request that completes when this FPDU was sent.
    completes: Option<u64>,
}

const MAX_HEAD_BYTES: usize = LENGTH_BYTES + UNTAGGED_BYTES + MAX_MESSAGE_BYTES;

impl Transmit {
    pub(crate) fn new(segment_bytes: usize, has_checksum: bool) -> Self {
        Self {
            segment_bytes,
            has_checksum,
            jobs: VecDeque::new(),
            cut: None,
            segments: VecDeque::new(),
            sent: 0,
            // RFC 5041 5.2: messages are counted from 1.
            next_message: [1; 3],
        }
    }

    /// Adds a job; [`Transmit::send`] reports `completes` when all of it was sent.
    pub(crate) fn push(&mut self, job: Job, completes: Option<u64>) {
        self.jobs.push_back((job, completes));
    }

    /// Whether everything was sent.
    pub(crate) fn is_idle(&self) -> bool {
        self.jobs.is_empty() && self.segments.is_empty()
    }

    /// Sends as much as the socket takes with one call, and appends completed requests. Returns
    /// `false` when the socket has no room or everything was sent.
    ///
    /// # Errors
    ///
    /// Those of sendmsg(2): the connection is lost.
    pub(crate) fn send(&mut self, socket: BorrowedFd<'_>, done: &mut Vec<u64>) -> io::Result<bool> {
        self.fill();
        if self.segments.is_empty() {
            return Ok(false);
        }
        let mut pieces = Vec::with_capacity(socket::MAX_PIECES);
        for segment in &self.segments {
            pieces.extend(segment.pieces());
        }
        skip(&mut pieces, self.sent);
        match socket::send(socket, &pieces) {
            Ok(count) => {
                drop(pieces);
                self.sent += count;
                self.retire(done);
                Ok(!self.is_idle())
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(false),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => Ok(true),
            Err(error) => Err(error),
        }
    }

    /// Cuts jobs into segments.
    fn fill(&mut self) {
        while self.segments.len() < MAX_SEGMENTS
            && let Some((job, completes)) = self.jobs.front_mut()
        {
            let (header, message, payload, is_last) = match job {
                Job::Tagged {
                    kind,
                    memory,
                    span,
                    to,
                } => {
                    // All of one size: a receiver predicts the following segments from the first
                    // one. A short rest would make it predict more short ones, and copy them.
                    let cut = self.cut.get_or_insert_with(|| {
                        let segments = span.length.div_ceil(self.segment_bytes).max(1);
                        span.length.div_ceil(segments)
                    });
                    let piece = span.first(*cut);
                    let header = Header::Tagged {
                        kind: *kind,
                        last: piece.length == span.length,
                        key: to.key,
                        address: to.address,
                    };
                    *span = span.skip(piece.length);
                    to.address += piece.length as u64;
                    let payload = Some((Arc::clone(memory), piece));
                    (header, None, payload, span.length == 0)
                }
                Job::Untagged {
                    queue,
                    message,
                    payload,
                } => {
                    let number = &mut self.next_message[*queue as usize];
                    let header = Header::Untagged {
                        queue: *queue,
                        last: true,
                        message: *number,
                        offset: 0,
                    };
                    *number = number.wrapping_add(1);
                    (header, Some(*message), payload.take(), true)
                }
            };
            let completes = completes.filter(|_| is_last);
            if is_last {
                self.jobs.pop_front();
                self.cut = None;
            }
            let message = message.as_ref().map_or(&[][..], Message::as_bytes);
            let segment = Segment::new(&header, message, payload, self.has_checksum, completes);
            self.segments.push_back(segment);
        }
    }

    /// Removes the segments that were sent.
    fn retire(&mut self, done: &mut Vec<u64>) {
        while let Some(first) = self.segments.front()
            && self.sent >= first.length()
        {
            self.sent -= first.length();
            done.extend(first.completes);
            self.segments.pop_front();
        }
    }
}

impl Segment {
    fn new(
        header: &Header,
        message: &[u8],
        payload: Option<(Arc<dyn Buffer>, Span)>,
        has_checksum: bool,
        completes: Option<u64>,
    ) -> Self {
        let header = header.encode();
        let header = header.as_bytes();
        let payload_bytes = payload.as_ref().map_or(0, |(_, span)| span.length);
        let length = u16::try_from(header.len() + message.len() + payload_bytes)
            .expect("a segment's payload is bounded by MAX_PAYLOAD_BYTES");
        let mut head = [0; MAX_HEAD_BYTES];
        let header_end = LENGTH_BYTES + header.len();
        let head_bytes = header_end + message.len();
        head[..LENGTH_BYTES].copy_from_slice(&length.to_be_bytes());
        head[LENGTH_BYTES..header_end].copy_from_slice(header);
        head[header_end..head_bytes].copy_from_slice(message);
        let covered = usize::from(length);
        let checksum = has_checksum.then(|| {
            let mut checksum = Checksum::new();
            checksum.update(&head[..head_bytes]);
            if let Some((memory, span)) = &payload {
                checksum.update_buffer(&**memory, *span);
            }
            checksum.finish(covered)
        });
        Self {
            head,
            head_bytes,
            payload,
            trailer: Trailer::new(covered, checksum),
            completes,
        }
    }

    fn length(&self) -> usize {
        self.head_bytes + self.payload_bytes() + self.trailer.as_bytes().len()
    }

    fn payload_bytes(&self) -> usize {
        self.payload.as_ref().map_or(0, |(_, span)| span.length)
    }

    fn pieces(&self) -> [Piece<'_>; 3] {
        let payload = match &self.payload {
            Some((memory, span)) => Piece::Buffer(&**memory, *span),
            None => Piece::Bytes(&[]),
        };
        [
            Piece::Bytes(&self.head[..self.head_bytes]),
            payload,
            Piece::Bytes(self.trailer.as_bytes()),
        ]
    }
}

/// Removes the first `count` bytes of the pieces.
fn skip(pieces: &mut Vec<Piece<'_>>, mut count: usize) {
    let mut gone = 0;
    for piece in pieces.iter_mut() {
        match piece {
            Piece::Bytes(bytes) if bytes.len() > count => {
                *bytes = &bytes[count..];
                break;
            }
            Piece::Buffer(_, span) if span.length > count => {
                *span = span.skip(count);
                break;
            }
            Piece::Bytes(bytes) => count -= bytes.len(),
            Piece::Buffer(_, span) => count -= span.length,
        }
        gone += 1;
    }
    pieces.drain(..gone);
}

#[cfg(test)]
mod tests {
    use std::num::NonZeroUsize;

    use super::*;
    use crate::buffer::HeapBuffer;
    use crate::mpa::fpdu::MAX_PAYLOAD_BYTES;

    #[test]
    fn a_message_is_cut_into_equal_segments() {
        let bytes = 512 * 1024;
        let memory = Arc::new(HeapBuffer::new(NonZeroUsize::new(bytes).unwrap()));
        let mut transmit = Transmit::new(MAX_PAYLOAD_BYTES, false);
        for length in [bytes, 384 * 1024] {
            let job = Job::Tagged {
                kind: Tagged::Write,
                memory: memory.clone(),
                span: Span::new(0, length),
                to: Remote { address: 0, key: 0 },
            };
            transmit.push(job, None);
        }
        transmit.fill();
        let payloads = transmit.segments.iter();
        let payloads: Vec<_> = payloads.map(Segment::payload_bytes).collect();
        let (first, second) = payloads.split_at(9);
        assert_eq!(first, [&[58_255; 8][..], &[58_248]].concat());
        assert_eq!(second, [&[56_174; 6][..], &[56_172]].concat());
    }
}
