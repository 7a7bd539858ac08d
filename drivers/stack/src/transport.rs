//! Transports make channels; transforms change them.

use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use crate::{AcceptError, Channel, ChannelError, ConnectError, ListenError, Operation};

/// Makes channels: the bottom driver of a stack, with its options applied.
pub trait Transport: Send + Sync + fmt::Debug {
    /// Opens a listener at `local`; the port, and another address, are the driver's choice and that
    /// of its options (`port=`, `bind=`).
    ///
    /// # Errors
    ///
    /// When the address is not ours or no port is free.
    fn listen(
        &self,
        local: IpAddr,
        options: &SocketOptions,
    ) -> Result<Box<dyn Listener>, ListenError>;

    /// Connects to `peer`.
    ///
    /// # Errors
    ///
    /// When the peer refuses or is silent until the operation's deadline.
    fn connect(
        &self,
        peer: SocketAddr,
        options: &SocketOptions,
        operation: &Operation<'_>,
    ) -> Result<Box<dyn Channel>, ConnectError>;

    /// The same transport for channels of `party`. `None` where the channels of all parties share nothing that is
    /// bounded for the process.
    fn serving(&self, _party: Party) -> Option<Arc<dyn Transport>> {
        None
    }

    /// Whether its channels want files opened with `O_DIRECT` as well ([`crate::FileRange::direct`]).
    fn wants_direct(&self) -> bool {
        false
    }
}

/// Whom the channels of a stack serve: what is bounded for all channels of a process is shared fairly among parties.
///
/// The number means nothing to drivers. Stacks that were made for no party have all that is left.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Party(pub u64);

/// Waits for channels that the other side opens.
pub trait Listener: Send + fmt::Debug {
    /// Where peers are told to connect: the address that is advertised.
    fn address(&self) -> SocketAddr;

    /// Waits for the next connection.
    ///
    /// # Errors
    ///
    /// [`AcceptError::Connection`] when one connection failed; the listener goes on. Anything else is
    /// final for this operation.
    fn accept(&mut self, operation: &Operation<'_>) -> Result<Box<dyn Channel>, AcceptError>;
}

/// Turns one channel into another: a driver above the transport.
pub trait Transform: Send + Sync + fmt::Debug {
    /// Puts the transform on a channel that was just established.
    ///
    /// # Errors
    ///
    /// When the peer does not speak the transform, or fails its proof.
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
    /// We connected.
    Connector,
    /// We accepted.
    Acceptor,
}

/// What a session asks of the sockets below its channels; what a stack string says wins.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct SocketOptions {
    /// From `SBUF`, `SITE STORBUFSIZE`.
    pub receive_buffer: BufferSize,
    /// From `SBUF`, `SITE RETRBUFSIZE`.
    pub send_buffer: BufferSize,
}

/// The size of a kernel socket buffer.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum BufferSize {
    /// The kernel tunes it.
    #[default]
    Automatic,
    /// So many bytes, as far as the kernel allows.
    Bytes(u32),
}
