//! What a device takes on one queue pair.

/// Outstanding requests of one queue pair for a short ring, if the device supports so many.
pub(crate) const DEPTH: usize = 1024;

/// Requests of one queue pair that every device takes. Not all take as many as `max_qp_wr` together with their
/// segments (ibv_create_qp(3)).
pub(super) const LEAST_DEPTH: usize = 128;

/// READs of one queue pair that are requested and answered at a time; devices allow 16 or more.
pub(super) const MAX_READS: u8 = 16;

/// What a device takes on one queue pair, as far as more is of use.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct QueueLimits {
    /// Outstanding requests.
    pub(crate) requests: usize,
    /// Outstanding READs, requested and answered.
    pub(crate) reads: usize,
}

impl QueueLimits {
    /// No device is asked for more.
    pub(crate) const MOST: Self = Self {
        requests: DEPTH,
        reads: MAX_READS as usize,
    };

    /// Every device that can be used takes as many.
    pub(crate) const LEAST: Self = Self {
        requests: LEAST_DEPTH,
        reads: 1,
    };

    /// What a device takes that promises so many.
    pub(super) fn promised(requests: usize, reads: usize) -> Self {
        Self {
            requests: requests.clamp(Self::LEAST.requests, Self::MOST.requests),
            reads: reads.clamp(Self::LEAST.reads, Self::MOST.reads),
        }
    }

    /// The smaller of each.
    pub(crate) fn within(self, other: Self) -> Self {
        Self {
            requests: self.requests.min(other.requests),
            reads: self.reads.min(other.reads),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn promises_count_within_limits() {
        let limits = |requests, reads| {
            let limits = QueueLimits::promised(requests, reads);
            (limits.requests, limits.reads)
        };
        assert_eq!(limits(500, 8), (500, 8));
        assert_eq!(limits(0, 0), (128, 1));
        assert_eq!(limits(1 << 14, 200), (1024, 16));
        let both = QueueLimits::promised(500, 16).within(QueueLimits::promised(800, 4));
        assert_eq!(both, QueueLimits::promised(500, 4));
    }
}
