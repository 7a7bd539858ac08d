//! Which bytes of a file belong to which stripe (GFD.20 3.2).

use gridhaul_protocol::command::StripeLayout;

/// The division of a part of a file among the stripes of a transfer. Offsets count from the start of the part.
#[derive(Debug, Clone, Copy)]
pub(super) struct Layout {
    /// The length of the part, in bytes.
    length: u64,
    /// The stripes of the whole transfer, at least 1.
    stripes: u64,
    layout: StripeLayout,
}

impl Layout {
    pub(super) fn new(length: u64, stripes: usize, layout: StripeLayout) -> Self {
        // With a single stripe, all layouts are the same.
        let layout = match layout {
            StripeLayout::Blocked { block_bytes } if stripes > 1 => StripeLayout::Blocked {
                block_bytes: block_bytes.max(1),
            },
            _ => StripeLayout::Partitioned,
        };
        Self {
            length,
            stripes: stripes.max(1) as u64,
            layout,
        }
    }

    /// The number of bytes of the part that belong to a stripe.
    pub(super) fn share(&self, stripe: u64) -> u64 {
        self.share_before(stripe, self.length)
    }

    /// The number of bytes before `end`, which is in the part, that belong to a stripe.
    pub(super) fn share_before(&self, stripe: u64, end: u64) -> u64 {
        match self.layout {
            // Layout Partitioned: contiguous parts, one for each stripe.
            StripeLayout::Partitioned => {
                let part = self.length.div_ceil(self.stripes);
                let before = part.saturating_mul(stripe);
                end.saturating_sub(before).min(part)
            }
            // Layout Blocked: block k of the file belongs to stripe k modulo the number of stripes.
            StripeLayout::Blocked { block_bytes } => {
                let row = block_bytes.saturating_mul(self.stripes);
                let before = block_bytes.saturating_mul(stripe);
                let in_last_row = (end % row).saturating_sub(before).min(block_bytes);
                end / row * block_bytes + in_last_row
            }
        }
    }

    /// The offset in the part of the byte `at` of a stripe's share.
    pub(super) fn place(&self, stripe: u64, at: u64) -> u64 {
        match self.layout {
            StripeLayout::Partitioned => self.length.div_ceil(self.stripes) * stripe + at,
            StripeLayout::Blocked { block_bytes } => {
                let block = at / block_bytes * self.stripes + stripe;
                block * block_bytes + at % block_bytes
            }
        }
    }

    /// A lower bound for the number of bytes of a stripe's share that are contiguous in the part from `at` on.
    pub(super) fn contiguous(&self, at: u64) -> u64 {
        match self.layout {
            StripeLayout::Partitioned => u64::MAX,
            StripeLayout::Blocked { block_bytes } => block_bytes - at % block_bytes,
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn blocks_go_to_the_stripes_in_turn() {
        let layout = Layout::new(1050, 3, StripeLayout::Blocked { block_bytes: 100 });
        assert_eq!(
            [0, 1, 2].map(|stripe| layout.share(stripe)),
            [400, 350, 300]
        );
        assert_eq!(layout.place(1, 0), 100);
        assert_eq!(layout.place(1, 130), 430);
        assert_eq!(layout.contiguous(130), 70);
    }

    #[test]
    fn parts_are_contiguous() {
        let layout = Layout::new(1000, 3, StripeLayout::Partitioned);
        assert_eq!(
            [0, 1, 2].map(|stripe| layout.share(stripe)),
            [334, 334, 332]
        );
        assert_eq!(layout.place(2, 5), 673);
    }

    proptest! {
        #[test]
        fn the_share_before_an_offset_is_what_lies_there(
            length in 1_u64..2000,
            stripes in 1_usize..6,
            block in proptest::option::of(1_u64..900),
            end in 0_u64..2000,
        ) {
            let end = end.min(length);
            let layout = block.map_or(StripeLayout::Partitioned, |block_bytes| {
                StripeLayout::Blocked { block_bytes }
            });
            let layout = Layout::new(length, stripes, layout);
            let mut all = 0;
            for stripe in 0..stripes as u64 {
                let before = (0..layout.share(stripe)).filter(|&at| layout.place(stripe, at) < end);
                let before = before.count() as u64;
                prop_assert_eq!(layout.share_before(stripe, end), before);
                all += before;
            }
            prop_assert_eq!(all, end);
        }
    }
}
