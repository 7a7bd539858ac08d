//! Deals a file out to the movers that send it.
//!
//! All channels of a stripe draw from one counter, so that a slow channel takes less and no lock is on
//! the way. Pieces are computed, not stored: nothing grows with the size of the file.

use std::ops::Range;
use std::sync::atomic::Ordering;

use gridhaul_protocol::command::StripeLayout;

use crate::sync::AtomicU64;

/// The pieces of a part of a file, by stripe. Offsets count from the start of the part.
#[derive(Debug)]
pub(crate) struct Dispenser {
    /// How long the part is, in bytes.
    length: u64,
    /// The largest piece, in bytes: one block on the wire.
    piece_bytes: u64,
    stripes: u64,
    layout: StripeLayout,
    /// For each stripe, the number of its next piece.
    next: Vec<AtomicU64>,
}

impl Dispenser {
    pub(crate) fn new(length: u64, piece_bytes: u64, stripes: usize, layout: StripeLayout) -> Self {
        // A single stripe is a file in one part, whatever the layout.
        let layout = if stripes <= 1 {
            StripeLayout::Partitioned
        } else {
            layout
        };
        let next = (0..stripes.max(1))
            .map(|_| AtomicU64::new(0))
            .collect::<Vec<_>>();
        Self {
            length,
            piece_bytes: piece_bytes.max(1),
            stripes: next.len() as u64,
            layout,
            next,
        }
    }

    /// The next piece of `stripe`, `None` when all are dealt out.
    pub(crate) fn next(&self, stripe: usize) -> Option<Range<u64>> {
        let number = self.next[stripe].fetch_add(1, Ordering::Relaxed);
        match self.layout {
            StripeLayout::Partitioned => self.partitioned(stripe as u64, number),
            StripeLayout::Blocked { block_bytes } => {
                self.blocked(stripe as u64, number, block_bytes.max(1))
            }
        }
    }

    /// GFD.20 3.2, layout Partitioned: contiguous parts, one for each stripe.
    fn partitioned(&self, stripe: u64, number: u64) -> Option<Range<u64>> {
        let part = self.length.div_ceil(self.stripes);
        let part_end = part.saturating_mul(stripe + 1).min(self.length);
        let start = part
            .saturating_mul(stripe)
            .checked_add(number.checked_mul(self.piece_bytes)?)?;
        (start < part_end).then(|| start..part_end.min(start.saturating_add(self.piece_bytes)))
    }

    /// GFD.20 3.2, layout Blocked: block k of the file belongs to stripe k modulo the number of
    /// stripes. A layout block may be longer than a block on the wire.
    fn blocked(&self, stripe: u64, number: u64, block_bytes: u64) -> Option<Range<u64>> {
        let pieces = block_bytes.div_ceil(self.piece_bytes);
        let block = (number / pieces)
            .checked_mul(self.stripes)?
            .checked_add(stripe)?;
        let block_start = block.checked_mul(block_bytes)?;
        let start = block_start.checked_add((number % pieces) * self.piece_bytes)?;
        let block_end = block_start.saturating_add(block_bytes).min(self.length);
        if block_start >= self.length {
            return None;
        }
        // The last block of the file may be shorter than its number of pieces: those are empty.
        let start = start.min(block_end);
        Some(start..block_end.min(start.saturating_add(self.piece_bytes)))
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use gridhaul_protocol::ranges::RangeSet;
    use proptest::prelude::*;

    use super::*;

    fn deal(dispenser: &Dispenser, stripe: usize) -> Vec<Range<u64>> {
        std::iter::from_fn(|| dispenser.next(stripe))
            .filter(|piece| !piece.is_empty())
            .collect()
    }

    #[test]
    fn blocked_pieces_lie_where_the_standard_puts_them() {
        let layout = StripeLayout::Blocked {
            block_bytes: 1_048_576,
        };
        let dispenser = Dispenser::new(5_000_000, 1_048_576, 2, layout);
        let starts = |stripe| {
            deal(&dispenser, stripe)
                .iter()
                .map(|p| p.start)
                .collect::<Vec<_>>()
        };
        assert_eq!(starts(0), [0, 2_097_152, 4_194_304]);
        assert_eq!(starts(1), [1_048_576, 3_145_728]);
    }

    #[test]
    fn partitioned_pieces_are_contiguous() {
        let dispenser = Dispenser::new(5_000_000, 4_000_000, 2, StripeLayout::Partitioned);
        assert_eq!(dispenser.next(0), Some(0..2_500_000));
        assert_eq!(dispenser.next(1), Some(2_500_000..5_000_000));
        assert_eq!(dispenser.next(0), None);
    }

    #[test]
    fn the_largest_file_does_not_overflow() {
        let length = i64::MAX as u64;
        for layout in [
            StripeLayout::Partitioned,
            StripeLayout::Blocked {
                block_bytes: u64::MAX / 2,
            },
        ] {
            let dispenser = Dispenser::new(length, u64::MAX, 64, layout);
            for stripe in 0..64 {
                while let Some(piece) = dispenser.next(stripe) {
                    assert!(piece.end <= length);
                }
            }
        }
    }

    proptest! {
        #[test]
        fn every_byte_is_dealt_once(
            length in 0_u64..5000,
            piece in 1_u64..700,
            stripes in 1_usize..6,
            block in proptest::option::of(1_u64..900),
        ) {
            let layout = block.map_or(StripeLayout::Partitioned, |block_bytes| {
                StripeLayout::Blocked { block_bytes }
            });
            let dispenser = Dispenser::new(length, piece, stripes, layout);
            let mut dealt = RangeSet::new();
            for stripe in 0..stripes {
                for range in deal(&dispenser, stripe) {
                    prop_assert!(range.end - range.start <= piece);
                    prop_assert!(dealt.insert_disjoint(range).is_ok());
                }
            }
            prop_assert_eq!(dealt.missing_in(0..length).next(), None);
            prop_assert_eq!(dealt.end(), length);
        }
    }
}

#[cfg(all(test, loom))]
mod loom_models {
    use loom::sync::Arc;
    use loom::thread;

    use super::*;

    #[test]
    fn two_movers_never_draw_the_same_piece() {
        loom::model(|| {
            let dispenser = Arc::new(Dispenser::new(30, 10, 1, StripeLayout::Partitioned));
            let draw = |dispenser: Arc<Dispenser>| {
                move || std::iter::from_fn(|| dispenser.next(0)).collect::<Vec<_>>()
            };
            let other = thread::spawn(draw(dispenser.clone()));
            let mut pieces = draw(dispenser)();
            pieces.extend(other.join().expect("no panic"));
            pieces.sort_by_key(|piece| piece.start);
            assert_eq!(pieces, [0..10, 10..20, 20..30]);
        });
    }
}
