//! Divides a file among the workers that send it.
//!
//! All channels of a stripe take pieces from one atomic counter, so a slow channel takes less, and there is no
//! lock. Pieces are computed, not stored, so the memory does not depend on the size of the file.

use std::ops::Range;
use std::sync::atomic::Ordering;

use gridhaul_protocol::command::StripeLayout;

use super::portion::Portion;
use crate::sync::AtomicU64;

/// The pieces of a part of a file, by stripe. Offsets count from the start of the part.
#[derive(Debug)]
pub(crate) struct Dispenser {
    /// The length of the part, in bytes.
    length: u64,
    stripes: u64,
    layout: StripeLayout,
    /// For each stripe, how many bytes of its share were taken.
    taken: Vec<AtomicU64>,
}

impl Dispenser {
    pub(crate) fn new(length: u64, stripes: usize, layout: StripeLayout) -> Self {
        // With a single stripe, all layouts are the same.
        let layout = match layout {
            StripeLayout::Blocked { block_bytes } if stripes > 1 => StripeLayout::Blocked {
                block_bytes: block_bytes.max(1),
            },
            _ => StripeLayout::Partitioned,
        };
        let taken = (0..stripes.max(1))
            .map(|_| AtomicU64::new(0))
            .collect::<Vec<_>>();
        Self {
            length,
            stripes: taken.len() as u64,
            layout,
            taken,
        }
    }

    /// The next piece of `stripe`, with the size that `portion` gives; `None` when all are taken.
    pub(crate) fn next(&self, stripe: usize, portion: &Portion) -> Option<Range<u64>> {
        let share = self.share(stripe as u64);
        let taken = &self.taken[stripe];
        let mut at = taken.load(Ordering::Relaxed);
        loop {
            let left = share.checked_sub(at).filter(|&left| left > 0)?;
            let bytes = portion.of(left).clamp(1, left).min(self.contiguous(at));
            match taken.compare_exchange_weak(at, at + bytes, Ordering::Relaxed, Ordering::Relaxed)
            {
                Ok(_) => {
                    let start = self.place(stripe as u64, at);
                    return Some(start..start + bytes);
                }
                // Another channel took a piece first.
                Err(now) => at = now,
            }
        }
    }

    /// The number of bytes of the part that belong to a stripe.
    fn share(&self, stripe: u64) -> u64 {
        match self.layout {
            // GFD.20 3.2, layout Partitioned: contiguous parts, one for each stripe.
            StripeLayout::Partitioned => {
                let part = self.length.div_ceil(self.stripes);
                let before = part.saturating_mul(stripe);
                self.length.saturating_sub(before).min(part)
            }
            // GFD.20 3.2, layout Blocked: block k of the file belongs to stripe k modulo the number of
            // stripes.
            StripeLayout::Blocked { block_bytes } => {
                let row = block_bytes.saturating_mul(self.stripes);
                let before = block_bytes.saturating_mul(stripe);
                let in_last_row = (self.length % row).saturating_sub(before).min(block_bytes);
                self.length / row * block_bytes + in_last_row
            }
        }
    }

    /// The offset in the part of the byte `at` of a stripe's share.
    fn place(&self, stripe: u64, at: u64) -> u64 {
        match self.layout {
            StripeLayout::Partitioned => self.length.div_ceil(self.stripes) * stripe + at,
            StripeLayout::Blocked { block_bytes } => {
                let block = at / block_bytes * self.stripes + stripe;
                block * block_bytes + at % block_bytes
            }
        }
    }

