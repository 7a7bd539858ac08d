//! The adapter's own limiter of rates, which spaces the packets of a queue pair.
//!
//! Software paces messages, and an adapter sends the packets of one at the rate of its port. Where the adapter can limit the rate
//! of a queue pair, packets are spaced as well. On InfiniBand the address of a queue pair has a static rate, of which there are a
//! few values only.

use super::mtu;
use super::objects::RateRange;

/// Frame, headers and checksums of a RoCE v2 packet in bytes.
const HEADERS: u64 = 90;

/// The rates of `enum ibv_rate` that all versions of rdma-core have, in units of 100 Mb/s, and their numbers.
const STATIC_RATES: [(u64, u8); 17] = [
    (25, 2),
    (50, 5),
    (100, 3),
    (140, 11),
    (200, 6),
    (250, 15),
    (300, 4),
    (400, 7),
    (560, 12),
    (600, 8),
    (800, 9),
    (1000, 16),
    (1120, 13),
    (1200, 10),
    (1680, 14),
    (2000, 17),
    (3000, 18),
];

/// The limit in kilobits per second of a queue pair that sends so many bytes of payload per second in packets of this MTU, if
/// the device has such a limit. Devices count whole packets.
pub(super) fn kilobits(payload_rate: u64, mtu: u8, range: RateRange) -> Option<u32> {
    let packet = mtu::bytes(mtu);
    let bits = u128::from(payload_rate) * 8 * u128::from(packet + HEADERS) / u128::from(packet);
    let rate = u32::try_from(bits.div_ceil(1000)).ok()?;
    (range.least.max(1)..=range.most)
        .contains(&rate)
        .then_some(rate)
}

/// The lowest static rate of InfiniBand that is no less than so many bytes of payload per second; 0, which is none, above all.
pub(super) fn static_rate(payload_rate: u64) -> u8 {
    const UNIT: u64 = 100_000_000 / 8;
    let enough = |&&(rate, _): &&(u64, u8)| rate * UNIT >= payload_rate;
    STATIC_RATES
        .iter()
        .find(enough)
        .map_or(0, |&(_, number)| number)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_count_headers() {
        let any = RateRange {
            least: 1,
            most: u32::MAX,
        };
        // 5 Gb/s in packets of 4096 and of 256 bytes.
        assert_eq!(kilobits(625_000_000, 5, any), Some(5_109_864));
        assert_eq!(kilobits(625_000_000, 1, any), Some(6_757_813));
        let narrow = RateRange {
            least: 6_000_000,
            most: 6_500_000,
        };
        assert_eq!(kilobits(625_000_000, 5, narrow), None, "too low");
        assert_eq!(kilobits(625_000_000, 1, narrow), None, "too high");
        assert_eq!(kilobits(u64::MAX, 5, any), None);
        assert_eq!(kilobits(0, 5, any), None);
    }

    #[test]
    fn static_rates_are_rounded_up() {
        let rate = |gigabits: u64| static_rate(gigabits * 125_000_000);
        assert_eq!(
            [1, 5, 6, 10, 26, 100, 101, 300, 301].map(rate),
            [2, 5, 3, 3, 4, 16, 13, 18, 0]
        );
        assert!(STATIC_RATES.is_sorted());
    }
}
