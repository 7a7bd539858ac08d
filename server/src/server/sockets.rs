//! Listening sockets.

use std::io;
use std::net::{SocketAddr, TcpListener};

use socket2::{Domain, Protocol, Socket, Type};

use super::start_error::StartError;

/// Opens a listener, and returns its address, whose port the kernel may have chosen.
pub(crate) fn listen_and_tell(
    address: SocketAddr,
) -> Result<(TcpListener, SocketAddr), StartError> {
    let listener = listen(address)?;
    match listener.local_addr() {
        Ok(found) => Ok((listener, found)),
        Err(error) => Err(StartError::Listen { address, error }),
    }
}

pub(crate) fn in_runtime(listener: TcpListener) -> io::Result<tokio::net::TcpListener> {
    listener.set_nonblocking(true)?;
    tokio::net::TcpListener::from_std(listener)
}

/// Opens a listener. One for IPv6 accepts no IPv4 connections, so that both can be configured for a port.
pub(super) fn listen(address: SocketAddr) -> Result<TcpListener, StartError> {
    const BACKLOG: i32 = 1024;
    let open = || {
        let socket = Socket::new(
            Domain::for_address(address),
            Type::STREAM,
            Some(Protocol::TCP),
        )?;
        socket.set_reuse_address(true)?;
        if address.is_ipv6() {
            socket.set_only_v6(true)?;
        }
        socket.bind(&address.into())?;
        socket.listen(BACKLOG)?;
        Ok(socket.into())
    };
    open().map_err(|error| StartError::Listen { address, error })
}
