//! Connects queue pairs of iWARP adapters through the connection manager.

use std::net::SocketAddr;

use gridhaul_stack::{ChannelError, Side};

use super::opening::{OpenError, Opening, QueuePairListener, local_error, private_data};
use crate::handshake::{self, Answer, Record};
use crate::provider::{Completion, Endpoint, Message, Request, Work};
use crate::verbs::{Connection, ConnectionError, Listener, VerbsEndpoint};

/// How many ports are tried for a connection of an adapter.
const CONNECT_TRIES: usize = 16;

impl Opening<'_> {
    /// Adapters share TCP's ports, so they listen within the configured range.
    pub(super) fn listen_by_manager(&self) -> Result<QueuePairListener, OpenError> {
        const TRIES: usize = 16;
        let local = self.local_address()?;
        let mut outcome = Err(OpenError::Unexpected);
        for _ in 0..TRIES {
            // Another process may take the port in between.
            let port = self.listen()?.port();
            outcome = Listener::open(SocketAddr::new(local, port))
                .map(|listener| QueuePairListener::ConnectionManager(listener, port))
                .map_err(connection_error);
            if outcome.is_ok() {
                break;
            }
        }
        outcome
    }

    /// Connects the queue pairs of an iWARP adapter to the other end's.
    pub(super) fn connect_iwarp(
        &self,
        endpoint: &mut VerbsEndpoint,
        answer: Answer,
    ) -> Result<(), OpenError> {
        let local = self.local_address()?;
        let peer = SocketAddr::new(self.peer.ip(), answer.port);
        for number in 0..answer.chosen.queue_pairs {
            let private = private_data(answer.token, number);
            let introduction = endpoint.introduction(number, &private);
            // librdmacm may choose a port that TCP uses; the next try takes another one.
            let mut tries = 0..CONNECT_TRIES;
            let connection = loop {
                match Connection::connect(local, peer, introduction, self.operation) {
                    Err(ConnectionError::Call { error, .. })
                        if error.kind() == std::io::ErrorKind::AddrInUse
                            && tries.next().is_some() => {}
                    outcome => break outcome,
                }
            };
            endpoint.attach(number, connection.map_err(connection_error)?);
        }
        let socket = self.socket.try_clone().map_err(local_error)?;
        endpoint.keep(socket).map_err(local_error)
    }

    /// Accepts the other end's connections to the queue pairs of an iWARP adapter. Connections of
    /// others are rejected.
    pub(super) fn accept_iwarp(
        &self,
        endpoint: &mut VerbsEndpoint,
        listener: &Listener,
        answer: Answer,
    ) -> Result<(), OpenError> {
        for number in 0..answer.chosen.queue_pairs {
            let private = private_data(answer.token, number);
            let incoming = loop {
                let incoming = listener.next(self.operation).map_err(connection_error)?;
                if incoming.private().starts_with(&private) {
                    break incoming;
                }
                incoming.reject();
            };
            let introduction = endpoint.introduction(number, &private);
            let connection = incoming.accept(introduction, self.operation);
            endpoint.attach(number, connection.map_err(connection_error)?);
        }
        let socket = self.socket.try_clone().map_err(local_error)?;
        endpoint.keep(socket).map_err(local_error)
    }

    /// RFC 5044 7.1: the connecting end must send first. Since it may have no data, it sends an empty
    /// message on each queue pair. It does so after the other end has confirmed all of them: Linux's
    /// siw ignores data that arrives between its reply and its own next step, until more arrives.
    pub(super) fn exchange_first_messages(
        &self,
        endpoint: &mut dyn Endpoint,
        side: Side,
    ) -> Result<(), OpenError> {
        let limits = endpoint.limits();
        let count = limits.queue_pairs;
        self.confirm_ready(side)?;
        if side == Side::Connector {
            let message = Message::new(&[]).expect("an empty message is short");
            let work = Work::Send(message);
            for queue_pair in 0..count {
                let posted = endpoint.post(queue_pair, Request { id: 0, work });
                posted.map_err(|error| OpenError::Local(error.to_string()))?;
            }
            endpoint.ring_doorbell();
        }
        // A device sends without being polled; the channel handles later events.
        let is_done = side == Side::Connector && !limits.needs_polling;
        let (mut seen, mut completions) = (0, Vec::new());
        while !is_done && seen < count {
            endpoint.poll(&mut completions);
            for completion in completions.drain(..) {
                match completion {
                    Completion::Done { .. } => seen += 1,
                    Completion::Received { message, .. } if message.is_empty() => seen += 1,
                    Completion::Lost { .. } => return Err(ChannelError::Aborted.into()),
                    _ => return Err(OpenError::Unexpected),
                }
            }
            if seen < count {
                endpoint.watch(true, &mut completions);
            }
            if seen < count && completions.is_empty() {
                self.operation.wait_readable(endpoint.descriptor())?;
            }
        }
        self.confirm_ready(side)
    }

    /// The accepting end confirms that its queue pairs are ready; the connecting end waits for that.
    fn confirm_ready(&self, side: Side) -> Result<(), OpenError> {
        match side {
            Side::Acceptor => {
                handshake::write(&self.socket, &Record::Ready, self.operation)?;
                Ok(())
            }
            Side::Connector => match handshake::read(&self.socket, self.operation)? {
                Record::Ready => Ok(()),
                _ => Err(OpenError::Unexpected),
            },
        }
    }
}

fn connection_error(error: ConnectionError) -> OpenError {
    match error {
        ConnectionError::Channel(error) => error.into(),
        other => OpenError::Local(other.to_string()),
    }
}
