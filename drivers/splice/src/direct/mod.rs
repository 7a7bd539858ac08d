//! Files that are moved past the page cache (`O_DIRECT`), for disks that are faster than it.
//!
//! Whole blocks are read and written in the memory that a call lends, several at a time, while the network
//! has the others: over io_uring, or by helper threads where the kernel does not have it. What is no whole
//! block, at the ends of a range that is received, goes through the page cache; several channels may write
//! to one file, and no page has bytes of both kinds.
//!
//! When a call returns nothing is under way: read-ahead from one range to the next is left to parallel
//! channels.

mod lane;
mod reading;
mod renewed;
mod ring;
mod threads;
mod uncopied;
mod writing;

use std::borrow::Cow;
use std::collections::VecDeque;
use std::io;
use std::ops::Range;
use std::os::fd::BorrowedFd;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use gridhaul_stack::options::{Audience, OptionDoc, OptionKind, Options};
use gridhaul_stack::{
    Body, Channel as _, ChannelError, Detail, FileRange, Movement, Operation, Received, StackError,
};
use gridhaul_tcp::TcpChannel;
use rustix::io::Errno;

use self::lane::{Lane, block_bytes, has_pieces, pieces_of};
use self::reading::Sink;
use self::ring::Ring;
use self::uncopied::Uncopied;
use self::writing::{BlockWriter, Written};
use crate::channel::{Part, rest};

/// The option of the drivers here.
pub(crate) const OPTION: OptionDoc = OptionDoc {
    name: "direct",
    meaning: "moves files past the page cache: 1 over io_uring where the kernel has it, threads without",
    example: "1",
    kind: OptionKind::Word,
    // Each channel gets stages, a ring or threads of its own, and files that many read come from the disk each time.
    audience: Audience::Administrator("it takes memory, threads and the disk from other users"),
};

/// How requests are to be under way beside their caller.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Wish {
    /// In the best way that the kernel has.
    Best,
    /// By helper threads.
    Threads,
}

impl Wish {
    /// What the option says; `None` is the page cache.
    pub(crate) fn parse(options: &Options<'_>) -> Result<Option<Self>, StackError> {
        let wish = options.value(OPTION.name, |text| match text {
            "0" => Ok(None),
            "1" => Ok(Some(Self::Best)),
            "threads" => Ok(Some(Self::Threads)),
            _ => Err("it is none of 0, 1 and threads".to_owned()),
        })?;
        Ok(wish.flatten())
    }
}

/// Moves the files of one channel past the page cache.
#[derive(Debug)]
pub(crate) struct Direct {
    wish: Wish,
    engine: Option<Engine>,
    uncopied: Uncopied,
    /// How ranges went last.
    last: Last,
}

/// A file that is open past the page cache.
#[derive(Debug, Clone, Copy)]
pub(crate) struct DirectFile<'a> {
    file: BorrowedFd<'a>,
    /// What is moved begins and ends at multiples of it.
    block_bytes: usize,
}

#[derive(Debug)]
enum Engine {
    Ring(Box<Ring>),
    /// With the reason why there is no ring, if one was wanted.
    Threads(Option<io::Error>),
}

#[derive(Debug)]
enum Last {
    Nothing,
    Direct,
    /// What was in the way.
    Cached(Cow<'static, str>),
}

impl Direct {
    pub(crate) fn new(wish: Wish) -> Self {
        Self {
            wish,
            engine: None,
            uncopied: Uncopied::default(),
            last: Last::Nothing,
        }
    }

