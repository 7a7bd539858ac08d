//! Puts what many channels receive into the order of the file, for storage that wants to be written from
//! one end to the other (the gatherer of the RFTP paper).
//!
//! A worker receives into its buffer and hands it over. Who brings the bytes that are wanted next writes
//! them, and after them what waits behind them. Who is ahead leaves its buffer here and goes on with another
//! one, until the window is full; then it waits, does not read, and TCP holds its peer back. The worker with
//! the bytes that are wanted next has them in a buffer already, so it never waits for memory.
//!
//! The order is not worth a transfer: bytes that do not come for [`PATIENCE`] while others wait for
//! them are passed over, and are written when they come. Whether they had to come is for the ledger to say.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use gridhaul_protocol::ranges::RangeSet;
use gridhaul_shares::Source;
use gridhaul_stack::{Cancel, ChannelError};

use crate::buffers::{Buffer, BufferPool};
use crate::error::TransferError;
use crate::sync::lock;

/// Received bytes on their way to the file.
#[derive(Debug)]
pub(super) struct Piece {
    /// Where they belong, from the start of the part.
    pub(super) range: Range<u64>,
    /// They are at its start.
    pub(super) buffer: Buffer,
    /// The counter of the channel that they came on.
    pub(super) moved: Arc<AtomicU64>,
}

impl Piece {
    pub(super) fn bytes(&self) -> &[u8] {
        let length = self.range.end - self.range.start;
        // The code that made the piece has filled this much of the buffer.
        usize::try_from(length).map_or(&[], |length| &self.buffer[..length])
    }
}

/// Writes a piece and records it.
pub(super) type Write = dyn Fn(&Piece) -> Result<(), TransferError> + Send + Sync;

/// The window between what is received and what is written.
pub(super) struct Gatherer {
    pool: Arc<BufferPool>,
    /// Whose buffers they are.
    source: Source,
    write: Box<Write>,
    /// How many pieces may wait.
    window: usize,
    patience: Duration,
    state: Mutex<State>,
    /// Something was written, or passed over.
    changed: Condvar,
}

struct State {
    /// All before it was written, was there before, or was passed over.
    next: u64,
    /// What the file had before: it does not come again.
    present: RangeSet,
    waiting: BTreeMap<u64, Piece>,
    /// Buffers of pieces that waited and were written.
    free: Vec<Buffer>,
    /// A worker is writing.
    writing: bool,
}

/// What waits takes at most this much memory, and half of the pool.
const WINDOW_BYTES: usize = 64 * 1024 * 1024;

/// How long the bytes that are wanted next may keep others waiting.
const PATIENCE: Duration = Duration::from_secs(5);

/// How often a waiting worker looks whether its transfer was cancelled.
const CANCEL_CHECK: Duration = Duration::from_millis(50);

impl Gatherer {
    /// For a file that has `present` already.
    pub(super) fn new(
        (pool, source): (&Arc<BufferPool>, &Source),
        present: &RangeSet,
        write: Box<Write>,
    ) -> Self {
        let mut state = State {
            next: 0,
            present: present.clone(),
            waiting: BTreeMap::new(),
            free: Vec::new(),
            writing: false,
        };
        state.advance(0);
        Self {
            pool: pool.clone(),
            source: source.clone(),
            write,
            window: (WINDOW_BYTES / pool.buffer_bytes()).max(1),
            patience: PATIENCE,
            state: Mutex::new(state),
            changed: Condvar::new(),
        }
    }

