//! A TCP connection.
//!
//! The socket is non-blocking. A call first tries, and polls (together with the operation's cancellation) only if the kernel
//! has no space or no bytes, so that a bulk transfer costs one system call for each piece.

use std::io::IoSlice;
use std::net::SocketAddr;
use std::num::NonZeroUsize;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::Ordering;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use gridhaul_stack::{
    Body, Channel, ChannelError, ChannelInfo, FileRange, Operation, Received, Watch,
};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, RecvFlags, SendAncillaryBuffer, SendFlags, Shutdown, recv, send, sendmsg,
    shutdown, sockopt,
};

use crate::facts::{RecentFacts, Watched};
use crate::settings::stream_socket;
use crate::socket::{
    ZeroCopyCompletion, has_upper_layer_protocol, next_zerocopy_completion, unacknowledged_bytes,
};

/// A TCP connection whose bytes are copied through memory.
#[derive(Debug)]
pub struct TcpChannel {
    /// Shared only with a thread that looks at the connection, for the time of a system call.
    socket: Arc<OwnedFd>,
    peer: SocketAddr,
    /// The kernel reports an error once, and the end of the stream from then on.
    has_failed: bool,
    /// Whether the last data call sent, for [`Channel::info`].
    is_sending: bool,
    facts: RecentFacts,
    /// Made once: a connection may carry many small files.
    watched: OnceLock<Arc<dyn Watch>>,
}

impl TcpChannel {
    /// Wraps a connected non-blocking socket.
    pub(crate) fn new(socket: OwnedFd, peer: SocketAddr) -> Self {
        Self {
            socket: Arc::new(socket),
            peer,
            has_failed: false,
            is_sending: false,
            facts: RecentFacts::default(),
            watched: OnceLock::new(),
        }
    }

    /// The connected non-blocking socket and its peer, for drivers that take it over.
    pub fn into_parts(self) -> (OwnedFd, SocketAddr) {
        let mut socket = self.socket;
        loop {
            match Arc::try_unwrap(socket) {
                Ok(owned) => return (owned, self.peer),
                // Another thread looks at the connection, which takes it one system call.
                Err(shared) => socket = shared,
            }
            std::thread::yield_now();
        }
    }

    /// The connected non-blocking socket, for drivers that move bytes in another way.
    pub fn socket(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }

    /// Whether the kernel does TLS on the connection, in at least one direction.
    pub fn is_protected(&self) -> bool {
        has_upper_layer_protocol(self.socket())
    }

    /// The next calls with `MSG_ZEROCOPY` whose memory the kernel has released and that were not returned before. Needs
    /// [`crate::enable_zerocopy`].
    pub fn next_zerocopy_completion(&self) -> Option<ZeroCopyCompletion> {
        next_zerocopy_completion(self.socket())
    }

    /// Fails if the channel cannot be used. Such a driver calls it first in each call.
    ///
    /// # Errors
    ///
    /// When the channel has failed before, the operation was cancelled or its deadline passed.
    pub fn check(&self, operation: &Operation<'_>) -> Result<(), ChannelError> {
        if self.has_failed {
            return Err(ChannelError::Aborted);
        }
        operation.check()
    }

    /// Classifies an error of the socket, and remembers it: the kernel reports it once.
    pub fn fail(&mut self, errno: Errno) -> ChannelError {
        self.has_failed = true;
        match errno {
            // The connection was reset, and the reset was reported before.
            Errno::NOTCONN => ChannelError::Aborted,
            _ => ChannelError::from_socket(errno.into()),
        }
    }

    /// Sends `head`. More of the same piece follows by another call, so the kernel may hold a short segment back (`MSG_MORE`).
    ///
    /// # Errors
    ///
    /// As those of [`Channel::send`].
    pub fn send_ahead(
        &mut self,
        head: &[u8],
        operation: &Operation<'_>,
    ) -> Result<(), ChannelError> {
        self.is_sending = true;
        self.send_all(head, &[], SendFlags::MORE, operation, |_| {})
    }

    /// Sends `head` and `body`, and calls `moved` with the number of body bytes of each system call.
    fn send_all(
        &mut self,
        mut head: &[u8],
        mut body: &[u8],
        flags: SendFlags,
        operation: &Operation<'_>,
        moved: impl Fn(u64),
    ) -> Result<(), ChannelError> {
        let flags = flags | SendFlags::NOSIGNAL;
        while !(head.is_empty() && body.is_empty()) {
            self.check(operation)?;
            let outcome = if head.is_empty() {
                send(&self.socket, body, flags)
            } else {
                let both = [IoSlice::new(head), IoSlice::new(body)];
                sendmsg(
                    &self.socket,
                    &both,
                    &mut SendAncillaryBuffer::default(),
                    flags,
                )
            };
            match outcome {
                Ok(sent) => {
                    let of_head = sent.min(head.len());
                    head = &head[of_head..];
                    body = &body[sent - of_head..];
                    moved((sent - of_head) as u64);
                }
                Err(Errno::AGAIN) => operation.wait_writable(self.socket.as_fd())?,
                Err(Errno::INTR) => {}
                Err(errno) => return Err(self.fail(errno)),
            }
        }
        Ok(())
    }

