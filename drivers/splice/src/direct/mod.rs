//! Direct I/O (`O_DIRECT`): moves files past the page cache, for storage that is faster than it.
//!
//! ```text
//!   send:     file -> reading -> network   (zerocopy, fresh_pages)
//!   receive:  file <- writing <- network
//!               gridhaul_direct: asynchronous requests over io_uring or threads
//! ```
//!
//! The caller's memory is divided into pieces. Some pieces are read or written asynchronously while the network uses the
//! others. Partial blocks at the ends of a received range go through the page cache; several channels may write to one file,
//! and no page has bytes of both kinds.
//!
//! No request is in flight when a call returns: parallel channels do the read-ahead from one range to the next.

mod fresh_pages;
mod network;
mod pieces;
mod reading;
mod writing;
mod zerocopy;

use std::borrow::Cow;
use std::collections::VecDeque;
use std::io;
use std::ops::Range;
use std::os::fd::BorrowedFd;
use std::time::Duration;

use gridhaul_direct::{Call, Circumstances, Engine, Residence, Trial, block_bytes};
use gridhaul_stack::{Body, Channel as _, ChannelError, Detail, FileRange, Movement, Operation};
use gridhaul_tcp::TcpChannel;
use rustix::io::Errno;

use self::network::{Network, receive_until};
use self::pieces::{piece_bytes, pieces_of};
use self::writing::{BlockWriter, Written};
use self::zerocopy::ZeroCopy;
use crate::progress::{Progress, part_of, rest};
use crate::selection::Peer;

pub(crate) use gridhaul_direct::{DirectUse, OPTION};

/// Moves the files of one channel past the page cache.
#[derive(Debug)]
pub(crate) struct Direct {
    usage: DirectUse,
    engine: Option<Engine>,
    zerocopy: ZeroCopy,
    /// Where the files of the channel are, with `direct=auto`.
    residence: Residence,
    /// How the last range was moved.
    last: Last,
    /// The measurement of the last range, with `direct=auto`.
    trial: Option<Trial>,
    /// Bytes of all ranges so far.
    moved: u64,
}

/// A file that is open with `O_DIRECT`.
#[derive(Debug, Clone, Copy)]
pub(crate) struct DirectFile<'a> {
    file: BorrowedFd<'a>,
    /// Offsets and lengths of requests are multiples of it.
    block_bytes: usize,
    /// The length of requests.
    piece_bytes: usize,
}

#[derive(Debug)]
enum Last {
    None,
    Direct,
    /// Through the page cache, for this reason.
    Cached(Cow<'static, str>),
    /// Through the page cache, as measured.
    Measured,
}

impl Direct {
    pub(crate) fn new(usage: DirectUse) -> Self {
        Self {
            usage,
            engine: None,
            zerocopy: ZeroCopy::default(),
            residence: Residence::default(),
            last: Last::None,
            trial: None,
            moved: 0,
        }
    }

    /// How many of the `left` bytes of a range are moved in the same way.
    pub(crate) fn piece_bytes(&self, left: u64) -> u64 {
        self.usage.piece_bytes(left)
    }

