//! The directions of a channel whose records the kernel protects.

use gridhaul_security::tls::{Direction, RECORD_HEADER};
use gridhaul_stack::{Body, ChannelError, FileRange, Operation};
use rustix::io::Errno;
use rustix::net::sockopt;

use super::TlsChannel;
use crate::engine::Engine;
use crate::kernel::socket::{self, APPLICATION_DATA};
use crate::kernel::{KernelSender, KtlsMode};
use crate::record::{FULL_RECORD, TRUNCATED};

/// The most memory that one call encrypts, so that a cancelled call ends in time on machines with slow ciphers.
const CALL_BYTES: usize = 16 * FULL_RECORD;

impl<E: Engine> TlsChannel<E> {
    /// Gives the kernel the keys according to `mode`. Call it directly after the handshake, before any data.
    ///
    /// # Errors
    ///
    /// When the kernel refuses keys that it must have.
    pub(crate) fn offload(&mut self, mode: KtlsMode) -> Result<(), ChannelError> {
        for direction in [Direction::Sending, Direction::Receiving] {
            let Some(keys) = self.engine.keys(direction) else {
                continue;
            };
            if !mode.applies(direction, &keys) {
                continue;
            }
            let Some(socket) = self.inner.tcp_socket() else {
                if mode == KtlsMode::Always {
                    return Err(self.fail(NO_SOCKET));
                }
                continue;
            };
            let taken = match direction {
                Direction::Sending => KernelSender::begin(socket, &keys)
                    .map(|sender| self.offload.sending = Some(sender)),
                Direction::Receiving => socket::attach(socket)
                    .and_then(|()| socket::set_keys(socket, direction, &keys))
                    .map(|()| self.offload.is_receiving = true),
            };
            match taken {
                Ok(()) => self.engine.release_keys(direction),
                Err(error) if mode == KtlsMode::Always => {
                    return Err(self.fail(format!("the kernel does not take the keys: {error}")));
                }
                // Without keys the socket works as before.
                Err(_) => {}
            }
        }
        Ok(())
    }

    /// Sends plaintext that the kernel protects.
    pub(super) fn send_by_kernel(
        &mut self,
        head: &[u8],
        body: Body<'_>,
        operation: &Operation<'_>,
    ) -> Result<(), ChannelError> {
        let content = match body {
            Body::Memory(bytes) => {
                let (first, rest) = bytes.split_at(bytes.len().min(CALL_BYTES));
                self.inner.send(head, Body::Memory(first), operation)?;
                for piece in rest.chunks(CALL_BYTES) {
                    self.inner.send(&[], Body::Memory(piece), operation)?;
                }
                (head.len() + bytes.len()) as u64
            }
            Body::File(range) => {
                let length = range.length;
                self.inner.send(head, Body::File(range), operation)?;
                head.len() as u64 + length
            }
        };
        self.note_sent(content, operation)?;
        // The last record of a call may be short.
        let records = content / FULL_RECORD as u64 + 1;
        self.engine
            .note_sealed(records, &mut self.answers)
            .map_err(|reason| self.fail(reason))?;
        self.flush(operation)
    }

    /// Sends the engine's answers, which are unprotected records, through the kernel, and changes the kernel's keys if the engine
    /// did.
    pub(super) fn answer_by_kernel(
        &mut self,
        operation: &Operation<'_>,
    ) -> Result<(), ChannelError> {
        let answers = std::mem::take(&mut self.answers);
        let mut rest = &answers[..];
        while let Some((header, more)) = rest.split_first_chunk::<RECORD_HEADER>() {
            let [kind, _, _, high, low] = *header;
            let length = usize::from(u16::from_be_bytes([high, low])).min(more.len());
            let (content, more) = more.split_at(length);
            self.send_record(kind, content, operation)?;
            rest = more;
        }
        let (Some(keys), Some(socket), Some(sender)) = (
            self.engine.keys(Direction::Sending),
            self.inner.tcp_socket(),
            &mut self.offload.sending,
        ) else {
            return Ok(());
        };
        match sender.change(socket, &keys) {
            Ok(()) => {
                self.engine.release_keys(Direction::Sending);
                Ok(())
            }
            Err(error) => Err(self.fail(format!("{NO_CHANGE}: {error}"))),
        }
    }

    fn send_record(
        &mut self,
        kind: u8,
        content: &[u8],
        operation: &Operation<'_>,
    ) -> Result<(), ChannelError> {
        loop {
            self.check(operation)?;
            let Some(socket) = self.inner.tcp_socket() else {
                return Err(self.fail(NO_SOCKET));
            };
            match socket::send_record(socket, kind, content) {
                // Records of this type are short, and the kernel accepts them whole.
                Ok(_) => return self.note_sent(content.len() as u64, operation),
                Err(Errno::AGAIN) => operation.wait_writable(socket)?,
                Err(Errno::INTR) => {}
                Err(errno) => return Err(self.fail_socket(errno)),
            }
        }
    }

