//! A TCP connection as a queue pair.

use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::time::Duration;

use rustix::io::Errno;
use rustix::net::{RecvFlags, Shutdown, recv, sockopt};

use super::placed::Placed;
use super::receive::{Incoming, Receive, ReceiveError, Sink, Sinks};
use super::regions::{AccessError, Regions};
use super::segment::{Queue, ReadRequest, Tagged};
use super::transmit::{Job, Transmit};
use crate::memory::{Memory, Span};
use crate::provider::{Access, Completion, Limits, Message, PostError, Remote, Request, Work};

/// A connection after its MPA handshake.
#[derive(Debug)]
pub(super) struct QueuePair {
    /// `None` when it is lost.
    socket: Option<OwnedFd>,
    /// Nothing more is sent, and what arrives is discarded.
    has_ended: bool,
    transmit: Transmit,
    receive: Receive,
    reads: Reads,
    /// Requests whose completion was not reported.
    pending: usize,
    /// Responses to the peer's READs that were not sent completely.
    answers: usize,
    /// Something was posted since the last poll.
    has_posts: bool,
}

/// The negotiated parameters.
#[derive(Debug, Clone, Copy)]
pub(super) struct Terms {
    pub(super) has_checksum: bool,
    /// The largest payload of a sent tagged segment in bytes.
    pub(super) segment_bytes: usize,
}

/// The identifier of READ responses among requests of the sending half.
const ANSWER: u64 = u64::MAX;

/// How many calls receive or send before the other direction gets its turn.
const TURN: usize = 64;

impl QueuePair {
    /// Messages of the peer have at most `message_bytes`.
    pub(super) fn new(socket: OwnedFd, terms: Terms, message_bytes: usize) -> Self {
        Self {
            socket: Some(socket),
            has_ended: false,
            transmit: Transmit::new(terms.segment_bytes, terms.has_checksum),
            receive: Receive::new(terms.has_checksum, message_bytes),
            reads: Reads::default(),
            pending: 0,
            answers: 0,
            has_posts: false,
        }
    }