    /// The file of a range, if the range is moved with direct I/O over a connection to this peer. [`Direct::end`] ends the range.
    pub(crate) fn choose<'file>(
        &mut self,
        range: &FileRange<'file>,
        call: Call,
        peer: Peer,
    ) -> Option<DirectFile<'file>> {
        self.trial = None;
        let file = self.usable_file(range)?;
        if self.usage != DirectUse::Measured {
            return Some(file);
        }
        if let Some(reason) = self.residence.reason_for_cache(range, call) {
            self.last = Last::Cached(reason.into());
            return None;
        }
        let circumstances = Circumstances {
            connection: connection(peer),
            call,
            request_bytes: file.piece_bytes as u64,
        };
        let trial = Trial::begin(circumstances, range, self.moved);
        let is_direct = trial.is_direct();
        self.trial = Some(trial);
        if !is_direct {
            self.last = Last::Measured;
        }
        is_direct.then_some(file)
    }

    /// So many bytes of the last range were moved.
    pub(crate) fn end(&mut self, bytes: u64) {
        self.moved += bytes;
        let engine = self.engine.as_mut();
        let helpers = engine.map_or(Duration::ZERO, Engine::take_helper_time);
        if let Some(trial) = &mut self.trial {
            trial.end(bytes, matches!(self.last, Last::Direct), helpers);
        }
    }

    /// The file of a range, if the range can be moved with direct I/O.
    fn usable_file<'file>(&mut self, range: &FileRange<'file>) -> Option<DirectFile<'file>> {
        if range.sparse.is_some() {
            self.last = Last::Cached("zeros that are received stay holes".into());
            return None;
        }
        let Some(file) = range.direct else {
            self.last = Last::Cached("the file could not be opened past the page cache".into());
            return None;
        };
        let Some(block_bytes) = block_bytes(file) else {
            self.last = Last::Cached("the file system has no direct I/O for this file".into());
            return None;
        };
        let Some(piece_bytes) = piece_bytes(range.scratch, block_bytes) else {
            self.last = Last::Cached("the buffers are too short for direct I/O".into());
            return None;
        };
        Some(DirectFile {
            file,
            block_bytes,
            piece_bytes,
        })
    }

    /// Sends a range of a file from [`Direct::choose`].
    pub(crate) fn send(
        &mut self,
        channel: &mut TcpChannel,
        head: &[u8],
        range: FileRange<'_>,
        DirectFile {
            file, block_bytes, ..
        }: DirectFile<'_>,
        operation: &Operation<'_>,
    ) -> Result<(), ChannelError> {
        channel.send_ahead(head, operation)?;
        let span = range.offset..range.offset.saturating_add(range.length);
        let pieces = pieces_of(range.scratch, block_bytes);
        let mut zerocopy = std::mem::take(&mut self.zerocopy);
        let read = self.engine().with_pieces(file, pieces, |queue| {
            let mut network = Network {
                max_held: queue.slots() / 2,
                channel: &mut *channel,
                zerocopy: &mut zerocopy,
                sent: 0,
                moved: range.moved,
                operation,
            };
            let read = reading::read(queue, span, block_bytes, &mut network);
            let settled = network.settle();
            read.and_then(|part| settled.map(|()| part))
        });
        if zerocopy.held() > 0 {
            // The connection was reset, but packets of it may still be queued at the device.
            fresh_pages::replace(range.scratch);
        }
        self.zerocopy = zerocopy;
        let done = match read {
            Ok(read) => match read? {
                Progress::Complete => {
                    self.last = Last::Direct;
                    return Ok(());
                }
                Progress::Refused(done, errno) => {
                    self.note_refusal(errno);
                    done
                }
            },
            Err(error) => {
                self.last = no_thread(&error);
                0
            }
        };
        channel.send(&[], Body::File(rest(range, done)), operation)
    }

    /// Receives a range of a file from [`Direct::choose`], and returns the number of bytes received.
    pub(crate) fn receive(
        &mut self,
        channel: &mut TcpChannel,
        mut range: FileRange<'_>,
        file: DirectFile<'_>,
        operation: &Operation<'_>,
    ) -> Result<u64, ChannelError> {
        let end = range.offset.saturating_add(range.length);
        let block = file.block_bytes as u64;
        let blocks_end = end - end % block;
        let mut done = 0;
        while done < range.length {
            let at = range.offset + done;
            if at.is_multiple_of(block) && at < blocks_end {
                match self.receive_blocks(channel, &mut range, at..blocks_end, file, operation)? {
                    Written::Bytes(count) => done += count,
                    Written::ToTheEnd(count) => return Ok(done + count),
                }
            } else {
                // A partial block. Another channel may write the other part.
                let length = end.min((at / block + 1) * block) - at;
                let count = channel.receive_into(part_of(&mut range, at, length), operation)?;
                done += count;
                if count < length {
                    break;
                }
            }
        }
        Ok(done)
    }

    fn receive_blocks(
        &mut self,
        channel: &mut TcpChannel,
        range: &mut FileRange<'_>,
        blocks: Range<u64>,
        DirectFile {
            file, block_bytes, ..
        }: DirectFile<'_>,
        operation: &Operation<'_>,
    ) -> Result<Written, ChannelError> {
        let (through_cache, origin) = (range.writer(), range.offset);
        let (moved, tap) = (range.moved, range.tap);
        let pieces = pieces_of(range.scratch, block_bytes);
        let written = self.engine().with_pieces(file, pieces, |queue| {
            let mut writer = BlockWriter {
                queue,
                through_cache,
                origin,
                block_bytes,
                moved,
                tap,
                in_flight: VecDeque::new(),
                refused: None,
            };
            let written = writer.receive(blocks.clone(), |memory, until| {
                receive_until(channel, memory, until, operation)
            });
            (written, writer.refused)
        });
        match written {
            Ok((written, refused)) => {
                self.note_refusal(refused);
                written
            }
            Err(error) => {
                self.last = no_thread(&error);
                let length = blocks.end - blocks.start;
                let piece = part_of(range, blocks.start, length);
                let count = channel.receive_into(piece, operation)?;
                if count < length {
                    Ok(Written::ToTheEnd(count))
                } else {
                    Ok(Written::Bytes(count))
                }
            }
        }
    }

    /// Details of the connection for the log.
    pub(crate) fn details(&self) -> Vec<Detail> {
        self.zerocopy.details()
    }

    /// How the last range was moved; `cached` is the result for ranges that went through the page cache.
    pub(crate) fn movement(&self, cached: Option<Movement>) -> Option<Movement> {
        match &self.last {
            Last::None => cached,
            Last::Direct => self.engine.as_ref().map(|engine| Movement {
                way: engine.way(),
                reason: match (&self.trial, engine.without_ring()) {
                    (Some(trial), _) => trial.describe().into(),
                    (None, Some(error)) => format!("io_uring: {error}").into(),
                    (None, None) => REQUESTED.into(),
                },
            }),
            Last::Measured => Some(Movement {
                way: cached.map_or("read", |cached| cached.way),
                reason: self
                    .trial
                    .as_ref()
                    .map_or_else(|| REQUESTED.into(), |trial| trial.describe().into()),
            }),
            Last::Cached(reason) => Some(Movement {
                way: cached.map_or("read", |cached| cached.way),
                reason: reason.clone(),
            }),
        }
    }

    /// The last range went past the page cache, or not all of it: for this reason.
    fn note_refusal(&mut self, refused: Option<Errno>) {
        self.last = match refused {
            None => Last::Direct,
            Some(errno) => Last::Cached(format!("direct I/O: {}", io::Error::from(errno)).into()),
        };
        if let (Some(trial), Some(errno)) = (&self.trial, refused) {
            trial.refuse(errno);
        }
    }

    fn engine(&mut self) -> &mut Engine {
        let choice = self.usage.engine();
        self.engine.get_or_insert_with(|| Engine::open(choice))
    }
}

/// The kind of a connection: `O_DIRECT` sends without a copy, but not to peers on this machine, and the kernel encrypts copies.
fn connection(peer: Peer) -> &'static str {
    match (peer.is_local, peer.is_protected) {
        (false, false) => "splice",
        (false, true) => "splice, encrypted by the kernel",
        (true, false) => "splice to this machine",
        (true, true) => "splice to this machine, encrypted by the kernel",
    }
}

const REQUESTED: &str = "the stack asks for it";

fn no_thread(error: &io::Error) -> Last {
    Last::Cached(format!("direct I/O: no thread is left: {error}").into())
}
