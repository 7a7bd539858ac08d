//! A stack that is ready for use: a transport and the transforms above it.

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
    /// A stack of these drivers. For stack strings, use [`crate::Registry::build`].
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
        // A transform that changes bytes does not use the second descriptor. Only its handshake decides whether it does or
        // returns the transport's channel.
        self.transport.wants_direct()
    }

    /// As [`Transport::bypasses_cache`].
    pub fn bypasses_cache(&self) -> bool {
        self.transport.bypasses_cache()
    }

    /// Opens a listener on `local`. The driver's options choose the port, and may choose another address.
    ///
    /// # Errors
    ///
    /// When the address is not local, no port is free, or the transport cannot listen.
    pub fn listen(
        &self,
        local: IpAddr,
        sockets: &SocketOptions,
    ) -> Result<StackListener, ListenError> {
        Ok(StackListener {
            listener: self.transport.listen(local, sockets)?,
            wants_direct: self.wants_direct(),
            bypasses_cache: self.bypasses_cache(),
            transforms: Arc::clone(&self.transforms),
        })
    }

    /// Connects to `peer`, and makes the handshakes of all transforms as [`Side::Connector`].
    ///
    /// # Errors
    ///
    /// When the peer refuses, does not answer before the deadline, or fails a handshake.
    pub fn connect(
        &self,
        peer: SocketAddr,
        sockets: &SocketOptions,
        operation: &Operation<'_>,
    ) -> Result<Box<dyn Channel>, ConnectError> {
        Ok(self.dial(peer, sockets, operation)?.establish(operation)?)
    }

    /// Connects to `peer` without handshakes of transforms: some peers answer only after a message on the control channel.
    ///
    /// # Errors
    ///
    /// When the peer refuses, or does not answer before the deadline.
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

/// A connection of the transport, without handshakes.
#[derive(Debug)]
pub struct Outgoing {
    channel: Box<dyn Channel>,
    transforms: Arc<[Arc<dyn Transform>]>,
}

impl Outgoing {
    /// Makes the handshakes of the transport and of all transforms as [`Side::Connector`].
    ///
    /// # Errors
    ///
    /// When the peer fails a handshake, closes the connection, or does not answer before the deadline.
    pub fn establish(self, operation: &Operation<'_>) -> Result<Box<dyn Channel>, ChannelError> {
        wrap(self.channel, &self.transforms, Side::Connector, operation)
    }
}

/// A listener whose connections get the transforms of its stack.
#[derive(Debug)]
pub struct StackListener {
    listener: Box<dyn Listener>,
    wants_direct: bool,
    bypasses_cache: bool,
    transforms: Arc<[Arc<dyn Transform>]>,
}

impl StackListener {
    /// The advertised address, which peers connect to.
    pub fn address(&self) -> SocketAddr {
        self.listener.address()
    }

    /// As [`Stack::wants_direct`].
    pub fn wants_direct(&self) -> bool {
        self.wants_direct
    }

    /// As [`Transport::bypasses_cache`].
    pub fn bypasses_cache(&self) -> bool {
        self.bypasses_cache
    }

    /// Waits for the next connection. Makes no handshakes, so that a slow peer does not block the listener and an unknown peer
    /// costs little.
    ///
    /// # Errors
    ///
    /// [`AcceptError::Connection`] when one connection failed; the listener can still be used. Other errors end the operation.
    pub fn accept(&mut self, operation: &Operation<'_>) -> Result<Incoming, AcceptError> {
        Ok(Incoming {
            channel: self.listener.accept(operation)?,
            transforms: Arc::clone(&self.transforms),
        })
    }
}

/// An accepted connection, without handshakes. Dropping it closes the connection.
#[derive(Debug)]
pub struct Incoming {
    channel: Box<dyn Channel>,
    transforms: Arc<[Arc<dyn Transform>]>,
}

impl Incoming {
    /// The peer's address.
    pub fn peer(&self) -> SocketAddr {
        self.channel.peer()
    }

    /// Whether [`Incoming::establish`] may have to wait for the peer.
    pub fn has_handshake(&self) -> bool {
        !self.transforms.is_empty() || self.channel.has_handshake()
    }

    /// Makes the handshakes of the transport and of all transforms as [`Side::Acceptor`].
    ///
    /// # Errors
    ///
    /// When the peer fails a handshake, closes the connection, or does not answer before the deadline.
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
