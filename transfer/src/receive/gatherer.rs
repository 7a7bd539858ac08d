//! Restores the order of the file from blocks of many channels, for storage that must be written
//! sequentially (the gatherer of the RFTP paper).
//!
//! A worker receives into its buffer and hands it over. If the buffer holds the next bytes of the file, the worker
//! writes them and the queued pieces that follow. Otherwise the gatherer queues the buffer, and the worker continues
//! with another one until the window is full; then it stops reading, and TCP flow control stops its peer. A
//! worker with the next bytes never waits for memory, because it has them in a buffer already.
//!
//! The order must not block a transfer: bytes that do not arrive within [`TIME_LIMIT`] while others wait are
//! skipped, and are written out of order when they arrive. The ledger detects bytes that never arrive.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use gridhaul_protocol::ranges::RangeSet;
use gridhaul_shares::Source;
use gridhaul_stack::{Cancel, ChannelError};

use crate::buffers::{Buffer, BufferPool};
use crate::error::TransferError;
use crate::sync::{ignore_poison, lock};

/// Received bytes that are not written yet.
#[derive(Debug)]
pub(super) struct Piece {
    /// Their offsets from the start of the part.
    pub(super) range: Range<u64>,
    /// Holds them at its start.
    pub(super) buffer: Buffer,
    /// The byte counter of their channel.
    pub(super) moved: Arc<AtomicU64>,
}

impl Piece {
    pub(super) fn bytes(&self) -> &[u8] {
        let length = self.range.end - self.range.start;
        // The code that makes a piece fills this much of the buffer.
        usize::try_from(length).map_or(&[], |length| &self.buffer[..length])
    }
}

/// Writes a piece and records it.
pub(super) type Write = dyn Fn(&Piece) -> Result<(), TransferError> + Send + Sync;

/// The window between what is received and what is written.
pub(super) struct Gatherer {
    pool: Arc<BufferPool>,
    /// The client that the buffers count for.
    source: Source,
    write: Box<Write>,
    /// The maximum number of queued pieces.
    window: usize,
    time_limit: Duration,
    state: Mutex<State>,
    /// Signalled after a write.
    changed: Condvar,
}

struct State {
    /// All bytes before this offset were written, were present before, or were skipped.
    next: u64,
    /// The ranges that the file had before the transfer.
    present: RangeSet,
    queued: BTreeMap<u64, Piece>,
    /// Buffers of queued pieces that were written.
    free: Vec<Buffer>,
    /// A worker is writing.
    writing: bool,
}

/// Queued pieces take at most this much memory, and at most half of the pool.
const WINDOW_BYTES: usize = 64 * 1024 * 1024;

/// How long other pieces wait for the next bytes of the file.
const TIME_LIMIT: Duration = Duration::from_secs(5);

/// How often a waiting worker checks for cancellation.
const CANCEL_CHECK: Duration = Duration::from_millis(50);

impl Gatherer {
    /// A gatherer for a file that already has the ranges `present`.
    pub(super) fn new(
        (pool, source): (&Arc<BufferPool>, &Source),
        present: &RangeSet,
        write: Box<Write>,
    ) -> Self {
        let mut state = State {
            next: 0,
            present: present.clone(),
            queued: BTreeMap::new(),
            free: Vec::new(),
            writing: false,
        };
        state.advance(0);
        Self {
            pool: pool.clone(),
            source: source.clone(),
            write,
            window: (WINDOW_BYTES / pool.buffer_bytes()).max(1),
            time_limit: TIME_LIMIT,
            state: Mutex::new(state),
            changed: Condvar::new(),
        }
    }

    /// Accepts a piece, and returns a buffer for the next one. Waits while the window is full.
    ///
    /// # Errors
    ///
    /// When writing this or a queued piece fails, or the transfer is cancelled.
    pub(super) fn hand_over(&self, piece: Piece, cancel: &Cancel) -> Result<Buffer, TransferError> {
        let mut state = lock(&self.state);
        let (mut seen, mut since) = (state.next, Instant::now());
        loop {
            if !state.writing {
                if piece.range.start <= state.next {
                    state = self.write(state, &piece)?;
                    drop(self.write_queued(state)?);
                    return Ok(piece.buffer);
                }
                // After bytes were skipped, a queued piece may be next without a worker to write it.
                if let Some(next) = state.take_next() {
                    state = self.write(state, &next)?;
                    state.free.push(next.buffer);
                    continue;
                }
            }
            if state.queued.len() < self.window
                && let Some(free) = state
                    .free
                    .pop()
                    .or_else(|| self.pool.take_spare(&self.source))
            {
                state.queued.insert(piece.range.start, piece);
                return Ok(free);
            }
            if cancel.is_cancelled() {
                return Err(ChannelError::Cancelled.into());
            }
            if state.next != seen {
                (seen, since) = (state.next, Instant::now());
            } else if !state.writing && since.elapsed() >= self.time_limit {
                state.skip_gap(piece.range.start);
                continue;
            }
            let interval = CANCEL_CHECK.min(self.time_limit);
            (state, _) = ignore_poison(self.changed.wait_timeout(state, interval));
        }
    }

    /// Writes the queued pieces at the end, when the bytes before them did not arrive.
    pub(super) fn finish(&self) -> Result<(), TransferError> {
        let mut state = lock(&self.state);
        while let Some((_, piece)) = state.queued.pop_first() {
            state = self.write(state, &piece)?;
        }
        Ok(())
    }

