//! A stack that is ready for use: a transport and the transforms on it.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use crate::{
    AcceptError, Channel, ChannelError, ConnectError, ListenError, Listener, Operation, Party,
    Side, SocketOptions, Transform, Transport,
};

/// A transport and the transforms above it, from the bottom up. A clone is the same stack.
#[derive(Debug, Clone)]
pub struct Stack {
    transport: Arc<dyn Transport>,
    transforms: Arc<[Arc<dyn Transform>]>,
}

impl Stack {
    /// Puts a stack together. Stacks that users write come from [`crate::Registry::build`].
    pub fn new(transport: Arc<dyn Transport>, transforms: Vec<Arc<dyn Transform>>) -> Self {
        Self {
            transport,
            transforms: transforms.into(),
        }
    }

    /// The same stack for channels of `party`.
    #[must_use]
    pub fn serving(self, party: Party) -> Self {
        match self.transport.serving(party) {
            Some(transport) => Self { transport, ..self },
            None => self,
        }
    }

    /// Whether files should be opened with `O_DIRECT` as well.
    pub fn wants_direct(&self) -> bool {
        // A transform that changes bytes leaves the second descriptor alone. Whether it does, or hands
        // the transport's channel back, is not known before its handshake.
        self.transport.wants_direct()
    }

    /// Opens a listener at `local`; the driver's options decide on the port, and may decide on
    /// another address.
    ///
    /// # Errors
    ///
    /// When the address is not ours, no port is free, or the transport cannot listen.
    pub fn listen(
        &self,
        local: IpAddr,
        sockets: &SocketOptions,
    ) -> Result<StackListener, ListenError> {
        Ok(StackListener {
            listener: self.transport.listen(local, sockets)?,
            wants_direct: self.wants_direct(),
            transforms: Arc::clone(&self.transforms),
        })
    }

    /// Connects to `peer`, and lets every transform do its handshake as [`Side::Connector`].
    ///
    /// # Errors
    ///
    /// When the peer refuses, is silent until the deadline, or fails a handshake.
    pub fn connect(
        &self,
        peer: SocketAddr,
        sockets: &SocketOptions,
        operation: &Operation<'_>,
    ) -> Result<Box<dyn Channel>, ConnectError> {
        Ok(self.dial(peer, sockets, operation)?.establish(operation)?)
    }

    /// Connects to `peer`. No transform has spoken on the connection yet: there are peers who answer only
    /// once they were told on another channel that they are being connected to.
    ///
    /// # Errors
    ///
    /// When the peer refuses, or is silent until the deadline.
    pub fn dial(
        &self,
        peer: SocketAddr,
        sockets: &SocketOptions,
        operation: &Operation<'_>,
    ) -> Result<Outgoing, ConnectError> {
        Ok(Outgoing {
            channel: self.transport.connect(peer, sockets, operation)?,
            transforms: Arc::clone(&self.transforms),
        })
    }
}

/// A connection that was made by the transport only.
#[derive(Debug)]
pub struct Outgoing {
    channel: Box<dyn Channel>,
    transforms: Arc<[Arc<dyn Transform>]>,
}

impl Outgoing {
    /// Lets the transport and every transform do their handshakes as [`Side::Connector`].
    ///
    /// # Errors
    ///
    /// When the peer fails a handshake, goes away, or is silent until the deadline.
    pub fn establish(self, operation: &Operation<'_>) -> Result<Box<dyn Channel>, ChannelError> {
        wrap(self.channel, &self.transforms, Side::Connector, operation)
    }
}

/// A listener whose connections get the transforms of its stack.
#[derive(Debug)]
pub struct StackListener {
    listener: Box<dyn Listener>,
    wants_direct: bool,
    transforms: Arc<[Arc<dyn Transform>]>,
}

impl StackListener {
    /// Where peers are told to connect: the address that is advertised.
    pub fn address(&self) -> SocketAddr {
        self.listener.address()
    }

    /// As [`Stack::wants_direct`].
    pub fn wants_direct(&self) -> bool {
        self.wants_direct
    }

    /// Waits for the next connection. No transform has spoken on it yet, so that a slow handshake
    /// does not hold up the listener and a stranger costs nothing.
    ///
    /// # Errors
    ///
    /// [`AcceptError::Connection`] when one connection failed; the listener goes on. Anything else is
    /// final for this operation.
    pub fn accept(&mut self, operation: &Operation<'_>) -> Result<Incoming, AcceptError> {
        Ok(Incoming {
            channel: self.listener.accept(operation)?,
            transforms: Arc::clone(&self.transforms),
        })
    }
}

/// A connection that was accepted by the transport only. Dropping it turns the caller away.
#[derive(Debug)]
pub struct Incoming {
    channel: Box<dyn Channel>,
    transforms: Arc<[Arc<dyn Transform>]>,
}

impl Incoming {
    /// Who called.
    pub fn peer(&self) -> SocketAddr {
        self.channel.peer()
    }

    /// Whether [`Incoming::establish`] may have to wait for the peer.
    pub fn has_handshake(&self) -> bool {
        !self.transforms.is_empty() || self.channel.has_handshake()
    }

    /// Lets the transport and every transform do their handshakes as [`Side::Acceptor`].
    ///
    /// # Errors
    ///
    /// When the peer fails a handshake, goes away, or is silent until the deadline.
    pub fn establish(self, operation: &Operation<'_>) -> Result<Box<dyn Channel>, ChannelError> {
        wrap(self.channel, &self.transforms, Side::Acceptor, operation)
    }
}

fn wrap(
    mut channel: Box<dyn Channel>,
    transforms: &[Arc<dyn Transform>],
    side: Side,
    operation: &Operation<'_>,
) -> Result<Box<dyn Channel>, ChannelError> {
    channel.establish(operation)?;
    transforms.iter().try_fold(channel, |channel, transform| {
        transform.wrap(channel, side, operation)
    })
}
