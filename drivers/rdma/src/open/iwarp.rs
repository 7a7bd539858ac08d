//! Connects queue pairs of iWARP in user space: each is a TCP connection.

use std::os::fd::OwnedFd;

use gridhaul_iwarp::Connection;
use gridhaul_stack::{AcceptError, ConnectError, Side};
use gridhaul_tcp::TcpListener;

use super::opening::{OpenError, Opening, QueuePairListener, local_error, private_data};
use crate::handshake::{Answer, Method, Token};
use crate::iwarp::SoftEndpoint;

impl Opening<'_> {
    /// Connects all queue pairs. If the other end is a program too, the data connection is the
    /// first of them.
    pub(super) fn connect_soft(
        &self,
        endpoint: &mut SoftEndpoint,
        answer: Answer,
    ) -> Result<(), OpenError> {
        for number in first_further(answer.method)..answer.chosen.queue_pairs {
            let connection = self.connect_further(answer, number)?;
            endpoint.attach(connection).map_err(local_error)?;
        }
        self.complete_soft(endpoint, Side::Connector, answer)
    }

    /// Accepts the other end's connections to all queue pairs.
    pub(super) fn accept_soft(
        &self,
        endpoint: &mut SoftEndpoint,
        listener: &mut QueuePairListener,
        answer: Answer,
    ) -> Result<(), OpenError> {
        if let QueuePairListener::Tcp(listener) = listener {
            for number in first_further(answer.method)..answer.chosen.queue_pairs {
                let connection = self.accept_further(listener, answer.token, number)?;
                endpoint.attach(connection).map_err(local_error)?;
            }
        }
        self.complete_soft(endpoint, Side::Acceptor, answer)
    }

    /// The data connection becomes the last queue pair, or stays open in addition to those of an adapter.
    fn complete_soft(
        &self,
        endpoint: &mut SoftEndpoint,
        side: Side,
        answer: Answer,
    ) -> Result<(), OpenError> {
        let socket = self.socket.try_clone().map_err(local_error)?;
        if answer.method == Method::Iwarp {
            endpoint.keep(socket);
            return self.exchange_first_messages(endpoint, side);
        }
        let connection = self.establish(socket, side, answer.token, 0)?;
        endpoint.attach(connection).map_err(local_error)
    }

    /// Opens the connection of a further queue pair.
    fn connect_further(&self, answer: Answer, number: u16) -> Result<Connection, OpenError> {
        // With the interface of a link-local address.
        let mut address = self.peer;
        address.set_port(answer.port);
        let further =
            gridhaul_tcp::connect(&self.settings.tcp, address, self.options, self.operation);
        let (socket, _) = further.map_err(connect_error)?.into_parts();
        self.establish(socket, Side::Connector, answer.token, number)
    }

    /// Accepts the connection of a further queue pair. Connections of others are rejected.
    fn accept_further(
        &self,
        listener: &mut TcpListener,
        token: Token,
        number: u16,
    ) -> Result<Connection, OpenError> {
        loop {
            let connection = match listener.accept_channel(self.operation) {
                Ok(connection) => connection,
                Err(AcceptError::Connection { .. }) => continue,
                Err(AcceptError::Listener(error)) => return Err(error.into()),
            };
            let (socket, peer) = connection.into_parts();
            if peer.ip() != self.peer.ip() {
                continue;
            }
            match self.establish(socket, Side::Acceptor, token, number) {
                Err(OpenError::Handshake(error)) if !error.is_final() => {}
                outcome => return outcome,
            }
        }
    }

    fn establish(
        &self,
        socket: OwnedFd,
        side: Side,
        token: Token,
        number: u16,
    ) -> Result<Connection, OpenError> {
        let private = private_data(token, number);
        let offer = gridhaul_iwarp::Offer {
            checksum: self.settings.checksum,
            revision: 2,
            segment_bytes: usize::MAX,
            private,
        };
        let accepts = |theirs: &[u8]| theirs == offer.private;
        let established =
            gridhaul_iwarp::establish(socket, side, &offer, &accepts, self.operation)?;
        Ok(established)
    }
}

/// The number of the first queue pair with a connection of its own.
fn first_further(method: Method) -> u16 {
    u16::from(method == Method::Soft)
}

fn connect_error(error: ConnectError) -> OpenError {
    match error {
        ConnectError::Channel(error) => error.into(),
        other => OpenError::Local(other.to_string()),
    }
}
