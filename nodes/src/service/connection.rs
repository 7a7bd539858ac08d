//! Connections of control servers.

use std::net::SocketAddr;

use tokio::io::{AsyncRead, AsyncWrite};

/// A byte stream with a peer that was authenticated.
pub trait Connection: AsyncRead + AsyncWrite + Unpin + Send + 'static {}

impl<C: AsyncRead + AsyncWrite + Unpin + Send + 'static> Connection for C {}

/// A connection and the address of this end.
#[derive(Debug)]
pub struct Arrival<C> {
    /// The connection.
    pub connection: C,
    /// The address at which the control server has reached the node.
    pub local: SocketAddr,
}

/// The address of this end, for the calls of a connection.
#[derive(Debug, Clone, Copy)]
pub(super) struct LocalAddress(pub(super) SocketAddr);
