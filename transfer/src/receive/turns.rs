//! A long stream on two movers, which take turns.
//!
//! To receive a stream and to write it takes one processor longer than the sender needs to send it. So one mover
//! receives what comes next while the other writes what it has received before: each writes its own bytes, which its
//! processor's cache has. They write in the order of the stream, so that what the file has is always the beginning.
//!
//! The second mover is there only as long as it helps: while pieces come as fast as they can be received, and
//! processors are left over. A mover that has been alone for a while leaves the stream to the driver, which may have a better
//! way for one.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use gridhaul_stack::{Channel, Movement, Received};

use super::part::Part;
use crate::TransferError;
use crate::local::Context;
use crate::movers::Crew;
use crate::sync::lock;

/// After so many full pieces without a wait for the peer, a second mover comes.
const FULL_PIECES: u32 = 16;

/// After so many in a row that were not full, the second mover goes.
const SHORT_PIECES: u32 = 8;

/// After so many pieces alone, full or not, the first mover gives up as well.
const ALONE_PIECES: u32 = 4 * FULL_PIECES;

/// A stream that goes to a file from `offset` on.
pub(super) struct Turns {
    context: Context,
    part: Arc<Part>,
    moved: Arc<AtomicU64>,
    source: Mutex<Source>,
    /// Held while somebody writes, and taken with the source in hand: so pieces are written in their order.
    sink: Mutex<Sink>,
    /// There is a second mover.
    has_helper: AtomicBool,
}

struct Source {
    channel: Box<dyn Channel>,
    /// Where the next piece goes.
    offset: u64,
    /// Nothing more is received.
    is_over: bool,
}

#[derive(Default)]
struct Sink {
    /// A piece is missing, and nothing is written behind it.
    has_failed: bool,
}

/// What a mover has to write.
struct Piece {
    offset: u64,
    count: usize,
}

impl Turns {
    pub(super) fn new(
        context: &Context,
        part: &Arc<Part>,
        moved: &Arc<AtomicU64>,
        channel: Box<dyn Channel>,
        offset: u64,
    ) -> Arc<Self> {
        Arc::new(Self {
            context: context.clone(),
            part: part.clone(),
            moved: moved.clone(),
            source: Mutex::new(Source {
                channel,
                offset,
                is_over: false,
            }),
            sink: Mutex::default(),
            has_helper: AtomicBool::new(false),
        })
    }

    /// Receives up to the end of the stream, or until nobody helps. Where that fails, the transfer has failed. Returns the
    /// channel, if there may be more to receive.
    pub(super) fn receive(self: Arc<Self>, buffer: &mut [u8]) -> (Box<dyn Channel>, bool) {
        let running = &self.context.running;
        let crew = Crew::new(&self.context.shared, running);
        if let Err(error) = self.take_part(buffer, Some(&crew)) {
            running.fail(error);
        }
        crew.join();
        let has_failed = running.failed();
        let turns = Arc::into_inner(self).expect("the crew has dropped its share");
        let source = turns.source.into_inner();
        let mut source = source.unwrap_or_else(PoisonError::into_inner);
        if has_failed {
            source.channel.abort();
        }
        (source.channel, !source.is_over && !has_failed)
    }

    /// Receives and writes in turn with the other mover, if there is one. The first has the crew, and stays to the end.
    fn take_part(
        self: &Arc<Self>,
        buffer: &mut [u8],
        crew: Option<&Crew>,
    ) -> Result<(), TransferError> {
        let watcher = self.part.watch();
        let (mut full_pieces, mut short_pieces, mut alone_pieces) = (0, 0, 0);
        loop {
            let mut source = lock(&self.source);
            let Some(piece) = self.next(&mut source, buffer)? else {
                return Ok(());
            };
            let mut sink = lock(&self.sink);
            if sink.has_failed {
                source.is_over = true;
                return Ok(());
            }
            drop(source);
            let bytes = &buffer[..piece.count];
            let moved = &self.moved;
            let writer = self.part.writer(piece.offset, moved, watcher.as_ref());
            let written = writer.write(bytes, 0);
            sink.has_failed = written.is_err();
            drop(sink);
            written?;
            self.part.note_stored(bytes.len() as u64)?;
            if piece.count == buffer.len() {
                (full_pieces, short_pieces) = (full_pieces + 1, 0);
            } else {
                (full_pieces, short_pieces) = (0, short_pieces + 1);
            }
            match crew {
                Some(_) if self.has_helper.load(Ordering::Acquire) => {
                    (full_pieces, alone_pieces) = (0, 0);
                }
                Some(_) if alone_pieces == ALONE_PIECES => return Ok(()),
                Some(crew) if full_pieces >= FULL_PIECES => {
                    (full_pieces, alone_pieces) = (0, alone_pieces + 1);
                    self.ask_for_help(crew);
                }
                Some(_) => alone_pieces += 1,
                None if short_pieces >= SHORT_PIECES => return Ok(()),
                None if self.context.shared.is_crowded() => return Ok(()),
                None => {}
            }
        }
    }

    /// Receives what can be received at once; `None` if nothing more will come.
    fn next(&self, source: &mut Source, buffer: &mut [u8]) -> Result<Option<Piece>, TransferError> {
        if source.is_over {
            return Ok(None);
        }
        let operation = self.context.running.operation();
        let count = match source.channel.receive(buffer, &operation) {
            Ok(Received::Bytes(count)) => count.get(),
            Ok(Received::EndOfStream) => {
                source.is_over = true;
                return Ok(None);
            }
            Err(error) => {
                source.is_over = true;
                source.channel.abort();
                return Err(error.into());
            }
        };
        let offset = source.offset;
        source.offset += count as u64;
        Ok(Some(Piece { offset, count }))
    }

    /// Has a second mover take part, if nobody else needs what it needs.
    fn ask_for_help(self: &Arc<Self>, crew: &Crew) {
        let shared = &self.context.shared;
        if !shared.has_idle_processor() {
            return;
        }
        let spare = (shared.receivers.take_spare(), shared.buffers.take_spare());
        let (Some(permit), Some(mut buffer)) = spare else {
            return;
        };
        self.has_helper.store(true, Ordering::Release);
        let turns = self.clone();
        let helper = crew.spawn(move || {
            let _permit = permit;
            let result = turns.take_part(&mut buffer, None);
            turns.has_helper.store(false, Ordering::Release);
            result
        });
        // One mover does as well.
        match helper {
            Ok(()) => self.context.running.note_movement(Movement {
                way: "read",
                reason: "two movers take turns".into(),
            }),
            Err(_) => self.has_helper.store(false, Ordering::Release),
        }
    }
}