    /// Takes a piece, and returns a buffer for the next one. Waits while the window is full.
    ///
    /// # Errors
    ///
    /// When writing fails, which may be that of other pieces, or the transfer is cancelled.
    pub(super) fn hand_over(&self, piece: Piece, cancel: &Cancel) -> Result<Buffer, TransferError> {
        let mut state = lock(&self.state);
        let (mut seen, mut since) = (state.next, Instant::now());
        loop {
            if !state.writing {
                if piece.range.start <= state.next {
                    state = self.write(state, &piece)?;
                    drop(self.write_waiting(state)?);
                    return Ok(piece.buffer);
                }
                // After something was passed over, what waits is wanted, and no worker may come for it.
                if let Some(wanted) = state.take_wanted() {
                    state = self.write(state, &wanted)?;
                    state.free.push(wanted.buffer);
                    continue;
                }
            }
            if state.waiting.len() < self.window
                && let Some(free) = state
                    .free
                    .pop()
                    .or_else(|| self.pool.take_spare(&self.source))
            {
                state.waiting.insert(piece.range.start, piece);
                return Ok(free);
            }
            if cancel.is_cancelled() {
                return Err(ChannelError::Cancelled.into());
            }
            if state.next != seen {
                (seen, since) = (state.next, Instant::now());
            } else if !state.writing && since.elapsed() >= self.patience {
                state.pass_over(piece.range.start);
                continue;
            }
            (state, _) = self
                .changed
                .wait_timeout(state, CANCEL_CHECK.min(self.patience))
                .unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Writes what waits for bytes that did not come, when no more will.
    pub(super) fn finish(&self) -> Result<(), TransferError> {
        let mut state = lock(&self.state);
        while let Some((_, piece)) = state.waiting.pop_first() {
            state = self.write(state, &piece)?;
        }
        Ok(())
    }

    /// Writes all that waits and is wanted.
    fn write_waiting<'a>(
        &'a self,
        mut state: MutexGuard<'a, State>,
    ) -> Result<MutexGuard<'a, State>, TransferError> {
        while let Some(piece) = state.take_wanted() {
            state = self.write(state, &piece)?;
            state.free.push(piece.buffer);
        }
        Ok(state)
    }

    /// Writes a piece, without the lock.
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
    /// The first piece that waits, if nothing before it is waited for.
    fn take_wanted(&mut self) -> Option<Piece> {
        let first = self.waiting.first_entry()?;
        (*first.key() <= self.next).then(|| first.remove())
    }

    /// All before `end` is in the file, or will not be waited for.
    fn advance(&mut self, end: u64) {
        let next = self.next.max(end);
        let gap = self.present.missing_in(next..u64::MAX).next();
        self.next = gap.map_or(next, |gap| gap.start);
    }

    /// Goes on with what is there: with a piece that starts at `start`, or with what waits before it.
    fn pass_over(&mut self, start: u64) {
        let first = self.waiting.keys().next().copied();
        self.advance(first.map_or(start, |first| first.min(start)));
    }
}

#[cfg(test)]
mod tests {
    use std::thread;

    use proptest::prelude::*;

    use super::*;

    /// A piece is so long.
    const PIECE: u64 = 10;

    fn client(host: u8) -> Source {
        Source::at([192, 0, 2, host].into())
    }

    /// Runs channels that hand their pieces over in the order that they have them, and returns the
    /// order in which those were written.
    fn gather(
        channels: Vec<Vec<u64>>,
        present: &RangeSet,
        buffers: usize,
        patience: Duration,
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
            patience,
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

    /// Deals the pieces of a file to channels.
    fn dealt(choices: &[usize], channels: usize, present: &RangeSet) -> Vec<Vec<u64>> {
        let mut dealt = vec![Vec::new(); channels];
        for (number, choice) in (0..).zip(choices) {
            if !present.contains(&(number * PIECE..(number + 1) * PIECE)) {
                dealt[choice % channels].push(number);
            }
        }
        dealt
    }

    #[test]
    fn a_peer_that_sends_from_the_end_is_served_out_of_order() {
        let backwards = vec![(0..50).rev().collect()];
        let patience = Duration::from_millis(1);
        let mut written = gather(backwards, &RangeSet::new(), 4, patience);
        assert_ne!(written[0], 0, "it was waited for in vain");
        written.sort_unstable();
        assert_eq!(written, (0..50).collect::<Vec<_>>());
    }

    #[test]
    fn a_worker_that_waits_ends_when_the_transfer_does() {
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

        /// Whichever channel has which piece, and however little memory there is: the file is written
        /// from one end to the other.
        #[test]
        fn pieces_are_written_in_the_order_of_the_file(
            choices in proptest::collection::vec(0_usize..100, 0..200),
            channels in 1_usize..6,
            spare in 0_usize..20,
            there in (0_u64..200, 0_u64..50),
        ) {
            let present = RangeSet::from(there.0 * PIECE..(there.0 + there.1) * PIECE);
            let dealt = dealt(&choices, channels, &present);
            let mut expected = dealt.concat();
            expected.sort_unstable();
            let written = gather(dealt, &present, channels + spare, Duration::from_secs(600));
            prop_assert_eq!(written, expected);
        }
    }
}
