//! The provider `soft`: iWARP in user space (`gridhaul-iwarp`), which needs no adapter.

use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::time::Duration;

use gridhaul_iwarp as iwarp;
use gridhaul_stack::Detail;
use rustix::net::sockopt;

use crate::memory::{Memory, Span};
use crate::provider::{Access, Completion, Endpoint, Limits, PostError, Region, Request, Work};

/// One channel's queue pairs, each a TCP connection.
#[derive(Debug)]
pub(crate) struct SoftEndpoint {
    endpoint: iwarp::Endpoint,
    /// The events of one poll.
    events: Vec<iwarp::Event>,
    /// The data connection, if it is no queue pair.
    data_connection: Option<OwnedFd>,
}

impl SoftEndpoint {
    /// An endpoint without queue pairs. Both ends have the same limit in bytes for inline payloads, which
    /// does not depend on how an adapter segments them. The peer has up to `messages` in flight; each
    /// announces at most one WRITE.
    ///
    /// # Errors
    ///
    /// When the process has no descriptor left.
    pub(crate) fn new(payload_bytes: usize, messages: usize) -> io::Result<Self> {
        Ok(Self {
            endpoint: iwarp::Endpoint::new(payload_bytes, messages)?,
            events: Vec::new(),
            data_connection: None,
        })
    }

    /// Makes a connection the next queue pair.
    ///
    /// # Errors
    ///
    /// When epoll cannot watch it.
    pub(crate) fn attach(&mut self, connection: iwarp::Connection) -> io::Result<()> {
        self.endpoint.attach(connection)
    }

    /// Keeps the data connection open; an adapter at the other end learns from it whether this end
    /// finished or failed.
    pub(crate) fn keep(&mut self, data_connection: OwnedFd) {
        self.data_connection = Some(data_connection);
    }
}

impl Endpoint for SoftEndpoint {
    fn limits(&self) -> Limits {
        let limits = self.endpoint.limits();
        Limits {
            queue_pairs: limits.queue_pairs,
            rails: 1,
            depth: limits.requests,
            reads: limits.reads,
            message_bytes: limits.transfer_bytes,
            payload_bytes: limits.payload_bytes,
            immediate: false,
            over_tcp: true,
            needs_polling: true,
            replaces: false,
        }
    }

    fn details(&self) -> Vec<Detail> {
        vec![Detail::text("provider", "soft")]
    }

    fn register(&mut self, memory: &Arc<Memory>, access: Access) -> io::Result<Region> {
        let memory = Arc::<Memory>::clone(memory);
        self.endpoint.register(memory, access)
    }

    fn deregister(&mut self, region: usize) {
        self.endpoint.deregister(region);
    }

    fn spare(&mut self, region: usize, parts: [Span; 2]) {
        self.endpoint.spare(region, parts);
    }

    fn is_written(&self, region: usize, part: Span) -> bool {
        self.endpoint.is_written(region, part)
    }

    fn expect_anew(&mut self, region: usize, part: Span) {
        self.endpoint.expect_anew(region, part);
    }

    fn post(&mut self, queue_pair: usize, request: Request) -> Result<(), PostError> {
        self.endpoint
            .post(queue_pair, request.id, work(request.work))
    }

    fn poll(&mut self, completions: &mut Vec<Completion>) {
        self.endpoint.poll(&mut self.events);
        completions.extend(self.events.drain(..).map(completion));
    }

    fn descriptor(&self) -> BorrowedFd<'_> {
        self.endpoint.descriptor()
    }

    fn close(&mut self, queue_pair: usize) -> bool {
        self.endpoint.close(queue_pair)
    }

    fn end(&mut self) {
        self.endpoint.end();
    }

    fn abort(&mut self) {
        if let Some(data_connection) = self.data_connection.take() {
            // With a linger time of zero, close sends a reset (socket(7)).
            let _ = sockopt::set_socket_linger(&data_connection, Some(Duration::ZERO));
        }
        self.endpoint.abort();
    }
}

/// Immediate data is not supported; see [`Limits::immediate`].
fn work(work: Work) -> iwarp::Request {
    match work {
        Work::Write {
            region,
            span,
            to,
            immediate: _,
        } => iwarp::Request::Write { region, span, to },
        Work::Read { region, span, from } => iwarp::Request::Read { region, span, from },
        Work::Send(message) => iwarp::Request::Send {
            message,
            payload: None,
        },
        Work::Carry {
            message,
            region,
            span,
        } => iwarp::Request::Send {
            message,
            payload: Some((region, span)),
        },
    }
}

fn completion(event: iwarp::Event) -> Completion {
    match event {
        iwarp::Event::Done { queue_pair, id } => Completion::Done { queue_pair, id },
        iwarp::Event::Received {
            queue_pair,
            message,
        } => Completion::Received {
            queue_pair,
            message,
        },
        iwarp::Event::Lost { queue_pair, loss } => Completion::Lost { queue_pair, loss },
    }
}

#[cfg(test)]
mod siw;
