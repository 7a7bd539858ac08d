//! The configured rate and burst.

use super::WAKE_UP;

/// How fast messages may be sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Rate {
    /// Not limited.
    Any,
    /// Limited to this rate in bytes per second.
    Fixed(u64),
    /// Limited to the rate that a search finds, at most the rate of the port in bytes per second if
    /// that is known.
    Auto { port: Option<u64> },
}

/// The bytes that may be sent together.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Burst {
    pub(crate) bytes: u64,
    /// A policer may drop what exceeds it.
    pub(crate) is_policers: bool,
}

impl Burst {
    /// The burst if none is configured: one and a half messages, which suit a policer, since with less each
    /// message would wait until the one before is certain not to have been sent late. At higher
    /// rates it is a message and what the rate allows while a thread wakes up late.
    pub(crate) fn usual(message_bytes: u64, rate: Rate) -> Self {
        let half = message_bytes / 2;
        let late = match rate {
            Rate::Fixed(rate) => bytes_in_wake_up(rate),
            Rate::Any | Rate::Auto { .. } => 0,
        };
        Self {
            bytes: message_bytes.saturating_add(half.max(late)),
            is_policers: late <= half,
        }
    }
}

/// A configured burst.
impl From<u64> for Burst {
    fn from(bytes: u64) -> Self {
        Self {
            bytes,
            is_policers: true,
        }
    }
}

/// What a rate in bytes per second allows while a thread wakes up late.
pub(super) fn bytes_in_wake_up(rate: u64) -> u64 {
    let bytes = (u128::from(rate) * WAKE_UP.as_nanos()).div_ceil(1_000_000_000);
    u64::try_from(bytes).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_high_rate_has_room_for_late_wake_ups() {
        let usual = |rate| Burst::usual(256 << 10, Rate::Fixed(rate));
        assert_eq!(usual(125_000_000), Burst::from(384 << 10));
        let fast = usual(12_500_000_000);
        assert_eq!(
            (fast.bytes, fast.is_policers),
            ((256 << 10) + 2_500_000, false)
        );
        assert_eq!(
            Burst::usual(u64::MAX, Rate::Fixed(u64::MAX)).bytes,
            u64::MAX
        );
    }
}
