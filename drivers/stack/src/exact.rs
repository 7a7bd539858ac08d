//! Sends and receives whole records over non-blocking sockets, as handshakes need it.

use std::os::fd::AsFd;

use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags, recv, send};

use crate::{ChannelError, Operation};

/// Why a record was not received.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    /// The connection failed, or the operation ended.
    #[error(transparent)]
    Channel(#[from] ChannelError),
    /// The connection ended before the last byte.
    #[error("the other end closed the connection before the last byte")]
    Closed,
}

/// Receives all of `bytes` from a non-blocking socket.
///
/// # Errors
///
/// When the connection ends or fails before, or the operation does.
pub fn read_exact(
    socket: impl AsFd,
    mut bytes: &mut [u8],
    operation: &Operation<'_>,
) -> Result<(), ReadError> {
    while !bytes.is_empty() {
        operation.check()?;
        match recv(&socket, &mut *bytes, RecvFlags::empty()) {
            Ok((_, 0)) => return Err(ReadError::Closed),
            Ok((_, count)) => bytes = &mut bytes[count..],
            Err(Errno::INTR) => {}
            Err(Errno::AGAIN) => operation.wait_readable(socket.as_fd())?,
            Err(errno) => return Err(ChannelError::from_socket(errno.into()).into()),
        }
    }
    Ok(())
}

/// Sends all of `bytes` over a non-blocking socket.
///
/// # Errors
///
/// When the connection or the operation fails.
pub fn write_all(
    socket: impl AsFd,
    mut bytes: &[u8],
    operation: &Operation<'_>,
) -> Result<(), ChannelError> {
    while !bytes.is_empty() {
        operation.check()?;
        match send(&socket, bytes, SendFlags::NOSIGNAL) {
            Ok(count) => bytes = &bytes[count..],
            Err(Errno::INTR) => {}
            Err(Errno::AGAIN) => operation.wait_writable(socket.as_fd())?,
            Err(errno) => return Err(ChannelError::from_socket(errno.into())),
        }
    }
    Ok(())
}
