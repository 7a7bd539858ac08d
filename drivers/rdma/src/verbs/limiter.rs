//! The adapter's own limiter of rates, which spaces the packets of a queue pair.
//!
//! Software paces messages, and an adapter sends the packets of one at the rate of its port. Where the adapter can limit the rate
//! of a queue pair, packets are spaced as well. On InfiniBand the address of a queue pair has a static rate, of which there are a
//! few values only. Neither may be lower than the wanted rate, which the software keeps.

use super::mtu;
use super::objects::RateRange;

/// Frame, headers and checksums of a RoCE v2 packet in bytes.
const HEADERS: u64 = 90;

/// Static rates: the data that each carries in Mb/s, and its number in `enum ibv_rate`, of those that all versions of rdma-core
/// have. The names of the numbers are signalling rates (`ibv_rate_to_mbps`): up to 10 Gb/s for a lane, 10 bits carry 8 (FDR and
/// later: 66 carry 64). `IBV_RATE_30_GBPS`, `60` and `120` carry less than the next lower names of faster lanes, and are left out.
const STATIC_RATES: [(u64, u8); 14] = [
    (2_000, 2),
    (4_000, 5),
    (8_000, 3),
    (13_636, 11),
    (16_000, 6),
    (25_000, 15),
    (32_000, 7),
    (54_545, 12),
    (64_000, 9),
    (100_000, 16),
    (109_090, 13),
    (163_636, 14),
    (200_000, 17),
    (300_000, 18),
];

/// A device may wait for the time of whole packets between two of them: then it sends at a half, a third and so on of the port's
/// rate, and at more than half of a static rate (`ib_rate_to_memfree` in the kernel's mthca_av.c).
const STATIC_HEADROOM: u64 = 2;

/// What a queue pair sends with headers, in bits per second, if it sends so many bytes of payload per second.
fn bits_with_headers(payload_rate: u64, mtu: u8) -> u128 {
    let packet = mtu::bytes(mtu);
    (u128::from(payload_rate) * 8 * u128::from(packet + HEADERS)).div_ceil(packet.into())
}

/// The limit in kilobits per second of a queue pair that sends so many bytes of payload per second in packets of this MTU, if
/// the device has such a limit. Devices count whole packets.
pub(super) fn kilobits(payload_rate: u64, mtu: u8, range: RateRange) -> Option<u32> {
    let bits = bits_with_headers(payload_rate, mtu);
    let rate = u32::try_from(bits.div_ceil(1000)).ok()?;
    (range.least.max(1)..=range.most)
        .contains(&rate)
        .then_some(rate)
}

/// The lowest static rate of InfiniBand at which no device sends fewer bytes of payload per second than these, in packets of this
/// MTU; 0, which is none, above all.
pub(super) fn static_rate(payload_rate: u64, mtu: u8) -> u8 {
    const MEGABIT: u128 = 1_000_000;
    let needed = bits_with_headers(payload_rate, mtu) * u128::from(STATIC_HEADROOM);
    STATIC_RATES
        .iter()
        .find(|(data, _)| u128::from(*data) * MEGABIT >= needed)
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
    fn static_rates_leave_room() {
        let rate = |megabits: u64| static_rate(megabits * 125_000, 5);
        // With headers and twice: 2.04, 8.17, 10.2, 54.5, 54.6, 102, 299.6 and 300.5 Gb/s.
        assert_eq!(
            [
                1_000, 4_000, 5_000, 26_680, 26_700, 50_000, 146_600, 147_000
            ]
            .map(rate),
            [5, 11, 11, 12, 9, 13, 18, 0]
        );
        // Short packets have more headers for each byte.
        assert_eq!(static_rate(500_000_000, 1), 11);
        assert_eq!(static_rate(800_000_000, 1), 15);
        assert_eq!(static_rate(u64::MAX, 1), 0);
    }

    /// Also one that divides the rate of its port, 1 to 400 Gb/s, by a whole number.
    #[test]
    fn no_device_sends_slower_than_wanted() {
        assert!(STATIC_RATES.is_sorted());
        for wanted in (100..200_000).step_by(37) {
            let number = static_rate(wanted * 125_000, 3);
            let named = STATIC_RATES.iter().find(|(_, other)| *other == number);
            let Some((data, _)) = named else { continue };
            for port in (1_000..400_000_u64).step_by(1_009) {
                let sends = port / port.div_ceil(*data);
                assert!(sends >= wanted.min(port), "{wanted} as {data} of {port}");
            }
        }
    }
}
