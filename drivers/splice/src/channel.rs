//! One connection, and the ways in which it moves ranges of files.

use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsRawFd, BorrowedFd, RawFd};
use std::sync::Arc;

use gridhaul_stack::{
    Body, Channel, ChannelError, ChannelInfo, FileRange, Movement, Operation, Received,
};
use gridhaul_tcp::TcpChannel;
use rustix::io::Errno;

use crate::direct::{Direct, Wish};
use crate::judge::{self, Direction, MEASURED_BYTES, Peer, Record, Watch, Way};
use crate::pipes::Keeper;
use crate::readahead::ReadAhead;
use crate::{receiving, sending};

/// A channel decides anew after so many bytes.
const PIECE_BYTES: u64 = 1024 * 1024;

/// What is shorter goes through memory: a copy costs less than the calls that avoid it. `sendfile` pays from
/// the second page on, a pipe later.
const SHORT_TO_SEND_BYTES: u64 = 8 * 1024;
const SHORT_TO_RECEIVE_BYTES: u64 = 64 * 1024;

/// A transfer is long when a channel has moved so much.
const LONG_BYTES: u64 = 4 * 1024 * 1024;

/// A channel over TCP that can move file ranges past memory.
#[derive(Debug)]
pub(crate) struct SpliceChannel {
    tcp: TcpChannel,
    choice: Choice,
    /// Whether the peer is on this machine.
    is_local: bool,
    read_ahead: ReadAhead,
    _pipes: Keeper,
    /// Of the file and the direction that were asked about last.
    record: Option<((RawFd, Direction), Arc<Record>)>,
    /// Bytes of ranges, in both directions.
    moved: u64,
    last: Option<Last>,
    /// If the stack asks for files past the page cache.
    direct: Option<Direct>,
}

/// Who chooses the way of a range.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Choice {
    /// The stack: past memory, wherever that is possible.
    Splice,
    /// What was measured.
    Measured,
}

/// How far the kernel came with a range.
#[derive(Debug)]
pub(crate) enum Part {
    /// To its end.
    Whole,
    /// So many bytes; the rest must go through memory, for this reason if there is one.
    Refused(u64, Option<Errno>),
}

/// How a piece is moved.
#[derive(Debug)]
struct Turn {
    direction: Direction,
    way: Way,
    why: Why,
    /// If it is measured.
    watch: Option<Watch>,
}

/// How the last piece was moved.
#[derive(Debug)]
struct Last {
    call: &'static str,
    why: Why,
}

