//! The length of rings and messages that no option sets: what the path needs.

use std::num::NonZeroU64;
use std::time::Duration;

use crate::handshake::{Mode, PathRecord};
use crate::memory::Lengths;
use crate::verbs::DEPTH;

/// Bandwidth-delay products in a ring. Credit comes back for a quarter of a ring at a time, so a ring
/// of less than 4/3 products leaves the path idle. The rest covers a round trip that grows, and a
/// storage that pauses for up to two thirds of one.
const PRODUCTS: u64 = 2;

/// A ring of this length fills any path whose rate is not known as well as earlier versions did.
const USUAL_BYTES: NonZeroU64 = NonZeroU64::new(16 << 20).expect("a constant that is not zero");

/// The longest ring: 400 Gb/s and 300 ms. The bound of all rings usually allows less.
const MOST_BYTES: u64 = 32 << 30;

/// No path on earth is longer. A peer that delays its answers must not get all memory.
const LONGEST_ROUND_TRIP: Duration = Duration::from_millis(500);

/// The longest round trip that counts on behalf of a client, which can delay its acknowledgements.
const LONGEST_OF_CLIENT: Duration = Duration::from_millis(200);

/// The longest ring of a client that no option sets: as long as clients may set one without a rule of
/// the administrator, 16 slabs of 64 MiB.
const MOST_OF_CLIENT: NonZeroU64 = NonZeroU64::new(1 << 30).expect("a constant that is not zero");

/// The rings of one channel of a client have this part of the bound on all rings.
const PART_OF_CLIENT: u64 = 8;

/// The fastest path that a ring over TCP is fitted to, in bytes per second: 100 Gb/s.
const FASTEST_PATH: u64 = 12_500_000_000;

/// The longest message that no option sets, in bytes.
pub(crate) const MOST_MESSAGE_BYTES: u64 = 4 << 20;

/// The least number of messages in a ring that is fitted to a short path. With fewer, the two ends
/// wait for each other more often; with more, it leaves the cache.
const LEAST_MESSAGES: u64 = 8;

/// The length in bytes that keeps a path of this rate, in bytes per second, busy.
pub(crate) fn needed_bytes(rate: u64, round_trip: Duration) -> u64 {
    PRODUCTS.saturating_mul(product(rate, round_trip))
}

/// The longest round trip at which a ring of this length keeps a path of this rate, in bytes per
/// second, busy.
fn longest_round_trip(rate: u64, ring_bytes: u64) -> Duration {
    let seconds = ring_bytes as f64 / PRODUCTS as f64 / rate.max(1) as f64;
    Duration::try_from_secs_f64(seconds).unwrap_or(Duration::MAX)
}

/// The length for a path that this many channels use together; 0 is one.
pub(crate) fn of_path(path: PathRecord, channels: usize) -> NonZeroU64 {
    let round_trip = path.round_trip.min(LONGEST_ROUND_TRIP);
    let needed = path
        .rate
        .map_or(0, |rate| needed_bytes(rate.get(), round_trip));
    let needed = needed / channels.max(1) as u64;
    NonZeroU64::new(needed.min(MOST_BYTES)).map_or(USUAL_BYTES, |needed| needed.max(USUAL_BYTES))
}

/// The part of a path that counts on behalf of a client.
pub(crate) fn trusted(path: PathRecord) -> PathRecord {
    PathRecord {
        round_trip: path.round_trip.min(LONGEST_OF_CLIENT),
        ..path
    }
}

/// The rings that a client may have without an option, where all rings may take `limit` bytes: the path that it
/// claims is not known to exist. Both together have an eighth of the bound, or the usual length.
pub(crate) fn of_client(rings: Lengths, limit: u64) -> Lengths {
    rings.up_to(MOST_OF_CLIENT).together(part_of_client(limit))
}

/// How long a ring may become.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct MostGrown {
    pub(crate) bytes: u64,
    /// The rate of the port is known, and a ring of that length is no longer than its path needs.
    pub(crate) knows_path: bool,
}

