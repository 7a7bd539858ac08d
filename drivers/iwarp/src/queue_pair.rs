//! A TCP connection as a queue pair.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::time::Duration;

use rustix::io::Errno;
use rustix::net::{RecvFlags, Shutdown, recv, sockopt};

use crate::event::Event;
use crate::handshake::Terms;
use crate::limits::Limits;
use crate::placed::Placed;
use crate::reads::Reads;
use crate::receive::{Incoming, Receive, ReceiveError};
use crate::regions::{AccessError, Regions};
use crate::request::{Access, Message, PostError, Remote, Request};
use crate::segment::{Queue, ReadRequest, Tagged};
use crate::transmit::{Job, Transmit};

/// A connection after its MPA handshake.
#[derive(Debug)]
pub(crate) struct QueuePair {
    /// `None` when it is lost.
    socket: Option<OwnedFd>,
    /// This end has ended: it does not send, and discards arriving data.
    has_ended: bool,
    transmit: Transmit,
    receive: Receive,
    reads: Reads,
    /// Requests whose completion was not reported.
    pending: usize,
    /// Responses to the peer's READs that were not sent completely.
    responses: usize,
    /// A request was posted since the last poll.
    has_posts: bool,
}

/// The identifier of READ responses among requests of the sending half.
const RESPONSE: u64 = u64::MAX;

/// How many calls receive or send before the other direction does.
const BATCH: usize = 64;

impl QueuePair {
    /// Messages of the peer have at most `message_bytes`.
    pub(crate) fn new(socket: OwnedFd, terms: Terms, message_bytes: usize) -> Self {
        Self {
            socket: Some(socket),
            has_ended: false,
            transmit: Transmit::new(terms.segment_bytes, terms.has_checksum),
            receive: Receive::new(terms.has_checksum, message_bytes),
            reads: Reads::default(),
            pending: 0,
            responses: 0,
            has_posts: false,
        }
    }