    /// A lower bound for the number of bytes of a stripe's share that are contiguous in the part from `at` on.
    fn contiguous(&self, at: u64) -> u64 {
        match self.layout {
            StripeLayout::Partitioned => u64::MAX,
            StripeLayout::Blocked { block_bytes } => block_bytes - at % block_bytes,
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use gridhaul_protocol::ranges::RangeSet;
    use proptest::prelude::*;

    use super::*;

    fn pieces(dispenser: &Dispenser, stripe: usize, portion: &Portion) -> Vec<Range<u64>> {
        std::iter::from_fn(|| dispenser.next(stripe, portion)).collect()
    }

    #[test]
    fn blocked_pieces_have_the_offsets_of_the_standard() {
        let layout = StripeLayout::Blocked {
            block_bytes: 1_048_576,
        };
        let dispenser = Dispenser::new(5_000_000, 2, layout);
        let starts = |stripe| {
            pieces(&dispenser, stripe, &Portion::fixed(4_000_000))
                .iter()
                .map(|p| p.start)
                .collect::<Vec<_>>()
        };
        assert_eq!(starts(0), [0, 2_097_152, 4_194_304]);
        assert_eq!(starts(1), [1_048_576, 3_145_728]);
    }

    #[test]
    fn partitioned_pieces_are_contiguous() {
        let dispenser = Dispenser::new(5_000_000, 2, StripeLayout::Partitioned);
        let portion = Portion::fixed(2_000_000);
        assert_eq!(dispenser.next(0, &portion), Some(0..2_000_000));
        assert_eq!(dispenser.next(1, &portion), Some(2_500_000..4_500_000));
        assert_eq!(dispenser.next(0, &portion), Some(2_000_000..2_500_000));
        assert_eq!(dispenser.next(0, &portion), None);
    }

    #[test]
    fn the_largest_file_does_not_overflow() {
        let length = i64::MAX as u64;
        for layout in [
            StripeLayout::Partitioned,
            StripeLayout::Blocked {
                block_bytes: u64::MAX / 2,
            },
            StripeLayout::Blocked {
                block_bytes: 1 << 62,
            },
        ] {
            let dispenser = Dispenser::new(length, 64, layout);
            let mut taken = 0;
            for stripe in 0..64 {
                while let Some(piece) = dispenser.next(stripe, &Portion::fixed(u64::MAX)) {
                    assert!(piece.end <= length);
                    taken += piece.end - piece.start;
                }
            }
            assert_eq!(taken, length);
        }
    }

    proptest! {
        #[test]
        fn every_byte_is_taken_once(
            length in 0_u64..5000,
            piece in 1_u64..700,
            channels in 1_usize..4,
            stripes in 1_usize..6,
            block in proptest::option::of(1_u64..900),
        ) {
            let layout = block.map_or(StripeLayout::Partitioned, |block_bytes| {
                StripeLayout::Blocked { block_bytes }
            });
            let dispenser = Dispenser::new(length, stripes, layout);
            let portion = Portion::new(piece, channels, channels * stripes);
            let mut taken = RangeSet::new();
            for stripe in 0..stripes {
                for range in pieces(&dispenser, stripe, &portion) {
                    prop_assert!(!range.is_empty());
                    prop_assert!(taken.insert_disjoint(range).is_ok());
                }
            }
            prop_assert_eq!(taken.missing_in(0..length).next(), None);
            prop_assert_eq!(taken.end(), length);
        }
    }
}

#[cfg(all(test, loom))]
mod loom_models {
    use loom::sync::Arc;
    use loom::thread;

    use super::*;

    #[test]
    fn two_workers_never_take_the_same_bytes() {
        loom::model(|| {
            let dispenser = Arc::new(Dispenser::new(30, 1, StripeLayout::Partitioned));
            let take = |dispenser: Arc<Dispenser>, bytes| {
                move || {
                    let portion = Portion::fixed(bytes);
                    std::iter::from_fn(|| dispenser.next(0, &portion)).collect::<Vec<_>>()
                }
            };
            let other = thread::spawn(take(dispenser.clone(), 10));
            let mut pieces = take(dispenser, 20)();
            pieces.extend(other.join().expect("no panic"));
            pieces.sort_by_key(|piece| piece.start);
            let ends = pieces.iter().map(|piece| piece.end);
            let starts = pieces.iter().map(|piece| piece.start).chain([30]);
            assert!([0].into_iter().chain(ends).eq(starts), "{pieces:?}");
        });
    }
}
