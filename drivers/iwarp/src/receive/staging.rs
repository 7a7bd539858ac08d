//! Received bytes that were not used yet.

use std::os::fd::BorrowedFd;

use rustix::io::Errno;
use rustix::net::{RecvFlags, recv};

/// Two FPDUs of any size, and what else one call receives.
pub(super) const STAGING_BYTES: usize = 512 * 1024;

/// A buffer for received bytes, and the state of the socket that they come from.
#[derive(Debug)]
pub(super) struct Staging {
    bytes: Box<[u8]>,
    /// The part of `bytes` that was received and not used yet.
    start: usize,
    end: usize,
    /// How many calls may still read from the socket.
    pub(super) calls: usize,
    /// The socket had fewer bytes than requested, so another call would find none.
    is_drained: bool,
}

/// The result of reading from the socket.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Filled {
    /// Bytes were staged, or the call was interrupted.
    Some,
    /// The socket is empty for now, or was read often enough.
    Empty,
    /// The peer has closed the connection.
    Ended,
}

impl Staging {
    pub(super) fn new() -> Self {
        Self {
            bytes: vec![0; STAGING_BYTES].into_boxed_slice(),
            start: 0,
            end: 0,
            calls: 0,
            is_drained: false,
        }
    }

    /// The socket may have data again, and this many calls may read from it.
    pub(super) fn begin(&mut self, calls: usize) {
        self.calls = calls;
        self.is_drained = false;
    }

    /// The staged bytes.
    pub(super) fn staged(&self) -> &[u8] {
        &self.bytes[self.start..self.end]
    }

    /// The first `count` staged bytes were used.
    pub(super) fn consume(&mut self, count: usize) {
        self.start += count;
    }

    /// Adds bytes behind the staged ones.
    pub(super) fn add(&mut self, bytes: &[u8]) {
        self.room(bytes.len()).copy_from_slice(bytes);
    }

    /// Room for `count` bytes behind the staged ones; the caller fills it.
    pub(super) fn room(&mut self, count: usize) -> &mut [u8] {
        let start = self.end;
        self.end += count;
        &mut self.bytes[start..self.end]
    }

    /// Counts a call that receives elsewhere while no byte is staged; `false` if the socket is empty or
    /// was read often enough.
    pub(super) fn may_call(&mut self) -> bool {
        if self.calls == 0 || self.is_drained {
            return false;
        }
        self.calls -= 1;
        (self.start, self.end) = (0, 0);
        true
    }

    /// A call that receives elsewhere returned `received` of `asked` bytes.
    pub(super) fn called(&mut self, received: usize, asked: usize) {
        self.is_drained = received < asked;
    }

    /// Receives behind the staged bytes, up to `limit` staged bytes in all.
    pub(super) fn fill(&mut self, limit: usize, socket: BorrowedFd<'_>) -> Result<Filled, Errno> {
        if self.is_drained || self.calls == 0 {
            return Ok(Filled::Empty);
        }
        self.calls -= 1;
        self.bytes.copy_within(self.start..self.end, 0);
        (self.start, self.end) = (0, self.end - self.start);
        let limit = limit.min(self.bytes.len());
        match recv(socket, &mut self.bytes[self.end..limit], RecvFlags::empty()) {
            Ok((_, 0)) => Ok(Filled::Ended),
            Ok((_, count)) => {
                self.end += count;
                self.is_drained = self.end < limit;
                Ok(Filled::Some)
            }
            Err(Errno::INTR) => Ok(Filled::Some),
            Err(Errno::AGAIN) => Ok(Filled::Empty),
            Err(errno) => Err(errno),
        }
    }
}