    fn note_sent(&mut self, content: u64, operation: &Operation<'_>) -> Result<(), ChannelError> {
        if let (Some(sender), Some(socket)) = (&mut self.offload.sending, self.inner.tcp_socket()) {
            sender.note(content);
            sender.flush(socket, operation)?;
        }
        Ok(())
    }

    /// Receives plaintext from the kernel into `buffer`, which should hold a record: the number of bytes, or `None` at the end
    /// of the stream.
    pub(super) fn receive_by_kernel(
        &mut self,
        buffer: &mut [u8],
        operation: &Operation<'_>,
    ) -> Result<Option<usize>, ChannelError> {
        while !self.engine.is_closed_by_peer() {
            self.check(operation)?;
            let Some(socket) = self.inner.tcp_socket() else {
                return Err(self.fail(NO_SOCKET));
            };
            match socket::receive_record(socket, buffer) {
                Ok((_, 0)) if socket::unread(socket) > 0 => return Err(self.fail(TRUNCATED)),
                Ok((_, 0)) => return Ok(None),
                Ok((kind, count)) if kind == APPLICATION_DATA => {
                    // An empty data record for the engine, which limits the number of consecutive records of other types.
                    let mut record = [kind, 3, 3, 0, 0];
                    let opened = self.engine.open(&mut record, &mut self.answers);
                    opened.map_err(|reason| self.fail(reason))?;
                    return Ok(Some(count));
                }
                Ok((kind, count)) => self.take_record(kind, &buffer[..count], operation)?,
                Err(Errno::AGAIN) => operation.wait_readable(socket)?,
                Err(Errno::INTR) => {}
                // Documentation/networking/tls.rst, "Error handling": not a record, not authentic, or too long.
                Err(Errno::BADMSG | Errno::INVAL | Errno::MSGSIZE) => {
                    return Err(self.refuse_record(operation));
                }
                Err(errno) => return Err(self.fail_socket(errno)),
            }
        }
        Ok(None)
    }

    /// Passes a record that the kernel has opened to the engine, and new keys from the engine to the kernel.
    fn take_record(
        &mut self,
        kind: u8,
        content: &[u8],
        operation: &Operation<'_>,
    ) -> Result<(), ChannelError> {
        let mut record = vec![kind, 3, 3];
        let length = u16::try_from(content.len()).unwrap_or(u16::MAX);
        record.extend(length.to_be_bytes());
        record.extend_from_slice(content);
        if let Err(reason) = self.engine.open(&mut record, &mut self.answers) {
            return Err(self.refuse(reason, operation));
        }
        if let (Some(keys), Some(socket)) = (
            self.engine.keys(Direction::Receiving),
            self.inner.tcp_socket(),
        ) {
            if let Err(error) = socket::set_keys(socket, Direction::Receiving, &keys) {
                return Err(self.fail(format!("{NO_CHANGE}: {error}")));
            }
            self.engine.release_keys(Direction::Receiving);
        }
        self.flush(operation)
    }

    /// The kernel could not open a record: sends the peer the same alert as if the engine had tried.
    fn refuse_record(&mut self, operation: &Operation<'_>) -> ChannelError {
        if let Some(socket) = self.inner.tcp_socket() {
            // Clears the pending error, which would fail the next call as well (socket(7), SO_ERROR).
            let _ = sockopt::socket_error(socket);
        }
        match self.engine.open(&mut [], &mut self.answers) {
            Err(reason) => self.refuse(reason, operation),
            Ok(_) => self.fail("a record cannot be opened"),
        }
    }

    /// As [`TlsChannel::open_some`], for buffers shorter than records.
    pub(super) fn open_some_by_kernel(
        &mut self,
        operation: &Operation<'_>,
    ) -> Result<bool, ChannelError> {
        if !self.incoming.opened().is_empty() {
            return Ok(true);
        }
        let mut incoming = std::mem::take(&mut self.incoming);
        let received = self.receive_by_kernel(incoming.space(), operation);
        if let Ok(Some(count)) = received {
            incoming.received_opened(count);
        }
        self.incoming = incoming;
        received.map(|count| count.is_some())
    }

    /// As [`TlsChannel::receive_batch`], with records that the kernel opens.
    pub(super) fn receive_batch_by_kernel(
        &mut self,
        range: &mut FileRange<'_>,
        done: u64,
        operation: &Operation<'_>,
    ) -> Result<Option<u64>, ChannelError> {
        let wanted = usize::try_from(range.length - done)
            .map_or(range.scratch.len(), |left| left.min(range.scratch.len()));
        let Some(count) = self.receive_by_kernel(&mut range.scratch[..wanted], operation)? else {
            return Ok(None);
        };
        range.writer().write(&range.scratch[..count], done)?;
        Ok(Some(count as u64))
    }

    fn fail_socket(&mut self, errno: Errno) -> ChannelError {
        self.has_failed = true;
        ChannelError::from_socket(errno.into())
    }
}

const NO_SOCKET: &str = "ktls=on needs a stack whose driver beneath is tcp, splice or auto";

const NO_CHANGE: &str = "the kernel does not change the keys of a TLS connection, which Linux can since 6.14 \
     (ktls=auto checks this)";
