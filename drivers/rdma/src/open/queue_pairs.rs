//! The number of queue pairs of a channel, where the options leave it open.

use std::num::NonZeroU64;
use std::time::Duration;

use super::capabilities::Capabilities;
use super::opening::Opening;
use super::ring_length::MOST_MESSAGE_BYTES;
use super::round_trip::round_trip;
use crate::handshake::{Method, Mode};
use crate::verbs::{Place, QueueLimits};

/// The most queue pairs unless more are asked for.
const MOST: u64 = 8;

/// The most over several rails: as many as the option `qps` allows.
const MOST_OVER_RAILS: u16 = 16;

impl Opening<'_> {
    /// The number of queue pairs that this end offers, or that it accepts with `method`, over so many rails.
    pub(super) fn queue_pairs(
        &self,
        capabilities: &Capabilities,
        (method, mode): (Option<Method>, Mode),
        ring_bytes: NonZeroU64,
        rails: usize,
    ) -> u16 {
        if let Some(asked) = self.settings.queue_pairs {
            return asked;
        }
        let has_several = method != Some(Method::Soft) && self.settings.provided.is_none();
        let place = capabilities.place.as_ref().filter(|_| has_several);
        let Some(port_rate) = place.and_then(Place::port_rate) else {
            return usual_over(rails, 1);
        };
        // Each rail carries its part of the ring.
        let part = NonZeroU64::new(ring_bytes.get() / rails.max(1) as u64);
        let of_rail = |limits: QueueLimits| {
            usual(
                port_rate,
                round_trip(&self.socket),
                part.unwrap_or(NonZeroU64::MIN),
                self.in_flight(mode, limits),
                self.options.channels,
            )
        };
        let [most, least] = [QueueLimits::MOST, QueueLimits::LEAST].map(of_rail);
        if most == least {
            // The devices need not be opened.
            return usual_over(rails, most);
        }
        let limits = capabilities.places(rails).iter();
        let limits = limits.map(|place| place.queue_limits().unwrap_or(QueueLimits::MOST));
        let limits = limits.fold(QueueLimits::MOST, QueueLimits::within);
        usual_over(rails, of_rail(limits))
    }

    /// The payload in bytes that may be in flight on a queue pair of a device with such limits.
    fn in_flight(&self, mode: Mode, limits: QueueLimits) -> u64 {
        match mode {
            Mode::Put => written_at_once(limits.requests, self.settings.message),
            // READs may be longer where the ring needs that.
            Mode::Get if self.settings.fits_message => {
                let message = self.settings.message.max(MOST_MESSAGE_BYTES);
                fetched_at_once(limits.reads, message)
            }
            Mode::Get => fetched_at_once(limits.reads, self.settings.message),
        }
    }
}

/// So many queue pairs on each rail, as far as a channel may have them.
fn usual_over(rails: usize, of_rail: u16) -> u16 {
    let rails = u16::try_from(rails).unwrap_or(1).max(1);
    of_rail.saturating_mul(rails).min(MOST_OVER_RAILS)
}

/// The payload in bytes that is in flight on a queue pair with so many requests for messages of this length. A quarter of
/// the requests may be announcements.
pub(crate) fn written_at_once(requests: usize, message: u64) -> u64 {
    requests as u64 * 3 / 4 * message
}

/// The same with so many READs. More queue pairs than these need are slower in simulation, because announcements wait for the
/// responses of READs.
pub(crate) fn fetched_at_once(reads: usize, message: u64) -> u64 {
    reads as u64 * message
}

/// The number of queue pairs of each of so many channels for a port of this rate, in bytes of payload per second, of which
/// each has up to `in_flight` bytes in flight. One is enough where the rate is not known: over TCP, for software devices, and
/// for providers of other crates.
///
/// An adapter processes the packets of one queue pair in sequence, in one of its engines, which may not
/// reach the rate of a fast port. And requests in flight on one queue pair are limited: on a long path
/// they do not fill the ring.
pub(crate) fn usual(
    port_rate: u64,
    round_trip: Duration,
    ring_bytes: NonZeroU64,
    in_flight: u64,
    channels: usize,
) -> u16 {
    const GIGABYTE: u64 = 1_000_000_000;
    let for_rate = match port_rate {
        // Below 50 Gb/s, of which 97.5 % are payload.
        0..6_000_000_000 => 1,
        // Up to 100 Gb/s.
        6_000_000_000..=12_500_000_000 => 2,
        _ => 4,
    };
    let product = u128::from(port_rate) * round_trip.as_nanos() / u128::from(GIGABYTE);
    // The channels of a transfer share the path.
    let product = u64::try_from(product).unwrap_or(u64::MAX) / channels.max(1) as u64;
    let for_distance = product.min(ring_bytes.get()).div_ceil(in_flight.max(1));
    u16::try_from(for_distance.clamp(for_rate, MOST)).unwrap_or(1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::verbs::DEPTH;

    const MESSAGE: u64 = 256 << 10;

    fn usual_of(gigabits: u64, milliseconds: u64, ring_bytes: u64) -> u16 {
        usual_with(
            (gigabits, milliseconds),
            ring_bytes,
            written_at_once(DEPTH, MESSAGE),
        )
    }

    fn usual_with((gigabits, milliseconds): (u64, u64), ring_bytes: u64, in_flight: u64) -> u16 {
        usual(
            gigabits * 125_000_000 / 1000 * 975,
            Duration::from_millis(milliseconds),
            NonZeroU64::new(ring_bytes).unwrap(),
            in_flight,
            1,
        )
    }

    #[test]
    fn fast_ports_and_long_paths_have_several() {
        let by_rate = [10, 40, 50, 56, 100, 200, 400].map(|rate| usual_of(rate, 0, 16 << 20));
        assert_eq!(by_rate, [1, 1, 2, 2, 2, 4, 4]);
        let far = [1, 10, 50, 100, 200].map(|time| usual_of(100, time, 4 << 30));
        assert_eq!(far, [2, 2, 4, 7, 8]);
        assert_eq!(usual_of(100, 100, 16 << 20), 2, "the ring is no longer");
        assert_eq!(usual_of(10, 100, 1 << 30), 1);
        let (far, in_flight) = (Duration::from_millis(200), written_at_once(DEPTH, MESSAGE));
        let of_four = usual(12_500_000_000, far, NonZeroU64::MAX, in_flight, 4);
        assert_eq!(of_four, 4, "channels share the path");
    }

    #[test]
    fn a_device_with_short_queues_has_more() {
        let with = |milliseconds, requests| {
            let in_flight = written_at_once(requests, MESSAGE);
            usual_with((10, milliseconds), 4 << 30, in_flight)
        };
        let at_100_ms = [DEPTH, 512, 256, 128].map(|requests| with(100, requests));
        assert_eq!(at_100_ms, [1, 2, 3, 5]);
        assert_eq!(with(1, 128), 1);
        assert_eq!(with(100, 0), 8, "whatever a device answers");
    }

    #[test]
    fn a_device_with_few_reads_has_more() {
        let with = |milliseconds, reads, message| {
            usual_with(
                (100, milliseconds),
                4 << 30,
                fetched_at_once(reads, message),
            )
        };
        assert_eq!(with(1, 16, MESSAGE), 3);
        assert_eq!(with(1, 16, 4 << 20), 2);
        assert_eq!(with(10, 16, 4 << 20), 2);
        assert_eq!([16, 8, 4].map(|reads| with(20, reads, 4 << 20)), [4, 8, 8]);
    }
}