    /// The file of a range, if the range can be moved past the page cache.
    pub(crate) fn takes<'file>(&mut self, range: &FileRange<'file>) -> Option<DirectFile<'file>> {
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
        if !has_pieces(range.scratch, block_bytes) {
            self.last = Last::Cached("the buffers are too short for direct I/O".into());
            return None;
        }
        Some(DirectFile { file, block_bytes })
    }

    /// Sends a range that [`Direct::takes`] has taken.
    pub(crate) fn send(
        &mut self,
        channel: &mut TcpChannel,
        head: &[u8],
        range: FileRange<'_>,
        DirectFile { file, block_bytes }: DirectFile<'_>,
        operation: &Operation<'_>,
    ) -> Result<(), ChannelError> {
        channel.send_ahead(head, operation)?;
        let span = range.offset..range.offset.saturating_add(range.length);
        let pieces = pieces_of(range.scratch, block_bytes);
        let mut uncopied = std::mem::take(&mut self.uncopied);
        let read = self.engine().with_lane(file, pieces, |lane| {
            let mut network = Network {
                most_lent: lane.pieces() / 2,
                channel: &mut *channel,
                uncopied: &mut uncopied,
                sent: 0,
                moved: range.moved,
                operation,
            };
            let read = reading::read(lane, span, block_bytes, &mut network);
            let settled = network.settle();
            read.and_then(|part| settled.map(|()| part))
        });
        if uncopied.lent() > 0 {
            // The connection was thrown away, and packets of it may be on their way to the device.
            renewed::renew(range.scratch);
        }
        self.uncopied = uncopied;
        let done = match read {
            Ok(read) => match read? {
                Part::Whole => {
                    self.last = Last::Direct;
                    return Ok(());
                }
                Part::Refused(done, errno) => {
                    self.last = errno.map_or(Last::Direct, refusal);
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

    /// Receives a range that [`Direct::takes`] has taken; returns how many bytes came.
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
                // The rest of a block, which others may have begun.
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
        DirectFile { file, block_bytes }: DirectFile<'_>,
        operation: &Operation<'_>,
    ) -> Result<Written, ChannelError> {
        let (through_cache, origin) = (range.writer(), range.offset);
        let (moved, tap) = (range.moved, range.tap);
        let pieces = pieces_of(range.scratch, block_bytes);
        let written = self.engine().with_lane(file, pieces, |lane| {
            let mut writer = BlockWriter {
                lane,
                through_cache,
                origin,
                block_bytes,
                moved,
                tap,
                under_way: VecDeque::new(),
                refused: None,
            };
            let written = writer.receive(blocks.clone(), |memory, until| {
                receive_until(channel, memory, until, operation)
            });
            (written, writer.refused)
        });
        match written {
            Ok((written, refused)) => {
                self.last = match refused {
                    None => Last::Direct,
                    Some(errno) => refusal(errno),
                };
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

    /// What is told of the connection besides.
    pub(crate) fn details(&self) -> Vec<Detail> {
        self.uncopied.details()
    }

    /// How ranges were moved last, if `cached` is how those were that went another way.
    pub(crate) fn movement(&self, cached: Option<Movement>) -> Option<Movement> {
        match &self.last {
            Last::Nothing => cached,
            Last::Direct => Some(match &self.engine {
                Some(Engine::Threads(Some(error))) => Movement {
                    way: "direct (threads)",
                    reason: format!("io_uring: {error}").into(),
                },
                Some(Engine::Threads(None)) => Movement {
                    way: "direct (threads)",
                    reason: ASKED.into(),
                },
                _ => Movement {
                    way: "direct (io_uring)",
                    reason: ASKED.into(),
                },
            }),
            Last::Cached(reason) => Some(Movement {
                way: cached.map_or("read", |cached| cached.way),
                reason: reason.clone(),
            }),
        }
    }

    fn engine(&mut self) -> &mut Engine {
        let wish = self.wish;
        self.engine.get_or_insert_with(|| match wish {
            Wish::Threads => Engine::Threads(None),
            Wish::Best => match Ring::open() {
                Ok(ring) => Engine::Ring(Box::new(ring)),
                Err(error) => Engine::Threads(Some(error)),
            },
        })
    }
}

const ASKED: &str = "the stack asks for it";

/// Sends pieces, and lends them where that is possible.
struct Network<'a> {
    channel: &'a mut TcpChannel,
    uncopied: &'a mut Uncopied,
    /// The number of the next piece.
    sent: u64,
    /// How many pieces are lent at most; the others are read meanwhile.
    most_lent: usize,
    moved: &'a AtomicU64,
    operation: &'a Operation<'a>,
}

impl Sink for Network<'_> {
    fn send(&mut self, bytes: &[u8], left: u64) -> Result<(), ChannelError> {
        let is_early = left > self.most_lent as u64;
        let may_lend = is_early && self.uncopied.lent() < self.most_lent;
        let piece = (self.sent, bytes);
        let is_more = left > 0;
        self.uncopied
            .send(self.channel, piece, may_lend, is_more, self.operation)?;
        self.sent += 1;
        self.moved.fetch_add(bytes.len() as u64, Ordering::Release);
        Ok(())
    }

    fn is_free(&mut self, index: u64, must_be: bool) -> Result<bool, ChannelError> {
        self.uncopied
            .is_free(self.channel, index, must_be, self.operation)
    }
}

impl Network<'_> {
    /// Waits until all memory is given back. If that cannot be waited for, the connection is thrown away: the kernel would send,
    /// or send again, what others write there.
    fn settle(&mut self) -> Result<(), ChannelError> {
        self.uncopied
            .settle(self.channel, self.operation)
            .inspect_err(|_| self.channel.abort())
    }
}

impl Engine {
    /// Does `work` with a lane; the error is that no thread is left for one.
    fn with_lane<R>(
        &mut self,
        file: BorrowedFd<'_>,
        pieces: Vec<&mut [u8]>,
        work: impl FnOnce(&mut dyn Lane) -> R,
    ) -> io::Result<R> {
        match self {
            Self::Ring(ring) => Ok(ring.with_lane(file, pieces, work)),
            Self::Threads(_) => threads::with_lane(file, pieces, work),
        }
    }
}

fn refusal(errno: Errno) -> Last {
    Last::Cached(format!("direct I/O: {}", io::Error::from(errno)).into())
}

fn no_thread(error: &io::Error) -> Last {
    Last::Cached(format!("direct I/O: no thread is left: {error}").into())
}

/// Receives, and gives up at a time that is no deadline with nothing.
fn receive_until(
    channel: &mut TcpChannel,
    memory: &mut [u8],
    until: Option<Instant>,
    operation: &Operation<'_>,
) -> Result<Option<Received>, ChannelError> {
    let deadline = match (operation.deadline, until) {
        (Some(deadline), Some(until)) => Some(deadline.min(until)),
        (deadline, until) => deadline.or(until),
    };
    let cancel = operation.cancel;
    match channel.receive(memory, &Operation { deadline, cancel }) {
        Err(ChannelError::DeadlineExceeded) if operation.check().is_ok() => Ok(None),
        received => received.map(Some),
    }
}

fn part_of<'a>(range: &'a mut FileRange<'_>, offset: u64, length: u64) -> FileRange<'a> {
    FileRange {
        file: range.file,
        direct: range.direct,
        offset,
        length,
        scratch: range.scratch,
        moved: range.moved,
        tap: range.tap,
        sparse: range.sparse,
    }
}
