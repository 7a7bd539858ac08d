//! Divides a file among the workers that send it.
//!
//! All channels of a stripe take pieces from one atomic counter, so a slow channel takes less, and there is no
//! lock. Pieces are computed, not stored, so the memory does not depend on the size of the file.

use std::ops::Range;
use std::sync::atomic::Ordering;

use super::layout::Layout;
use super::portion::Portion;
use crate::node::Plan;
use crate::sync::AtomicU64;

/// The pieces of a part of a file, by the stripes of this node. Offsets count from the start of the part.
#[derive(Debug)]
pub(crate) struct Dispenser {
    layout: Layout,
    stripes: Vec<Stripe>,
}

/// A stripe of this node.
#[derive(Debug)]
struct Stripe {
    /// Its index among the stripes of the whole transfer, by which the layout gives it bytes.
    index: u64,
    /// How many bytes of its share were taken.
    taken: AtomicU64,
}

impl Dispenser {
    /// For the stripes of a node, which has this many, by its plan.
    pub(crate) fn of_plan(plan: &Plan, length: u64, stripes: usize) -> Self {
        match &plan.share {
            None => Self::new(Layout::new(length, stripes, plan.layout), 0..stripes),
            Some(share) => {
                let layout = Layout::new(length, share.total, plan.layout);
                Self::new(layout, share.stripes.iter().copied())
            }
        }
    }

    /// For a node that serves the stripes with these indices in the whole transfer.
    fn new(layout: Layout, stripes: impl IntoIterator<Item = usize>) -> Self {
        let stripe = |index| Stripe {
            index: index as u64,
            taken: AtomicU64::new(0),
        };
        Self {
            layout,
            stripes: stripes.into_iter().map(stripe).collect(),
        }
    }

    /// The next piece of the node's stripe `stripe`, with the size that `portion` gives; `None` when all are taken.
    pub(crate) fn next(&self, stripe: usize, portion: &Portion) -> Option<Range<u64>> {
        let Stripe { index, taken } = &self.stripes[stripe];
        let share = self.layout.share(*index);
        let mut at = taken.load(Ordering::Relaxed);
        loop {
            let left = share.checked_sub(at).filter(|&left| left > 0)?;
            let bytes = portion.of(left).clamp(1, left);
            let bytes = bytes.min(self.layout.contiguous(at));
            match taken.compare_exchange_weak(at, at + bytes, Ordering::Relaxed, Ordering::Relaxed)
            {
                Ok(_) => {
                    let start = self.layout.place(*index, at);
                    return Some(start..start + bytes);
                }
                // Another channel took a piece first.
                Err(now) => at = now,
            }
        }
    }

    /// How many bytes of `ranges`, which are in the part, belong to the stripes of this node.
    pub(crate) fn bytes_of(&self, ranges: impl Iterator<Item = Range<u64>>) -> u64 {
        let of_stripe = |stripe: &Stripe, range: &Range<u64>| {
            let before = |end| self.layout.share_before(stripe.index, end);
            before(range.end) - before(range.start)
        };
        let of_range = |range: Range<u64>| -> u64 {
            let stripes = self.stripes.iter();
            stripes.map(|stripe| of_stripe(stripe, &range)).sum()
        };
        ranges.map(of_range).sum()
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use gridhaul_protocol::command::StripeLayout;
    use gridhaul_protocol::ranges::RangeSet;
    use proptest::prelude::*;

    use super::*;

    /// A dispenser for all stripes.
    fn whole(length: u64, stripes: usize, layout: StripeLayout) -> Dispenser {
        Dispenser::new(Layout::new(length, stripes, layout), 0..stripes)
    }

    fn pieces(dispenser: &Dispenser, stripe: usize, portion: &Portion) -> Vec<Range<u64>> {
        std::iter::from_fn(|| dispenser.next(stripe, portion)).collect()
    }

    #[test]
    fn blocked_pieces_have_the_offsets_of_the_standard() {
        let layout = StripeLayout::Blocked {
            block_bytes: 1_048_576,
        };
        let dispenser = whole(5_000_000, 2, layout);
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
        let dispenser = whole(5_000_000, 2, StripeLayout::Partitioned);
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
            let dispenser = whole(length, 64, layout);
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
            let dispenser = whole(length, stripes, layout);
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

        /// However the stripes are divided among nodes, in any order.
        #[test]
        fn all_nodes_together_take_every_byte_once(
            length in 0_u64..5000,
            piece in 1_u64..700,
            nodes in proptest::collection::vec(0_usize..4, 1..9),
            block in proptest::option::of(1_u64..900),
            backwards in any::<bool>(),
            present in proptest::collection::vec((0_u64..5000, 0_u64..500), 0..5),
        ) {
            let layout = block.map_or(StripeLayout::Partitioned, |block_bytes| {
                StripeLayout::Blocked { block_bytes }
            });
            let layout = Layout::new(length, nodes.len(), layout);
            let present: RangeSet = present
                .into_iter()
                .map(|(start, bytes)| start..start + bytes)
                .collect();
            let portion = Portion::new(piece, 2, nodes.len());
            let mut taken = RangeSet::new();
            let mut expected = 0;
            for node in 0..4 {
                let mut stripes: Vec<usize> =
                    (0..nodes.len()).filter(|&stripe| nodes[stripe] == node).collect();
                if backwards {
                    stripes.reverse();
                }
                let dispenser = Dispenser::new(layout, stripes.iter().copied());
                let before = taken.clone();
                for local in 0..stripes.len() {
                    for range in pieces(&dispenser, local, &portion) {
                        prop_assert!(taken.insert_disjoint(range).is_ok());
                    }
                }
                let missing = |taken: &RangeSet| -> u64 {
                    let ranges = taken.iter().flat_map(|range| present.missing_in(range));
                    ranges.map(|range| range.end - range.start).sum()
                };
                let announced = dispenser.bytes_of(present.missing_in(0..length));
                prop_assert_eq!(announced, missing(&taken) - missing(&before));
                expected += announced;
            }
            prop_assert_eq!(taken.missing_in(0..length).next(), None);
            prop_assert_eq!(taken.end(), length);
            let all: u64 = present.missing_in(0..length).map(|range| range.end - range.start).sum();
            prop_assert_eq!(expected, all);
        }
    }
}

#[cfg(all(test, loom))]
mod loom_models {
    use gridhaul_protocol::command::StripeLayout;
    use loom::sync::Arc;
    use loom::thread;

    use super::*;

    #[test]
    fn two_workers_never_take_the_same_bytes() {
        loom::model(|| {
            let layout = Layout::new(30, 1, StripeLayout::Partitioned);
            let dispenser = Arc::new(Dispenser::new(layout, [0]));
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
