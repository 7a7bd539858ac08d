//! Transports, which make channels, and transforms, which wrap them.

use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use crate::{AcceptError, Channel, ChannelError, ConnectError, ListenError, Operation};

/// The bottom driver of a stack, with its options applied. It makes channels.
pub trait Transport: Send + Sync + fmt::Debug {
    /// Opens a listener on `local`. The driver and its options choose the port, and may choose another address (`port=`,
    /// `bind=`).
    ///
    /// # Errors
    ///
    /// When the address is not local or no port is free.
    fn listen(
        &self,
        local: IpAddr,
        options: &SocketOptions,
    ) -> Result<Box<dyn Listener>, ListenError>;

    /// Connects to `peer`.
    ///
    /// # Errors
    ///
    /// When the peer refuses or does not answer before the operation's deadline.
    fn connect(
        &self,
        peer: SocketAddr,
        options: &SocketOptions,
        operation: &Operation<'_>,
    ) -> Result<Box<dyn Channel>, ConnectError>;

    /// The same transport for channels of `party`. `None` if the transport has no process-wide bounded resources.
    fn serving(&self, _party: Party) -> Option<Arc<dyn Transport>> {
        None
    }

    /// Whether its channels also need files opened with `O_DIRECT` ([`crate::FileRange::direct`]).
    fn wants_direct(&self) -> bool {
        false
    }

    /// Whether its channels use the page cache only for files that cannot be moved past it. Then it is useless to read ahead into it.
    fn bypasses_cache(&self) -> bool {
        false
    }
}

/// The user of a stack's channels. Process-wide bounded resources are shared fairly among parties.
///
/// Drivers do not interpret the number. Stacks without a party may use all free resources.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Party(pub u64);

/// Accepts channels that peers open.
pub trait Listener: Send + fmt::Debug {
    /// The advertised address, which peers connect to.
    fn address(&self) -> SocketAddr;

    /// Waits for the next connection.
    ///
    /// # Errors
    ///
    /// [`AcceptError::Connection`] when one connection failed; the listener can still be used. Other errors end the operation.
    fn accept(&mut self, operation: &Operation<'_>) -> Result<Box<dyn Channel>, AcceptError>;
}

/// A driver above the transport. It wraps a channel in another one.
pub trait Transform: Send + Sync + fmt::Debug {
    /// Wraps a channel that was just established.
    ///
    /// # Errors
    ///
    /// When the peer does not speak the transform's protocol, or does not authenticate.
    fn wrap(
        &self,
        channel: Box<dyn Channel>,
        side: Side,
        operation: &Operation<'_>,
    ) -> Result<Box<dyn Channel>, ChannelError>;
}

/// Which end of a connection this is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Side {
    /// This end connected.
    Connector,
    /// This end accepted.
    Acceptor,
}

/// The session's requests for sockets. Options in a stack string take precedence.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct SocketOptions {
    /// From `SBUF`, `SITE STORBUFSIZE`.
    pub receive_buffer: BufferSize,
    /// From `SBUF`, `SITE RETRBUFSIZE`.
    pub send_buffer: BufferSize,
    /// Which way the bytes of the connections will flow.
    pub flow: Flow,
    /// How many connections carry the same data to the same peer together; 0 if that is not known. Only a hint, as `flow`.
    pub channels: usize,
    /// The number of the network interface of a link-local address that a listener has (`sin6_scope_id`, RFC 3493 3.3); 0 if it is not known.
    pub interface: u32,
}

impl SocketOptions {
    /// The same, for a listener at this address of the machine.
    #[must_use]
    pub fn at(self, local: SocketAddr) -> Self {
        let interface = match local {
            SocketAddr::V4(_) => 0,
            SocketAddr::V6(local) => local.scope_id(),
        };
        Self { interface, ..self }
    }
}

/// Which way the bytes of a channel flow, apart from handshakes of transforms. Only a hint: a channel carries bytes both ways
/// in any case, but may have little memory for the other way.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Flow {
    /// Not known, or both ways.
    #[default]
    Both,
    /// This end sends.
    Out,
    /// This end receives.
    In,
}

/// The size of a kernel socket buffer.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum BufferSize {
    /// The kernel tunes it.
    #[default]
    Automatic,
    /// This size in bytes, limited by the kernel.
    Bytes(u32),
}
