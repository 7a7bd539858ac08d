//! Cuts a range into requests.

use gridhaul_direct::Way;

/// Cuts a range of a file into requests.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Cutter {
    /// The unit of direct I/O in bytes; `None` for the page cache alone.
    pub(crate) block: Option<u64>,
    /// The longest request in bytes, in whole blocks.
    pub(crate) request_bytes: u64,
}

/// Which requests are due.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Haste {
    /// Of full length: the disk is busy, and more memory will follow.
    Full,
    /// Of whole blocks: the disk is idle.
    Blocks,
    /// All: no more memory follows, or the bytes have waited for long.
    All,
}

/// A request without its place: the way, and the number of bytes.
pub(crate) type Cut = (Way, u64);

impl Cutter {
    /// The next request, for the byte `offset` of the file at `place` of the ring and `there` contiguous bytes from there on.
    /// `None` if none is due.
    pub(crate) fn cut(&self, offset: u64, place: u64, there: u64, haste: Haste) -> Option<Cut> {
        let longest = there.min(self.request_bytes);
        let is_due = |length| length == self.request_bytes || haste >= Haste::Blocks;
        let Some(block) = self.block_at(offset, place) else {
            return (there > 0 && is_due(longest)).then_some((Way::Cached, longest));
        };
        let within = offset % block;
        if within == 0 && there >= block {
            let length = longest - longest % block;
            return is_due(length).then_some((Way::Direct, length));
        }
        // The start of a block, which waits for the rest, or the rest of one, after which direct requests can follow.
        let length = there.min(block - within);
        let is_rest = within + length == block;
        let is_due = is_rest || haste == Haste::All;
        (there > 0 && is_due).then_some((Way::Cached, length))
    }

    /// The block, if requests for this byte at this place can be direct ones.
    fn block_at(&self, offset: u64, place: u64) -> Option<u64> {
        self.block.filter(|block| offset % block == place % block)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const BLOCK: u64 = 16;
    const CUTTER: Cutter = Cutter {
        block: Some(BLOCK),
        request_bytes: 4 * BLOCK,
    };

    #[test]
    fn whole_blocks_go_past_the_page_cache_and_partial_ones_through_it() {
        use Haste::{All, Blocks, Full};
        use Way::{Cached, Direct};
        for (offset, there, haste, expected) in [
            (0, 64, Full, Some((Direct, 64))),
            (0, 1000, Full, Some((Direct, 64))),
            (0, 63, Full, None),
            (0, 63, Blocks, Some((Direct, 48))),
            (0, 15, Blocks, None),
            (0, 15, All, Some((Cached, 15))),
            (0, 0, All, None),
            // The rest of a block is short, and does not wait.
            (5, 100, Full, Some((Cached, 11))),
            (5, 10, Blocks, None),
            (5, 10, All, Some((Cached, 10))),
        ] {
            let cut = CUTTER.cut(offset, 32 + offset, there, haste);
            assert_eq!(cut, expected, "{offset} {there} {haste:?}");
        }
        // Where the ring is not congruent to the file, or without direct I/O.
        let cached = Cutter {
            block: None,
            ..CUTTER
        };
        for (cutter, place) in [(CUTTER, 1), (cached, 0)] {
            assert_eq!(cutter.cut(0, place, 63, Full), None);
            assert_eq!(cutter.cut(0, place, 63, Blocks), Some((Cached, 63)));
            assert_eq!(cutter.cut(0, place, 100, Full), Some((Cached, 64)));
            assert_eq!(cutter.cut(0, place, 0, All), None);
        }
    }

    proptest! {
        /// Requests are never longer than what is there, direct ones are whole blocks, and hurry always makes progress.
        #[test]
        fn every_range_is_cut(offset in 0_u64..100, place in 0_u64..100, there in 0_u64..200, is_direct: bool) {
            let cutter = Cutter { block: is_direct.then_some(BLOCK), ..CUTTER };
            let cuts = [Haste::Full, Haste::Blocks, Haste::All].map(|haste| cutter.cut(offset, place, there, haste));
            for (way, length) in cuts.into_iter().flatten() {
                prop_assert!(0 < length && length <= there.min(cutter.request_bytes));
                if way == Way::Direct {
                    prop_assert!([offset, place, length].iter().all(|number| number.is_multiple_of(BLOCK)));
                }
            }
            prop_assert_eq!(cuts[2].is_some(), there > 0);
            // What is due without haste is due with it, as it is.
            for (less, more) in [(0, 1), (1, 2)] {
                prop_assert!(cuts[less].is_none() || cuts[less] == cuts[more]);
            }
        }
    }
}
