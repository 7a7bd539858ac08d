//! A connection, and how it moves ranges of files.

use std::net::SocketAddr;
use std::os::fd::{AsRawFd, BorrowedFd, RawFd};
use std::sync::Arc;

use gridhaul_direct::Call;
use gridhaul_stack::measured::{Method, Stopwatch};
use gridhaul_stack::{
    Body, Channel, ChannelError, ChannelInfo, FileRange, Operation, Received, Watch,
};
use gridhaul_tcp::TcpChannel;
use rustix::io::Errno;

use crate::decision::{Decision, Last, Reason, is_unsupported};
use crate::direct::{Direct, DirectUse};
use crate::pipes::PipeUser;
use crate::progress::{Progress, part_of, rest};
use crate::readahead::ReadAhead;
use crate::selection::{self, Direction, Peer, Record};
use crate::{receiving, sending};

/// The method is chosen again for each piece of this length.
const PIECE_BYTES: u64 = 1024 * 1024;

/// Shorter pieces go through memory: a copy costs less than the calls that avoid it. `sendfile` pays off from the second
/// page on, a pipe later.
const SHORT_TO_SEND_BYTES: u64 = 8 * 1024;
const SHORT_TO_RECEIVE_BYTES: u64 = 64 * 1024;

/// A transfer counts as long once a channel has moved this much.
const LONG_BYTES: u64 = 4 * 1024 * 1024;

/// A channel over TCP that can move file ranges past memory.
#[derive(Debug)]
pub(crate) struct SpliceChannel {
    tcp: TcpChannel,
    choice: Choice,
    /// Whether the peer is on this machine.
    is_local: bool,
    read_ahead: ReadAhead,
    _pipes: PipeUser,
    /// The record for the last file and direction.
    record: Option<((RawFd, Direction), Record)>,
    /// Bytes of ranges so far, in both directions.
    moved: u64,
    last: Option<Last>,
    /// Set if the stack asks for direct I/O.
    direct: Option<Direct>,
}

/// How the method for a range is chosen.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Choice {
    /// By the stack: `sendfile` or `splice` wherever possible.
    Splice,
    /// By measurement.
    Measured,
}

impl SpliceChannel {
    pub(crate) fn new(tcp: TcpChannel, choice: Choice, direct: Option<DirectUse>) -> Self {
        let local = rustix::net::getsockname(tcp.socket()).and_then(SocketAddr::try_from);
        let peer = tcp.peer().ip();
        let is_local = peer.is_loopback() || local.is_ok_and(|local| local.ip() == peer);
        Self {
            tcp,
            choice,
            is_local,
            read_ahead: ReadAhead::default(),
            _pipes: PipeUser::new(),
            record: None,
            moved: 0,
            last: None,
            direct: direct.map(Direct::new),
        }
    }

    fn send_range(
        &mut self,
        mut head: &[u8],
        mut range: FileRange<'_>,
        operation: &Operation<'_>,
    ) -> Result<(), ChannelError> {
        let (mut done, peer) = (0, self.peer_kind());
        while done < range.length {
            let part = self.part(&mut range, done);
            let length = part.length;
            if let Some(direct) = &mut self.direct
                && let Some(file) = direct.choose(&part, Call::Read, peer)
            {
                direct.send(&mut self.tcp, head, part, file, operation)?;
            } else {
                self.send_cached(head, part, operation)?;
            }
            self.end_part(length);
            head = &[];
            done += length;
        }
        Ok(())
    }

    /// Sends a range from the page cache.
    fn send_cached(
        &mut self,
        mut head: &[u8],
        mut range: FileRange<'_>,
        operation: &Operation<'_>,
    ) -> Result<(), ChannelError> {
        let mut done = 0;
        while done < range.length {
            let piece = piece(&mut range, done);
            let length = piece.length;
            if length >= SHORT_TO_SEND_BYTES {
                self.read_ahead.prepare(piece.file, piece.offset);
            }
            let decision = self.decide(&piece, Direction::Sending);
            let refused = match decision.method {
                Method::Bypass => self.send_by_kernel(head, piece, operation)?,
                Method::Copy => {
                    self.tcp.send(head, Body::File(piece), operation)?;
                    None
                }
            };
            self.finish_piece(decision, length, refused);
            head = &[];
            done += length;
        }
        Ok(())
    }