    /// The socket, unless the connection is lost.
    pub(super) fn socket(&self) -> Option<BorrowedFd<'_>> {
        self.socket.as_ref().map(AsFd::as_fd)
    }

    /// Whether something is to be sent.
    pub(super) fn wants_to_send(&self) -> bool {
        self.socket.is_some() && !self.transmit.is_idle()
    }

    pub(super) fn post(
        &mut self,
        request: Request,
        regions: &Regions,
        limits: &Limits,
    ) -> Result<(), PostError> {
        if self.socket.is_none() || self.has_ended {
            return Err(PostError::Lost);
        }
        if self.pending >= limits.depth {
            return Err(PostError::Full);
        }
        match request.work {
            Work::Write {
                region, span, to, ..
            } => {
                let job = Job::Tagged {
                    kind: Tagged::Write,
                    memory: Arc::clone(regions.memory(region)),
                    span,
                    to,
                };
                self.transmit.push(job, Some(request.id));
            }
            Work::Read { region, span, from } => {
                if self.reads.waiting.len() >= limits.reads {
                    return Err(PostError::Full);
                }
                let message = self.reads.add(request.id, region, span, from, regions);
                let queue = Queue::ReadRequest;
                self.transmit.push(Job::untagged(queue, message), None);
            }
            Work::Send(message) => {
                let job = Job::untagged(Queue::Send, message);
                self.transmit.push(job, Some(request.id));
            }
            Work::Carry {
                message,
                region,
                span,
            } => {
                let job = Job::Untagged {
                    queue: Queue::Send,
                    message,
                    payload: Some((Arc::clone(regions.memory(region)), span)),
                };
                self.transmit.push(job, Some(request.id));
            }
        }
        self.pending += 1;
        self.has_posts = true;
        Ok(())
    }

    /// Moves what can be moved without waiting.
    pub(super) fn poll(
        &mut self,
        number: usize,
        regions: &Regions,
        placed: &mut Placed,
        limits: &Limits,
        completions: &mut Vec<Completion>,
    ) {
        let outcome = if self.has_ended {
            self.discard_some()
        } else if std::mem::take(&mut self.has_posts) {
            // A caller that posts has just received everything there was.
            self.send_some(number, completions)
        } else {
            self.receive_some(number, regions, placed, limits, completions)
                .and_then(|()| self.send_some(number, completions))
        };
        if let Err(error) = outcome {
            self.lose(number, &error, completions);
        }
    }

    fn receive_some(
        &mut self,
        number: usize,
        regions: &Regions,
        placed: &mut Placed,
        limits: &Limits,
        completions: &mut Vec<Completion>,
    ) -> Result<(), ReceiveError> {
        self.receive.begin(TURN);
        while let Some(socket) = &self.socket
            && let Some(event) = self.receive.next(socket.as_fd(), regions, &self.reads)?
        {
            match event {
                Incoming::Message(message) => completions.push(Completion::Received {
                    queue_pair: number,
                    message,
                }),
                Incoming::Written(part) => placed.add(part)?,
                Incoming::Read(request) => self.answer(request, regions, limits)?,
                Incoming::Answer { bytes, last } => {
                    if let Some(id) = self.reads.answered(bytes, last)? {
                        self.done(number, id, completions);
                    }
                }
                Incoming::Terminate { layer, code } => {
                    return Err(ReceiveError::Terminated { layer, code });
                }
            }
        }
        Ok(())
    }

    fn send_some(
        &mut self,
        number: usize,
        completions: &mut Vec<Completion>,
    ) -> Result<(), ReceiveError> {
        let mut gone = Vec::new();
        for _ in 0..TURN {
            let Some(socket) = &self.socket else {
                break;
            };
            if !self.transmit.send(socket.as_fd(), &mut gone)? {
                break;
            }
        }
        for id in gone {
            match id {
                ANSWER => self.answers -= 1,
                id => self.done(number, id, completions),
            }
        }
        Ok(())
    }

    fn discard_some(&self) -> Result<(), ReceiveError> {
        let mut nobody_reads_this = [0; 16 * 1024];
        for _ in 0..TURN {
            let Some(socket) = &self.socket else {
                break;
            };
            match recv(socket, &mut nobody_reads_this, RecvFlags::empty()) {
                Ok((_, 0)) => return Err(ReceiveError::Ended),
                Ok(_) | Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => break,
                Err(errno) => return Err(io::Error::from(errno).into()),
            }
        }
        Ok(())
    }

    fn done(&mut self, number: usize, id: u64, completions: &mut Vec<Completion>) {
        self.pending -= 1;
        completions.push(Completion::Done {
            queue_pair: number,
            id,
        });
    }

    /// Sends what the peer READs, if it is allowed.
    fn answer(
        &mut self,
        request: ReadRequest,
        regions: &Regions,
        limits: &Limits,
    ) -> Result<(), ReceiveError> {
        // RFC 6581 4.1: no more than the negotiated number.
        if self.answers >= limits.reads {
            return Err(ReceiveError::TooManyReads(limits.reads));
        }
        let source = Remote {
            address: request.source_address,
            key: request.source_key,
        };
        let length = usize::try_from(request.length).map_err(|_| AccessError::Key(source.key))?;
        let (memory, span) = regions.find(source, length, Access::RemoteRead)?;
        let job = Job::Tagged {
            kind: Tagged::ReadResponse,
            memory: Arc::clone(memory),
            span,
            to: Remote {
                address: request.sink_address,
                key: request.sink_key,
            },
        };
        self.answers += 1;
        self.transmit.push(job, Some(ANSWER));
        Ok(())
    }

    /// Gives the connection up. If the peer is at fault, it is told so.
    fn lose(&mut self, number: usize, error: &ReceiveError, completions: &mut Vec<Completion>) {
        if let (Some(socket), Some(message)) = (&self.socket, terminate(error)) {
            let job = Job::untagged(Queue::Terminate, message);
            self.transmit.push(job, None);
            // It is sent if there is room; the connection ends in any case.
            let _ = self.transmit.send(socket.as_fd(), &mut Vec::new());
        }
        self.socket = None;
        completions.push(Completion::Lost {
            queue_pair: number,
            loss: error.loss(),
        });
    }

    /// Stops sending, and discards what still arrives.
    pub(super) fn end(&mut self) {
        self.has_ended = true;
        if let Some(socket) = &self.socket {
            // A broken connection shows its error when it is read.
            let _ = rustix::net::shutdown(socket, Shutdown::Write);
        }
    }

    /// Resets the connection; `false` if it is lost already.
    pub(super) fn abort(&mut self) -> bool {
        let Some(socket) = self.socket.take() else {
            return false;
        };
        // With a linger time of zero, close sends a reset (socket(7)).
        let _ = sockopt::set_socket_linger(&socket, Some(Duration::ZERO));
        true
    }
}