/// The longest ring to which a ring may grow, in bytes: the path of the port, if its rate is known, and on
/// behalf of a client its part of `limit`. Such a ring carries what it was made for, so that a client gets no
/// memory for a path that it only claims.
///
/// In `mode=get` a place of a ring is free again after two round trips.
pub(crate) fn most_grown(path: PathRecord, mode: Mode, limit: u64, is_client: bool) -> u64 {
    let products = match mode {
        Mode::Put => 1,
        Mode::Get => 2,
    };
    let of_port = match path.rate {
        Some(_) => of_path(path, 1)
            .get()
            .saturating_mul(products)
            .min(MOST_BYTES),
        None => MOST_BYTES,
    };
    match is_client {
        true => of_port.min(part_of_client(limit)),
        false => of_port,
    }
}

/// The longest round trip at which a port of this rate, in bytes per second, is kept busy by one channel of a
/// client without options, whose ring grows.
pub(crate) fn longest_round_trip_of_client(rate: u64, limit: u64) -> Duration {
    let path = PathRecord {
        rate: NonZeroU64::new(rate),
        round_trip: LONGEST_OF_CLIENT,
    };
    // A small bound has less than the usual length, because half is reserved for further channels and a quarter of
    // the rest for accepting ends.
    let ring_bytes = most_grown(path, Mode::Put, limit, true).min(limit / 8 * 3);
    longest_round_trip(rate, ring_bytes)
}

/// The bound of all rings, in bytes, with which that round trip is this one.
pub(crate) fn limit_for_client(rate: u64, round_trip: Duration) -> u64 {
    needed_bytes(rate, round_trip).saturating_mul(PART_OF_CLIENT)
}

fn part_of_client(limit: u64) -> u64 {
    (limit / PART_OF_CLIENT).max(2 * USUAL_BYTES.get())
}

/// The length over TCP for a path that is so short that less than the usual length fills it: a ring
/// that fits into a processor's cache is faster than a longer one. `None` for any other path.
pub(crate) fn of_short_path(round_trip: Duration, message_bytes: u64) -> Option<NonZeroU64> {
    if round_trip.is_zero() {
        return None;
    }
    // One part is being filled, one is in flight and one is being drained.
    let needed = product(FASTEST_PATH, round_trip).saturating_mul(3);
    let needed = NonZeroU64::new(needed.max(LEAST_MESSAGES * message_bytes));
    needed.filter(|needed| *needed < USUAL_BYTES)
}

/// Requests that should be outstanding on one queue pair, for this many pieces in a ring. Devices
/// bound the bytes of a queue; with 8192 requests of up to 256 bytes those of mlx5 suffice.
pub(crate) fn requests(pieces: usize) -> usize {
    (pieces + 1).clamp(DEPTH, 8192)
}

/// The length of messages where no option sets it: the usual one, or longer ones where this many
/// requests in flight would not cover the ring. Shorter messages disturb other traffic less.
pub(crate) fn message_for(usual: u64, ring_bytes: NonZeroU64, requests: usize) -> u64 {
    let each = ring_bytes.get().div_ceil(requests.max(1) as u64);
    each.next_power_of_two().min(MOST_MESSAGE_BYTES).max(usual)
}