#[derive(Debug)]
enum Why {
    Asked,
    Tapped,
    Short,
    Failed(&'static str, Errno),
    Measured(Arc<Record>),
}

impl SpliceChannel {
    pub(crate) fn new(tcp: TcpChannel, choice: Choice, direct: Option<Wish>) -> Self {
        let local = rustix::net::getsockname(tcp.socket()).and_then(SocketAddr::try_from);
        let peer = tcp.peer().ip();
        let is_local = peer.is_loopback() || local.is_ok_and(|local| local.ip() == peer);
        Self {
            tcp,
            choice,
            is_local,
            read_ahead: ReadAhead::default(),
            _pipes: Keeper::new(),
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
        if let Some(direct) = &mut self.direct
            && let Some(file) = direct.takes(&range)
        {
            return direct.send(&mut self.tcp, head, range, file, operation);
        }
        let mut done = 0;
        while done < range.length {
            let piece = piece(&mut range, done);
            let length = piece.length;
            if length >= SHORT_TO_SEND_BYTES {
                self.read_ahead.prepare(piece.file, piece.offset);
            }
            let turn = self.turn(&piece, Direction::Sending);
            let refused = match turn.way {
                Way::Kernel => self.send_by_kernel(head, piece, operation)?,
                Way::Memory => {
                    self.tcp.send(head, Body::File(piece), operation)?;
                    None
                }
            };
            self.end(turn, length, refused);
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
            Part::Whole => Ok(None),
            Part::Refused(done, errno) => {
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
        if let Some(direct) = &mut self.direct
            && let Some(file) = direct.takes(&range)
        {
            return direct.receive(&mut self.tcp, range, file, operation);
        }
        let mut done = 0;
        while done < range.length {
            let piece = piece(&mut range, done);
            let length = piece.length;
            let turn = self.turn(&piece, Direction::Receiving);
            let (count, refused) = match turn.way {
                Way::Kernel => self.receive_by_kernel(piece, operation)?,
                Way::Memory => (self.tcp.receive_into(piece, operation)?, None),
            };
            self.end(turn, count, refused);
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
            Part::Whole => Ok((piece.length, None)),
            Part::Refused(done, errno) => {
                let more = self.tcp.receive_into(rest(piece, done), operation)?;
                Ok((done + more, errno))
            }
        }
    }

    /// Chooses the way of a piece.
    fn turn(&mut self, piece: &FileRange<'_>, direction: Direction) -> Turn {
        let short_bytes = match direction {
            Direction::Sending => SHORT_TO_SEND_BYTES,
            Direction::Receiving => SHORT_TO_RECEIVE_BYTES,
        };
        let (way, why, is_measured) = if piece.goes_through_memory() {
            (Way::Memory, Why::Tapped, false)
        } else if self.choice == Choice::Splice {
            (Way::Kernel, Why::Asked, false)
        } else if piece.length < short_bytes {
            (Way::Memory, Why::Short, false)
        } else {
            let record = self.record(piece.file, direction);
            let is_long = self.moved >= LONG_BYTES;
            let (way, is_measured) = record.choose(piece.length, is_long);
            (way, Why::Measured(record), is_measured)
        };
        Turn {
            direction,
            way,
            why,
            watch: is_measured.then(Watch::start),
        }
    }

    /// Remembers how a piece went.
    fn end(&mut self, turn: Turn, bytes: u64, refused: Option<Errno>) {
        self.moved += bytes;
        let mut last = Last {
            call: turn.direction.call(turn.way),
            why: turn.why,
        };
        if let (Why::Measured(record), Some(watch)) = (&last.why, &turn.watch)
            && refused.is_none()
            && bytes >= MEASURED_BYTES
        {
            record.note(turn.way, watch.stop(bytes));
        }
        if let Some(errno) = refused {
            match &last.why {
                Why::Measured(record) if is_the_kernels(errno) => record.refuse(errno),
                _ => last.why = Why::Failed(last.call, errno),
            }
            last.call = turn.direction.call(Way::Memory);
        }
        // The short block at the end of a long transfer says nothing about it.
        if self.last.is_none() || !matches!(last.why, Why::Short) {
            self.last = Some(last);
        }
    }

    /// What is known about a file's way. Descriptors are used again, so that this may be about another
    /// file; of that the next trial takes care.
    fn record(&mut self, file: BorrowedFd<'_>, direction: Direction) -> Arc<Record> {
        let key = (file.as_raw_fd(), direction);
        match &self.record {
            Some((known, record)) if *known == key => Arc::clone(record),
            _ => {
                let peer = Peer {
                    is_local: self.is_local,
                    is_protected: self.tcp.is_protected(),
                };
                let record = judge::record(file, direction, peer);
                self.record = Some((key, Arc::clone(&record)));
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
        ChannelInfo {
            movement: match &self.direct {
                Some(direct) => direct.movement(last),
                None => last,
            },
            details: details.unwrap_or_default(),
            ..self.tcp.info()
        }
    }
}

impl Last {
    fn movement(&self) -> Movement {
        let reason = match &self.why {
            Why::Asked => "the stack asks for it".into(),
            Why::Tapped => "its bytes are looked at on their way".into(),
            Why::Short => "it is short".into(),
            Why::Failed(call, errno) => format!("{call}: {}", io::Error::from(*errno)).into(),
            Why::Measured(record) => record.to_string().into(),
        };
        Movement {
            way: self.call,
            reason,
        }
    }
}

/// Whether the kernel says that it never moves such files, and not that it cannot at this moment.
fn is_the_kernels(errno: Errno) -> bool {
    matches!(errno, Errno::INVAL | Errno::NOSYS | Errno::OPNOTSUPP)
}

/// The next piece of a range, of which `done` bytes were moved.
fn piece<'a>(range: &'a mut FileRange<'_>, done: u64) -> FileRange<'a> {
    let left = range.length - done;
    FileRange {
        file: range.file,
        direct: range.direct,
        offset: range.offset + done,
        // The last piece is long rather than short.
        length: if left < 2 * PIECE_BYTES {
            left
        } else {
            PIECE_BYTES
        },
        scratch: range.scratch,
        moved: range.moved,
        tap: range.tap,
        sparse: range.sparse,
    }
}

pub(crate) fn rest(range: FileRange<'_>, done: u64) -> FileRange<'_> {
    FileRange {
        offset: range.offset + done,
        length: range.length - done,
        ..range
    }
}