    /// Sends a file by reading it piece by piece; the head is sent with the first piece.
    fn send_file(
        &mut self,
        mut head: &[u8],
        mut range: FileRange<'_>,
        operation: &Operation<'_>,
    ) -> Result<(), ChannelError> {
        let (moved, length) = (range.moved, range.length);
        let mut done = 0;
        while done < length {
            let piece = range.read_piece(done)?;
            done += piece.len() as u64;
            // Pieces are not multiples of the segment size; MSG_MORE avoids short segments between them.
            let flags = if done < length {
                SendFlags::MORE
            } else {
                SendFlags::empty()
            };
            self.send_all(head, piece, flags, operation, |count| {
                moved.fetch_add(count, Ordering::Release);
            })?;
            head = &[];
        }
        self.send_all(head, &[], SendFlags::empty(), operation, |_| {})
    }
}

impl Channel for TcpChannel {
    fn send(
        &mut self,
        head: &[u8],
        body: Body<'_>,
        operation: &Operation<'_>,
    ) -> Result<(), ChannelError> {
        self.is_sending = true;
        self.check(operation)?;
        match body {
            Body::Memory(bytes) => {
                self.send_all(head, bytes, SendFlags::empty(), operation, |_| {})
            }
            Body::File(range) => self.send_file(head, range, operation),
        }
    }

    fn takes_at_once(&self, bytes: usize) -> bool {
        // A socket is writable while a third of its buffer is free. The buffer also counts the kernel's overhead, which is as
        // large as the data for small packets (tcp(7)). It hardly ever shrinks.
        let free = self.facts.of(self.socket()).send_buffer / 3;
        let mut socket = [PollFd::new(&self.socket, PollFlags::OUT)];
        bytes <= free / 2
            && poll(&mut socket, Some(&Timespec::default())) == Ok(1)
            && socket[0].revents() == PollFlags::OUT
    }

    fn has_input(&self) -> bool {
        let mut socket = [PollFd::new(&self.socket, PollFlags::IN)];
        poll(&mut socket, Some(&Timespec::default())) == Ok(1)
            && socket[0].revents().contains(PollFlags::IN)
    }

    fn receive(
        &mut self,
        buffer: &mut [u8],
        operation: &Operation<'_>,
    ) -> Result<Received, ChannelError> {
        self.is_sending = false;
        if buffer.is_empty() {
            // recv with an empty buffer would wait for bytes.
            return self.check(operation).map(|()| Received::EndOfStream);
        }
        loop {
            self.check(operation)?;
            match recv(&self.socket, &mut *buffer, RecvFlags::empty()) {
                Ok((_, count)) => {
                    let count = NonZeroUsize::new(count);
                    return Ok(count.map_or(Received::EndOfStream, Received::Bytes));
                }
                Err(Errno::AGAIN) => operation.wait_readable(self.socket.as_fd())?,
                Err(Errno::INTR) => {}
                Err(errno) => return Err(self.fail(errno)),
            }
        }
    }

    fn finish(&mut self, operation: &Operation<'_>) -> Result<(), ChannelError> {
        self.check(operation)?;
        shutdown(&self.socket, Shutdown::Write).map_err(|errno| self.fail(errno))
    }

    fn is_delivered(&self) -> bool {
        unacknowledged_bytes(self.socket()) == Ok(0)
    }

    fn abort(&mut self) {
        self.has_failed = true;
        // With a linger time of 0 a close sends a reset (socket(7)). Disconnecting sends it now and not when the channel is
        // dropped.
        let _ = sockopt::set_socket_linger(&self.socket, Some(Duration::ZERO));
        if rustix::net::connect_unspec(&self.socket).is_err() {
            // A connection with kernel TLS cannot be disconnected, only closed. If no socket is available to replace it, the
            // drop closes it.
            if let Ok(other) = stream_socket(AddressFamily::INET) {
                self.socket = Arc::new(other);
            }
        }
    }

    fn tcp_socket(&self) -> Option<BorrowedFd<'_>> {
        Some(self.socket())
    }

    fn peer(&self) -> SocketAddr {
        self.peer
    }

    /// The buffer of the direction that was used last, as the kernel counts it: twice the requested size.
    fn info(&self) -> ChannelInfo {
        let recent = self.facts.of(self.socket());
        ChannelInfo {
            buffer_bytes: match self.is_sending {
                true => recent.send_buffer,
                false => recent.receive_buffer,
            },
            details: recent.details(),
            ..ChannelInfo::default()
        }
    }

    fn watch(&self) -> Option<Arc<dyn Watch>> {
        let watched = || Arc::new(Watched::new(&self.socket)) as Arc<dyn Watch>;
        Some(Arc::clone(self.watched.get_or_init(watched)))
    }
}