    /// The socket, unless the connection is lost.
    pub(crate) fn socket(&self) -> Option<BorrowedFd<'_>> {
        self.socket.as_ref().map(AsFd::as_fd)
    }

    /// Whether something is to be sent.
    pub(crate) fn wants_to_send(&self) -> bool {
        self.socket.is_some() && !self.transmit.is_idle()
    }

    pub(crate) fn post(
        &mut self,
        id: u64,
        request: Request,
        regions: &Regions,
        limits: &Limits,
    ) -> Result<(), PostError> {
        if self.socket.is_none() || self.has_ended {
            return Err(PostError::Lost);
        }
        if self.pending >= limits.requests {
            return Err(PostError::Full);
        }
        match request {
            Request::Write { region, span, to } => {
                let job = Job::Tagged {
                    kind: Tagged::Write,
                    memory: Arc::clone(regions.memory(region)),
                    span,
                    to,
                };
                self.transmit.push(job, Some(id));
            }
            Request::Read { region, span, from } => {
                if self.reads.count() >= limits.reads {
                    return Err(PostError::Full);
                }
                let message = self.reads.add(id, region, span, from, regions);
                let queue = Queue::ReadRequest;
                self.transmit.push(Job::untagged(queue, message), None);
            }
            Request::Send { message, payload } => {
                let job = Job::Untagged {
                    queue: Queue::Send,
                    message,
                    payload: payload
                        .map(|(region, span)| (Arc::clone(regions.memory(region)), span)),
                };
                self.transmit.push(job, Some(id));
            }
        }
        self.pending += 1;
        self.has_posts = true;
        Ok(())
    }

    /// Moves what can be moved without waiting.
    pub(crate) fn poll(
        &mut self,
        number: usize,
        regions: &Regions,
        placed: &mut Placed,
        limits: &Limits,
        events: &mut Vec<Event>,
    ) {
        let outcome = if self.has_ended {
            self.discard_some()
        } else if std::mem::take(&mut self.has_posts) {
            // A caller that posts has just received everything that had arrived.
            self.send_some(number, events)
        } else {
            self.receive_some(number, regions, placed, limits, events)
                .and_then(|()| self.send_some(number, events))
        };
        if let Err(error) = outcome {
            self.lose(number, &error, events);
        }
    }

    fn receive_some(
        &mut self,
        number: usize,
        regions: &Regions,
        placed: &mut Placed,
        limits: &Limits,
        events: &mut Vec<Event>,
    ) -> Result<(), ReceiveError> {
        self.receive.begin(BATCH);
        while let Some(socket) = &self.socket
            && let Some(incoming) = self.receive.next(socket.as_fd(), regions, &self.reads)?
        {
            match incoming {
                Incoming::Message(message) => events.push(Event::Received {
                    queue_pair: number,
                    message,
                }),
                Incoming::Written(part) => placed.add(part)?,
                Incoming::Read(request) => self.respond(request, regions, limits)?,
                Incoming::Response { bytes, last } => {
                    if let Some(id) = self.reads.responded(bytes, last)? {
                        self.done(number, id, events);
                    }
                }
                Incoming::Terminate { layer, code } => {
                    return Err(ReceiveError::Terminated { layer, code });
                }
            }
        }
        Ok(())
    }

    fn send_some(&mut self, number: usize, events: &mut Vec<Event>) -> Result<(), ReceiveError> {
        let mut done = Vec::new();
        for _ in 0..BATCH {
            let Some(socket) = &self.socket else {
                break;
            };
            if !self.transmit.send(socket.as_fd(), &mut done)? {
                break;
            }
        }
        for id in done {
            match id {
                RESPONSE => self.responses -= 1,
                id => self.done(number, id, events),
            }
        }
        Ok(())
    }

    fn discard_some(&self) -> Result<(), ReceiveError> {
        let mut discarded = [0; 16 * 1024];
        for _ in 0..BATCH {
            let Some(socket) = &self.socket else {
                break;
            };
            match recv(socket, &mut discarded, RecvFlags::empty()) {
                Ok((_, 0)) => return Err(ReceiveError::Ended),
                Ok(_) | Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => break,
                Err(errno) => return Err(io::Error::from(errno).into()),
            }
        }
        Ok(())
    }

    fn done(&mut self, number: usize, id: u64, events: &mut Vec<Event>) {
        self.pending -= 1;
        events.push(Event::Done {
            queue_pair: number,
            id,
        });
    }

    /// Sends the response to a READ of the peer, if it is allowed.
    fn respond(
        &mut self,
        request: ReadRequest,
        regions: &Regions,
        limits: &Limits,
    ) -> Result<(), ReceiveError> {
        // RFC 6581 4.1: no more than the negotiated number.
        if self.responses >= limits.reads {
            return Err(ReceiveError::TooManyReads(limits.reads));
        }
        let source = Remote {
            address: request.source_address,
            key: request.source_key,
        };
        let length = usize::try_from(request.length).map_err(|_| AccessError::Key(source.key))?;
        let (region, span) = regions.find(source, length, Access::RemoteRead)?;
        let job = Job::Tagged {
            kind: Tagged::ReadResponse,
            memory: Arc::clone(&region.memory),
            span,
            to: Remote {
                address: request.sink_address,
                key: request.sink_key,
            },
        };
        self.responses += 1;
        self.transmit.push(job, Some(RESPONSE));
        Ok(())
    }

    /// Gives the connection up. A peer that is at fault gets a TERMINATE message.
    fn lose(&mut self, number: usize, error: &ReceiveError, events: &mut Vec<Event>) {
        let message = error.terminate().and_then(|field| Message::new(&field));
        if let (Some(socket), Some(message)) = (&self.socket, message) {
            let job = Job::untagged(Queue::Terminate, message);
            self.transmit.push(job, None);
            // It is sent if there is room; the connection ends in any case.
            let _ = self.transmit.send(socket.as_fd(), &mut Vec::new());
        }
        self.socket = None;
        events.push(Event::Lost {
            queue_pair: number,
            loss: error.loss(),
        });
    }

    /// Stops sending, and discards data that still arrives.
    pub(crate) fn end(&mut self) {
        self.has_ended = true;
        if let Some(socket) = &self.socket {
            // A broken connection shows its error when it is read.
            let _ = rustix::net::shutdown(socket, Shutdown::Write);
        }
    }

    /// Resets the connection; `false` if it is lost already.
    pub(crate) fn abort(&mut self) -> bool {
        let Some(socket) = self.socket.take() else {
            return false;
        };
        // With a linger time of zero, close sends a reset (socket(7)).
        let _ = sockopt::set_socket_linger(&socket, Some(Duration::ZERO));
        true
    }
}