    /// Writes all queued pieces up to the next gap.
    fn write_queued<'a>(
        &'a self,
        mut state: MutexGuard<'a, State>,
    ) -> Result<MutexGuard<'a, State>, TransferError> {
        while let Some(piece) = state.take_next() {
            state = self.write(state, &piece)?;
            state.free.push(piece.buffer);
        }
        Ok(state)
    }

    /// Writes a piece, with the lock released.
    fn write<'a>(
        &'a self,
        mut state: MutexGuard<'a, State>,
        piece: &Piece,
    ) -> Result<MutexGuard<'a, State>, TransferError> {
        state.writing = true;
        drop(state);
        let written = (self.write)(piece);
        let mut state = lock(&self.state);
        state.writing = false;
        state.advance(piece.range.end);
        self.changed.notify_all();
        written.map(|()| state)
    }
}

impl State {
    /// The first queued piece, if it continues the file without a gap.
    fn take_next(&mut self) -> Option<Piece> {
        let first = self.queued.first_entry()?;
        (*first.key() <= self.next).then(|| first.remove())
    }

    /// Records that all bytes before `end` were written or skipped.
    fn advance(&mut self, end: u64) {
        let next = self.next.max(end);
        let gap = self.present.missing_in(next..u64::MAX).next();
        self.next = gap.map_or(next, |gap| gap.start);
    }

    /// Skips the gap before a piece that starts at `start`, or before the first queued piece.
    fn skip_gap(&mut self, start: u64) {
        let first = self.queued.keys().next().copied();
        self.advance(first.map_or(start, |first| first.min(start)));
    }
}

#[cfg(test)]
mod tests {
    use std::thread;

    use proptest::prelude::*;

    use super::*;

    /// The length of a piece.
    const PIECE: u64 = 10;

    fn client(host: u8) -> Source {
        Source::at([192, 0, 2, host].into())
    }

    /// Hands over the pieces of several channels, and returns the order in which they were written.
    fn gather(
        channels: Vec<Vec<u64>>,
        present: &RangeSet,
        buffers: usize,
        time_limit: Duration,
    ) -> Vec<u64> {
        let pool = BufferPool::new(4096, 4096 * buffers);
        let written = Arc::new(Mutex::new(Vec::new()));
        let record = written.clone();
        let write = move |piece: &Piece| {
            assert_eq!(u64::from(piece.buffer[0]), piece.range.start / PIECE % 256);
            lock(&record).push(piece.range.start / PIECE);
            Ok(())
        };
        let gatherer = Gatherer {
            window: 8,
            time_limit,
            ..Gatherer::new((&pool, &client(0)), present, Box::new(write))
        };
        let cancel = Cancel::new();
        thread::scope(|scope| {
            let take = |host| {
                pool.take(&client(host), &cancel)
                    .expect("one for each channel")
            };
            let taken = (1..)
                .zip(&channels)
                .map(|(host, _)| take(host))
                .collect::<Vec<_>>();
            for (numbers, mut buffer) in channels.into_iter().zip(taken) {
                let (gatherer, cancel) = (&gatherer, &cancel);
                scope.spawn(move || {
                    for number in numbers {
                        buffer[0] = u8::try_from(number % 256).expect("small");
                        let piece = Piece {
                            range: number * PIECE..(number + 1) * PIECE,
                            buffer,
                            moved: Arc::default(),
                        };
                        buffer = gatherer.hand_over(piece, cancel).expect("written");
                    }
                });
            }
        });
        gatherer.finish().expect("written");
        lock(&written).clone()
    }

    /// Distributes the pieces of a file among channels.
    fn distribute(choices: &[usize], channels: usize, present: &RangeSet) -> Vec<Vec<u64>> {
        let mut distributed = vec![Vec::new(); channels];
        for (number, choice) in (0..).zip(choices) {
            if !present.contains(&(number * PIECE..(number + 1) * PIECE)) {
                distributed[choice % channels].push(number);
            }
        }
        distributed
    }

    #[test]
    fn a_file_that_is_sent_backwards_is_written_out_of_order() {
        let backwards = vec![(0..50).rev().collect()];
        let time_limit = Duration::from_millis(1);
        let mut written = gather(backwards, &RangeSet::new(), 4, time_limit);
        assert_ne!(written[0], 0, "the first bytes were skipped");
        written.sort_unstable();
        assert_eq!(written, (0..50).collect::<Vec<_>>());
    }

    #[test]
    fn a_cancelled_worker_stops_waiting() {
        let pool = BufferPool::new(4096, 4096);
        let gatherer = Gatherer::new((&pool, &client(0)), &RangeSet::new(), Box::new(|_| Ok(())));
        let cancel = Cancel::new();
        let piece = Piece {
            range: 10..20,
            buffer: pool.take(&client(0), &cancel).expect("the only one"),
            moved: Arc::default(),
        };
        cancel.cancel();
        let outcome = gatherer.hand_over(piece, &cancel);
        assert!(matches!(
            outcome,
            Err(TransferError::Channel(ChannelError::Cancelled))
        ));
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        /// For every distribution of the pieces and any amount of memory.
        #[test]
        fn pieces_are_written_in_the_order_of_the_file(
            choices in proptest::collection::vec(0_usize..100, 0..200),
            channels in 1_usize..6,
            spare in 0_usize..20,
            there in (0_u64..200, 0_u64..50),
        ) {
            let present = RangeSet::from(there.0 * PIECE..(there.0 + there.1) * PIECE);
            let distributed = distribute(&choices, channels, &present);
            let mut expected = distributed.concat();
            expected.sort_unstable();
            let written = gather(distributed, &present, channels + spare, Duration::from_secs(600));
            prop_assert_eq!(written, expected);
        }
    }
}
