//! The record of received ranges, from which a receiver concludes that a file is complete.
//!
//! A block is claimed before its first byte is written, so that an overlapping block is refused before it
//! overwrites data, and recorded as arrived once storage has accepted it. The number of holes is limited,
//! and therefore the memory.

use std::ops::{DerefMut, Range};

use gridhaul_protocol::block::{EndOfDataCount, EodError};
use gridhaul_protocol::ranges::RangeSet;

use crate::error::PeerError;
use crate::sync::{CheckedMutex, ignore_poison};

/// How fragmented a file may be while it arrives. Sixty-four channels with blocks in flight cause some
/// hundreds of holes; only a peer that sends every other byte or the like causes this many.
const MAX_RANGES: usize = 65_536;

/// The received ranges and ends of data, shared by all workers of a transfer.
#[derive(Debug)]
pub(crate) struct Ledger {
    state: CheckedMutex<State>,
}

#[derive(Debug)]
struct State {
    claimed: RangeSet,
    arrived: RangeSet,
    /// Arrived, and not yet reported by a restart marker.
    unreported: RangeSet,
    /// The EOD count of each stripe.
    ends: Vec<EndOfDataCount>,
}

impl Ledger {
    pub(crate) fn new(stripes: usize) -> Self {
        let ends = (0..stripes).map(|_| EndOfDataCount::default()).collect();
        let state = State {
            claimed: RangeSet::new(),
            arrived: RangeSet::new(),
            unreported: RangeSet::new(),
            ends,
        };
        Self {
            state: CheckedMutex::new(state),
        }
    }

    /// Reserves the bytes of a block before they are written.
    ///
    /// # Errors
    ///
    /// When another block has claimed some of them, or there are too many holes.
    pub(crate) fn claim(&self, block: Range<u64>) -> Result<(), PeerError> {
        if block.is_empty() {
            return Ok(());
        }
        let mut state = self.lock();
        state.claimed.insert_disjoint(block)?;
        if state.claimed.len() > MAX_RANGES {
            return Err(PeerError::TooManyHoles { limit: MAX_RANGES });
        }
        Ok(())
    }

    /// Records bytes that storage has accepted.
    pub(crate) fn record(&self, bytes: Range<u64>) {
        if bytes.is_empty() {
            return;
        }
        let mut state = self.lock();
        state.arrived.insert(bytes.clone());
        state.unreported.insert(bytes);
    }

    /// The recorded ranges that no earlier call returned.
    pub(crate) fn take_unreported(&self) -> RangeSet {
        std::mem::take(&mut self.lock().unreported)
    }

    /// A copy of all recorded ranges.
    pub(crate) fn arrived(&self) -> RangeSet {
        self.lock().arrived.clone()
    }

    /// EOF on a stripe, with the total number of EODs to expect.
    pub(crate) fn end_of_file(&self, stripe: usize, eods: u64) -> Result<(), EodError> {
        self.lock().ends[stripe].on_end_of_file(eods)
    }

    /// EOD on a channel of a stripe.
    pub(crate) fn end_of_data(&self, stripe: usize) -> Result<(), EodError> {
        self.lock().ends[stripe].on_end_of_data()
    }

    /// Whether every stripe has received its EOF and all announced EODs.
    pub(crate) fn complete(&self) -> bool {
        self.lock().ends.iter().all(EndOfDataCount::complete)
    }

    /// The EODs announced by EOF, if it came, and the EODs received, on one stripe.
    pub(crate) fn end_of_data_count(&self, stripe: usize) -> (Option<u64>, u64) {
        let state = self.lock();
        (state.ends[stripe].expected(), state.ends[stripe].seen())
    }

    fn lock(&self) -> impl DerefMut<Target = State> + '_ {
        ignore_poison(self.state.lock())
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn overlapping_claims_are_refused_and_what_arrived_stays() {
        let ledger = Ledger::new(1);
        ledger.claim(0..100).expect("free");
        ledger.record(0..60);
        let error = ledger.claim(50..150).expect_err("0-100 is claimed");
        assert!(matches!(error, PeerError::Overlap(_)));
        assert_eq!(ledger.take_unreported().to_string(), "0-60");
        assert!(ledger.take_unreported().is_empty());
        assert_eq!(ledger.arrived().covered(), 60);
    }

    #[test]
    fn holes_are_bounded() {
        let ledger = Ledger::new(1);
        let refused = (0..=MAX_RANGES as u64).find(|n| ledger.claim(2 * n..2 * n + 1).is_err());
        assert_eq!(refused, Some(MAX_RANGES as u64));
    }

    #[test]
    fn each_stripe_counts_its_own_ends() {
        let ledger = Ledger::new(2);
        ledger.end_of_file(0, 1).expect("the first");
        ledger.end_of_data(0).expect("announced");
        assert!(!ledger.complete());
        assert_eq!(ledger.end_of_data_count(1), (None, 0));
        ledger.end_of_data(1).expect("before its EOF");
        ledger.end_of_file(1, 1).expect("the first of this stripe");
        assert!(ledger.complete());
    }
}

#[cfg(all(test, loom))]
mod loom_models {
    use loom::sync::Arc;
    use loom::thread;

    use super::*;

    #[test]
    fn of_two_overlapping_claims_one_wins() {
        loom::model(|| {
            let ledger = Arc::new(Ledger::new(1));
            let other = thread::spawn({
                let ledger = ledger.clone();
                move || ledger.claim(0..10).is_ok()
            });
            let mine = ledger.claim(5..15).is_ok();
            assert!(mine != other.join().expect("no panic"));
        });
    }

    #[test]
    fn a_marker_reports_every_byte_once() {
        loom::model(|| {
            let ledger = Arc::new(Ledger::new(1));
            let other = thread::spawn({
                let ledger = ledger.clone();
                move || {
                    ledger.record(0..10);
                    ledger.record(10..20);
                }
            });
            let first = ledger.take_unreported();
            other.join().expect("no panic");
            let second = ledger.take_unreported();
            assert_eq!(first.covered() + second.covered(), 20);
        });
    }
}
