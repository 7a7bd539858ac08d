//! The number of queue pairs of a channel, where the options leave it open.

use std::num::NonZeroU64;
use std::time::Duration;

use super::capabilities::Capabilities;
use super::opening::Opening;
use super::round_trip::round_trip;
use crate::handshake::Method;
use crate::verbs::{DEPTH, Place};

/// The most queue pairs unless more are asked for.
const MOST: u64 = 8;

/// The most over several rails: as many as the option `qps` allows.
const MOST_OVER_RAILS: u16 = 16;

impl Opening<'_> {
    /// The number of queue pairs that this end offers, or that it accepts with `method`, over so many rails.
    pub(super) fn queue_pairs(
        &self,
        capabilities: &Capabilities,
        method: Option<Method>,
        ring_bytes: NonZeroU64,
        rails: usize,
    ) -> u16 {
        let has_several = method != Some(Method::Soft) && self.settings.provided.is_none();
        let place = capabilities.place.as_ref().filter(|_| has_several);
        let port_rate = place.and_then(Place::port_rate);
        self.settings.queue_pairs.unwrap_or_else(|| {
            let rails = u16::try_from(rails).unwrap_or(1).max(1);
            // Each rail carries its part of the ring.
            let part = NonZeroU64::new(ring_bytes.get() / u64::from(rails));
            let of_rail = usual(
                port_rate,
                round_trip(&self.socket),
                part.unwrap_or(NonZeroU64::MIN),
                self.settings.message,
                self.options.channels,
            );
            of_rail.saturating_mul(rails).min(MOST_OVER_RAILS)
        })
    }
}

/// The number of queue pairs of each of so many channels for a port of this rate, in bytes of payload per second. It is `None` where one
/// is enough: over TCP, for software devices, and for providers of other crates.
///
/// An adapter processes the packets of one queue pair in sequence, in one of its engines, which may not
/// reach the rate of a fast port. And requests in flight on one queue pair are limited: on a long path
/// they do not fill the ring.
pub(crate) fn usual(
    port_rate: Option<u64>,
    round_trip: Duration,
    ring_bytes: NonZeroU64,
    message: u64,
    channels: usize,
) -> u16 {
    const GIGABYTE: u64 = 1_000_000_000;
    let Some(rate) = port_rate else {
        return 1;
    };
    let for_rate = match rate {
        // Below 50 Gb/s, of which 97.5 % are payload.
        0..6_000_000_000 => 1,
        // Up to 100 Gb/s.
        6_000_000_000..=12_500_000_000 => 2,
        _ => 4,
    };
    let in_flight = u128::from(rate) * round_trip.as_nanos() / u128::from(GIGABYTE);
    // The channels of a transfer share the path.
    let in_flight = u64::try_from(in_flight).unwrap_or(u64::MAX) / channels.max(1) as u64;
    // A quarter of the requests may be announcements.
    let of_each = DEPTH as u64 * 3 / 4 * message.max(1);
    let for_distance = in_flight.min(ring_bytes.get()).div_ceil(of_each);
    u16::try_from(for_distance.clamp(for_rate, MOST)).unwrap_or(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn usual_over(gigabits: u64, milliseconds: u64, ring_bytes: u64) -> u16 {
        let rate = Some(gigabits * 125_000_000 / 1000 * 975);
        let round_trip = Duration::from_millis(milliseconds);
        usual(
            rate,
            round_trip,
            NonZeroU64::new(ring_bytes).unwrap(),
            256 << 10,
            1,
        )
    }

    #[test]
    fn fast_ports_and_long_paths_have_several() {
        let by_rate = [10, 40, 50, 56, 100, 200, 400].map(|rate| usual_over(rate, 0, 16 << 20));
        assert_eq!(by_rate, [1, 1, 2, 2, 2, 4, 4]);
        let far = [1, 10, 50, 100, 200].map(|time| usual_over(100, time, 4 << 30));
        assert_eq!(far, [2, 2, 4, 7, 8]);
        assert_eq!(usual_over(100, 100, 16 << 20), 2, "the ring is no longer");
        assert_eq!(usual_over(10, 100, 1 << 30), 1);
        assert_eq!(usual(None, Duration::MAX, NonZeroU64::MAX, 1, 1), 1);
        let far = Duration::from_millis(200);
        let of_four = usual(Some(12_500_000_000), far, NonZeroU64::MAX, 256 << 10, 4);
        assert_eq!(of_four, 4, "channels share the path");
    }
}
