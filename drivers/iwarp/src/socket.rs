//! Moves parts of registered memory over a socket.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};

use crate::buffer::{Buffer, Span};

/// Data to send next.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Piece<'a> {
    /// A slice.
    Bytes(&'a [u8]),
    /// A part of registered memory.
    Buffer(&'a dyn Buffer, Span),
}

/// The destination of received data.
#[derive(Debug)]
pub(crate) enum Place<'a> {
    /// A slice.
    Bytes(&'a mut [u8]),
    /// A part of registered memory.
    Buffer(&'a dyn Buffer, Span),
}

impl Place<'_> {
    pub(crate) fn bytes(&self) -> usize {
        match self {
            Self::Bytes(bytes) => bytes.len(),
            Self::Buffer(_, span) => span.length,
        }
    }
}

/// Pieces moved with one call; the kernel's limit is 1024 (UIO_MAXIOV).
pub(crate) const MAX_PIECES: usize = 48;

/// Sends the first [`MAX_PIECES`] of `pieces` as far as the socket has room; returns the count of
/// bytes.
///
/// # Errors
///
/// Those of sendmsg(2), `EAGAIN` among them.
pub(crate) fn send(socket: BorrowedFd<'_>, pieces: &[Piece<'_>]) -> io::Result<usize> {
    let mut vectors = [EMPTY; MAX_PIECES];
    let count = pieces.len().min(MAX_PIECES);
    for (vector, piece) in vectors.iter_mut().zip(pieces) {
        *vector = match *piece {
            Piece::Bytes(bytes) => libc::iovec {
                iov_base: bytes.as_ptr().cast_mut().cast(),
                iov_len: bytes.len(),
            },
            Piece::Buffer(buffer, span) => libc::iovec {
                iov_base: buffer.pointer_to_read(span).cast_mut().cast(),
                iov_len: span.length,
            },
        };
    }
    let message = message(&mut vectors[..count]);
    // SAFETY: each of the first `count` vectors is a slice or a checked span that outlives the
    // call; the kernel only reads from them and keeps none.
    let sent = unsafe { libc::sendmsg(socket.as_raw_fd(), &raw const message, libc::MSG_NOSIGNAL) };
    usize::try_from(sent).map_err(|_| io::Error::last_os_error())
}

/// Receives into the first [`MAX_PIECES`] of `places` as far as the socket has bytes; returns the
/// count.
///
/// # Errors
///
/// Those of recvmsg(2), `EAGAIN` among them.
pub(crate) fn receive(socket: BorrowedFd<'_>, places: &mut [Place<'_>]) -> io::Result<usize> {
    let mut vectors = [EMPTY; MAX_PIECES];
    let count = places.len().min(MAX_PIECES);
    for (vector, place) in vectors.iter_mut().zip(places) {
        *vector = match place {
            Place::Bytes(bytes) => libc::iovec {
                iov_base: bytes.as_mut_ptr().cast(),
                iov_len: bytes.len(),
            },
            Place::Buffer(buffer, span) => libc::iovec {
                iov_base: buffer.pointer(*span).cast(),
                iov_len: span.length,
            },
        };
    }
    let mut message = message(&mut vectors[..count]);
    // SAFETY: each of the first `count` vectors is a slice that is borrowed for writing or a
    // checked span, and outlives the call; the kernel keeps none.
    let received = unsafe { libc::recvmsg(socket.as_raw_fd(), &raw mut message, 0) };
    usize::try_from(received).map_err(|_| io::Error::last_os_error())
}

const EMPTY: libc::iovec = libc::iovec {
    iov_base: std::ptr::null_mut(),
    iov_len: 0,
};

fn message(vectors: &mut [libc::iovec]) -> libc::msghdr {
    // SAFETY: all fields are integers or pointers, for which zero is a value.
    let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
    message.msg_iov = vectors.as_mut_ptr();
    message.msg_iovlen = vectors.len();
    message
}