/// The bandwidth-delay product in bytes.
fn product(rate: u64, round_trip: Duration) -> u64 {
    let product = u128::from(rate) * round_trip.as_nanos() / 1_000_000_000;
    u64::try_from(product).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    fn path(rate: u64, milliseconds: u64) -> PathRecord {
        PathRecord {
            rate: NonZeroU64::new(rate),
            round_trip: Duration::from_millis(milliseconds),
        }
    }

    fn ring(rate: u64, milliseconds: u64) -> u64 {
        of_path(path(rate, milliseconds), 1).get()
    }

    #[test]
    fn a_ring_has_two_bandwidth_delay_products() {
        assert_eq!(ring(12_500_000_000, 100), 2_500_000_000);
        assert_eq!(ring(1_250_000_000, 1), 16 * MIB, "at least");
        assert_eq!(ring(50_000_000_000, 200), 20_000_000_000);
        assert_eq!(ring(0, 100), 16 * MIB, "the rate is not known");
        assert_eq!(ring(12_500_000_000, 0), 16 * MIB, "nor the round trip");
        let longest = longest_round_trip(12_500_000_000, 2_500_000_000);
        assert_eq!(longest, Duration::from_millis(100));
        let of_four = of_path(path(12_500_000_000, 100), 4);
        assert_eq!(of_four.get(), 625_000_000);
        assert_eq!(of_path(path(12_500_000_000, 1), 4).get(), 16 * MIB);
    }

    #[test]
    fn a_peer_that_delays_its_answers_gets_no_longer_ring() {
        assert_eq!(ring(1_250_000_000, 500), ring(1_250_000_000, 60_000));
        assert_eq!(ring(u64::MAX, u64::MAX), MOST_BYTES);
    }

    #[test]
    fn a_ring_from_which_the_peer_reads_may_grow_to_twice_the_length() {
        let most = |mode, path| most_grown(path, mode, u64::MAX, false);
        assert_eq!(most(Mode::Put, path(12_500_000_000, 100)), 2_500_000_000);
        assert_eq!(most(Mode::Get, path(12_500_000_000, 100)), 5_000_000_000);
        assert_eq!(most(Mode::Get, path(u64::MAX, 100)), MOST_BYTES);
        let is_client = true;
        let of_client = most_grown(path(0, 100), Mode::Get, 1 << 40, is_client);
        assert_eq!(of_client, MOST_BYTES.min(1 << 37));
    }

    /// It claims any rate, delays its acknowledgements, and offers two long rings.
    #[test]
    fn a_client_gets_no_more_than_it_could_set() {
        const GIB: u64 = 1 << 30;
        let claimed = path(u64::MAX, 500);
        assert_eq!(trusted(claimed).round_trip, Duration::from_millis(200));
        let length = of_path(trusted(claimed), 1);
        let rings = |rings: Lengths, limit| {
            let Lengths { outgoing, incoming } = of_client(rings, limit);
            (outgoing.get(), incoming.get())
        };
        let both = Lengths::both(length);
        assert_eq!(rings(both, 64 * GIB), (GIB, GIB));
        assert_eq!(rings(both, 4 * GIB), (GIB / 4, GIB / 4), "an eighth");
        let one_way = Lengths {
            incoming: NonZeroU64::new(256 << 10).unwrap(),
            ..both
        };
        assert_eq!(
            rings(one_way, 4 * GIB),
            (GIB / 2 - (256 << 10), 256 << 10),
            "one way has more"
        );
        let least = rings(both, 0);
        assert_eq!(least, (16 * MIB, 16 * MIB), "the pool cuts these");
    }

    #[test]
    fn the_ring_of_a_client_grows_to_its_part_of_the_bound() {
        const MEGABYTE: u64 = 1_000_000;
        let longest = |rate, limit| longest_round_trip_of_client(rate, limit).as_millis();
        assert_eq!(longest(12_500_000_000, 20_000 * MEGABYTE), 100);
        assert_eq!(longest(12_500_000_000, 4_000 * MEGABYTE), 20);
        assert_eq!(
            longest(6_250_000_000, u64::MAX),
            200,
            "no longer one counts"
        );
        assert_eq!(longest(12_500_000_000, 0), 0);
        let hundred = Duration::from_millis(100);
        assert_eq!(limit_for_client(12_500_000_000, hundred), 20_000 * MEGABYTE);
    }

    #[test]
    fn a_ring_over_tcp_fits_a_short_path() {
        let short = |microseconds, message_bytes| {
            let short = of_short_path(Duration::from_micros(microseconds), message_bytes);
            short.map(NonZeroU64::get)
        };
        assert_eq!(short(20, MIB / 4), Some(2 * MIB));
        assert_eq!(short(100, MIB / 4), Some(3_750_000));
        assert_eq!(short(10_000, MIB / 4), None);
        assert_eq!(short(0, MIB / 4), None);
        assert_eq!(short(20, 4 * MIB), None);
    }

    #[test]
    fn messages_are_as_short_as_the_queues_of_a_device_allow() {
        let message = |ring, requests| {
            let ring = NonZeroU64::new(ring).unwrap();
            message_for(256 << 10, ring, requests)
        };
        assert_eq!(message(16 << 20, 1024), 256 << 10);
        assert_eq!(message(2_000_000_000, requests(7629)), 256 << 10);
        assert_eq!(message(2_500_000_000, 1024), 4 << 20);
        assert_eq!(message(20_000_000_000, requests(16_384)), 4 << 20);
        assert_eq!(message(20_000_000_000, 16), 4 << 20);
    }
}