    fn send_by_kernel(
        &mut self,
        head: &[u8],
        piece: FileRange<'_>,
        operation: &Operation<'_>,
    ) -> Result<Option<Errno>, ChannelError> {
        self.tcp.send_ahead(head, operation)?;
        match sending::send(&mut self.tcp, &piece, operation)? {
            Progress::Complete => Ok(None),
            Progress::Refused(done, errno) => {
                let body = Body::File(rest(piece, done));
                self.tcp.send(&[], body, operation)?;
                Ok(errno)
            }
        }
    }

    fn receive_range(
        &mut self,
        mut range: FileRange<'_>,
        operation: &Operation<'_>,
    ) -> Result<u64, ChannelError> {
        let (mut done, peer) = (0, self.peer_kind());
        while done < range.length {
            let part = self.part(&mut range, done);
            let length = part.length;
            let count = if let Some(direct) = &mut self.direct
                && let Some(file) = direct.choose(&part, Call::Write, peer)
            {
                direct.receive(&mut self.tcp, part, file, operation)?
            } else {
                self.receive_cached(part, operation)?
            };
            self.end_part(count);
            done += count;
            if count < length {
                break;
            }
        }
        Ok(done)
    }

    /// The part of a range after its first `done` bytes that is moved with or without direct I/O.
    fn part<'a>(&self, range: &'a mut FileRange<'_>, done: u64) -> FileRange<'a> {
        let left = range.length - done;
        let length = self
            .direct
            .as_ref()
            .map_or(left, |direct| direct.piece_bytes(left));
        part_of(range, range.offset + done, length)
    }

    fn end_part(&mut self, bytes: u64) {
        if let Some(direct) = &mut self.direct {
            direct.end(bytes);
        }
    }

    /// Receives a range into the page cache.
    fn receive_cached(
        &mut self,
        mut range: FileRange<'_>,
        operation: &Operation<'_>,
    ) -> Result<u64, ChannelError> {
        let mut done = 0;
        while done < range.length {
            let piece = piece(&mut range, done);
            let length = piece.length;
            let decision = self.decide(&piece, Direction::Receiving);
            let (count, refused) = match decision.method {
                Method::Bypass => self.receive_by_kernel(piece, operation)?,
                Method::Copy => (self.tcp.receive_into(piece, operation)?, None),
            };
            self.finish_piece(decision, count, refused);
            done += count;
            if count < length {
                break;
            }
        }
        Ok(done)
    }

    fn receive_by_kernel(
        &mut self,
        mut piece: FileRange<'_>,
        operation: &Operation<'_>,
    ) -> Result<(u64, Option<Errno>), ChannelError> {
        match receiving::receive(&mut self.tcp, &mut piece, operation)? {
            Progress::Complete => Ok((piece.length, None)),
            Progress::Refused(done, errno) => {
                let more = self.tcp.receive_into(rest(piece, done), operation)?;
                Ok((done + more, errno))
            }
        }
    }

    /// Chooses the method for a piece.
    fn decide(&mut self, piece: &FileRange<'_>, direction: Direction) -> Decision {
        let short_bytes = match direction {
            Direction::Sending => SHORT_TO_SEND_BYTES,
            Direction::Receiving => SHORT_TO_RECEIVE_BYTES,
        };
        let (method, reason, is_measured) = if piece.goes_through_memory() {
            (Method::Copy, Reason::Tapped, false)
        } else if self.choice == Choice::Splice {
            (Method::Bypass, Reason::Requested, false)
        } else if piece.length < short_bytes {
            (Method::Copy, Reason::Short, false)
        } else {
            let record = self.record(piece.file, direction);
            let is_long = self.moved >= LONG_BYTES;
            let (method, is_measured) = record.choice().choose(piece.length, is_long);
            (method, Reason::Measured(record), is_measured)
        };
        Decision {
            direction,
            method,
            reason,
            stopwatch: is_measured.then(Stopwatch::start),
        }
    }