/// The TERMINATE message for an error of the peer (RFC 5040 4.8): layer and type, code, and no copy
/// of the offending header.
fn terminate(error: &ReceiveError) -> Option<Message> {
    // RFC 5040 figure 10: layer 0 is RDMAP, 1 DDP, 2 MPA; type 1 is a protection error of RDMAP.
    let [layers, code] = match error {
        ReceiveError::Network(_) | ReceiveError::Ended | ReceiveError::Cut => return None,
        ReceiveError::Terminated { .. } => return None,
        ReceiveError::Access(AccessError::Key(_)) => [0x01, 0x00],
        ReceiveError::Access(AccessError::Bounds { .. }) => [0x01, 0x01],
        ReceiveError::Access(AccessError::Rights(_)) => [0x01, 0x02],
        ReceiveError::Checksum => [0x20, 0x02],
        ReceiveError::Order { .. } => [0x12, 0x02],
        ReceiveError::Offset { .. } => [0x12, 0x04],
        ReceiveError::TooLong { .. } => [0x12, 0x05],
        ReceiveError::Segment(_)
        | ReceiveError::Scattered(_)
        | ReceiveError::Answer
        | ReceiveError::TooManyReads(_) => [0x02, 0xff],
    };
    Message::new(&[layers, code, 0, 0])
}

/// Outstanding READs in order; their responses arrive in this order.
#[derive(Debug, Default)]
struct Reads {
    waiting: VecDeque<Read>,
}

#[derive(Debug)]
struct Read {
    id: u64,
    memory: Arc<Memory>,
    key: u32,
    /// The place of the next part of the response.
    rest: Span,
}

impl Reads {
    /// Records a READ; returns the request message for the peer.
    fn add(
        &mut self,
        id: u64,
        region: usize,
        span: Span,
        from: Remote,
        regions: &Regions,
    ) -> Message {
        let memory = regions.memory(region);
        let request = ReadRequest {
            sink_key: regions.key(region),
            sink_address: memory.address() + span.offset as u64,
            length: u32::try_from(span.length).expect("a READ is bounded by Limits::message_bytes"),
            source_key: from.key,
            source_address: from.address,
        };
        self.waiting.push_back(Read {
            id,
            memory: Arc::clone(memory),
            key: request.sink_key,
            rest: span,
        });
        Message::new(&request.encode()).expect("a READ request is a short message")
    }

    /// Counts a part of a response; returns the request that it completes.
    fn answered(&mut self, bytes: usize, last: bool) -> Result<Option<u64>, ReceiveError> {
        let read = self.waiting.front_mut().ok_or(ReceiveError::Answer)?;
        read.rest = read.rest.skip(bytes);
        match (last, read.rest.length) {
            (false, _) => Ok(None),
            (true, 0) => Ok(self.waiting.pop_front().map(|read| read.id)),
            (true, _) => Err(ReceiveError::Answer),
        }
    }
}

impl Sinks for Reads {
    fn sink(&self, to: Remote, length: usize) -> Option<Sink> {
        let read = self.waiting.front()?;
        let is_next = to.key == read.key
            && to.address == read.memory.address() + read.rest.offset as u64
            && length <= read.rest.length;
        is_next.then(|| Sink {
            memory: Arc::clone(&read.memory),
            span: read.rest.first(length),
            spare: read.rest.length - length,
        })
    }
}