    /// Records the result of a piece.
    fn finish_piece(&mut self, decision: Decision, bytes: u64, refused: Option<Errno>) {
        self.moved += bytes;
        let mut last = Last {
            call: decision.direction.call(decision.method),
            reason: decision.reason,
        };
        if let (Reason::Measured(record), Some(stopwatch)) = (&last.reason, &decision.stopwatch)
            && refused.is_none()
        {
            record.choice().note(decision.method, stopwatch.stop(bytes));
        }
        if let Some(errno) = refused {
            match &last.reason {
                Reason::Measured(record) if is_unsupported(errno) => record.choice().refuse(errno),
                _ => last.reason = Reason::Failed(last.call, errno),
            }
            last.call = decision.direction.call(Method::Copy);
        }
        // The short block at the end of a long transfer is not typical of it.
        if self.last.is_none() || !matches!(last.reason, Reason::Short) {
            self.last = Some(last);
        }
    }

    /// What decides the cost of sending to the peer.
    fn peer_kind(&self) -> Peer {
        Peer {
            is_local: self.is_local,
            is_protected: self.tcp.is_protected(),
        }
    }

    /// The measurements for a file. Descriptors are reused, so the record may be that of another file; the next trial
    /// corrects that.
    fn record(&mut self, file: BorrowedFd<'_>, direction: Direction) -> Record {
        let key = (file.as_raw_fd(), direction);
        match &self.record {
            Some((known, record)) if *known == key => record.clone(),
            _ => {
                let record = selection::record(file, direction, self.peer_kind());
                self.record = Some((key, record.clone()));
                record
            }
        }
    }
}

impl Channel for SpliceChannel {
    fn send(
        &mut self,
        head: &[u8],
        body: Body<'_>,
        operation: &Operation<'_>,
    ) -> Result<(), ChannelError> {
        match body {
            Body::File(range) if range.length > 0 => self.send_range(head, range, operation),
            body => self.tcp.send(head, body, operation),
        }
    }

    fn takes_at_once(&self, bytes: usize) -> bool {
        self.tcp.takes_at_once(bytes)
    }

    fn has_input(&self) -> bool {
        self.tcp.has_input()
    }

    fn receive(
        &mut self,
        buffer: &mut [u8],
        operation: &Operation<'_>,
    ) -> Result<Received, ChannelError> {
        self.tcp.receive(buffer, operation)
    }

    fn receive_into(
        &mut self,
        range: FileRange<'_>,
        operation: &Operation<'_>,
    ) -> Result<u64, ChannelError> {
        self.receive_range(range, operation)
    }

    fn finish(&mut self, operation: &Operation<'_>) -> Result<(), ChannelError> {
        self.tcp.finish(operation)
    }

    fn is_delivered(&self) -> bool {
        self.tcp.is_delivered()
    }

    fn abort(&mut self) {
        self.tcp.abort();
    }

    fn tcp_socket(&self) -> Option<BorrowedFd<'_>> {
        self.tcp.tcp_socket()
    }

    fn peer(&self) -> SocketAddr {
        self.tcp.peer()
    }

    fn info(&self) -> ChannelInfo {
        let last = self.last.as_ref().map(Last::movement);
        let details = self.direct.as_ref().map(Direct::details);
        let mut info = self.tcp.info();
        info.details.extend(details.into_iter().flatten());
        ChannelInfo {
            movement: match &self.direct {
                Some(direct) => direct.movement(last),
                None => last,
            },
            ..info
        }
    }

    fn watch(&self) -> Option<Arc<dyn Watch>> {
        self.tcp.watch()
    }
}

/// The next piece of a range after its first `done` bytes.
fn piece<'a>(range: &'a mut FileRange<'_>, done: u64) -> FileRange<'a> {
    let left = range.length - done;
    // The remainder joins the last piece, which would be short otherwise.
    let length = if left < 2 * PIECE_BYTES {
        left
    } else {
        PIECE_BYTES
    };
    part_of(range, range.offset + done, length)
}
