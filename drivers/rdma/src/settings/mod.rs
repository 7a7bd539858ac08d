//! The driver's options.

mod options;
mod values;

use std::num::NonZeroU64;
use std::sync::Arc;
use std::time::Duration;

use gridhaul_stack::options::Options;
use gridhaul_stack::{Party, StackError};

pub(crate) use self::options::OPTIONS;
use self::values::MAX_RING_BYTES;
pub(crate) use self::values::Provider;
use crate::handshake::{Mode, Offer, USUAL_INLINE_BYTES};
use crate::pacing::{Burst, Rate};
use crate::provider;
use crate::verbs::DeviceOptions;

/// The options of this driver, and those of TCP sockets.
#[derive(Debug, Clone)]
pub(crate) struct Settings {
    pub(crate) tcp: gridhaul_tcp::Settings,
    /// The length of each direction's ring in bytes.
    pub(crate) ring_bytes: NonZeroU64,
    /// The length is the default; on a short path the ring may be shorter.
    fits_ring_to_path: bool,
    /// The largest WRITE in bytes.
    pub(crate) message: u64,
    /// `None`: by port and path.
    pub(crate) queue_pairs: Option<u16>,
    pub(crate) rate: Rate,
    pub(crate) burst: Burst,
    pub(crate) checksum: bool,
    pub(crate) stall: Duration,
    /// `None` for as many as ring and device take.
    pub(crate) depth: Option<usize>,
    pub(crate) mode: Mode,
    /// WRITEs may announce pieces by immediate data.
    pub(crate) immediate: bool,
    /// The longest piece that may travel inside a message.
    pub(crate) inline_bytes: u16,
    /// Files are pinned and sent from the page cache.
    pub(crate) pins_files: bool,
    pub(crate) provider: Provider,
    /// A provider that replaces the choice of the options.
    pub(crate) provided: Option<Arc<dyn provider::Provider>>,
    /// The client that the rings count for.
    pub(crate) party: Option<Party>,
    pub(crate) device_options: DeviceOptions,
}

const SLAB_BYTES: u64 = 4 << 20;
const SLABS: u64 = 4;
const MESSAGE_BYTES: u64 = 256 << 10;
const STALL: Duration = Duration::from_secs(3);

/// The fastest path that a ring is fitted to, in bytes per second: 100 Gb/s.
const FASTEST_PATH: u64 = 12_500_000_000;

/// The least number of messages in a ring that is fitted to its path. With fewer, the two ends wait
/// for each other more often; with more, it leaves the cache.
const LEAST_MESSAGES: u64 = 8;

/// Pieces that may be in flight in each direction: enough to fill a ring with the blocks of a
/// sender that flushes each, and some for each queue pair. They also bound the memory of the
/// receiver.
fn pieces(ring_bytes: u64) -> u16 {
    const USUAL_BYTES: u64 = 256 << 10;
    let pieces = (ring_bytes / USUAL_BYTES).clamp(64, MAX_RING_BYTES / USUAL_BYTES);
    u16::try_from(pieces).unwrap_or(u16::MAX)
}

impl Settings {
    pub(crate) fn parse(options: &Options<'_>) -> Result<Self, StackError> {
        let asked_slabs = options.value("slabs", values::between(3, 256))?;
        let slabs = asked_slabs.unwrap_or(SLABS);
        let asked_slab = options.value("slab", |text| values::slab(text, slabs))?;
        let slab =
            asked_slab.unwrap_or(NonZeroU64::new(SLAB_BYTES).expect("a constant that is not zero"));
        let message = options.value("message", |text| values::message(text, slab.get()))?;
        let message = message.unwrap_or_else(|| MESSAGE_BYTES.min(slab.get()));
        let queue_pairs = options.value("qps", values::between(1, 16))?;
        let pins_files = options
            .value("register", values::register)?
            .unwrap_or(false);
        let small = |name, most| {
            let number = options.value(name, values::between(0, most))?;
            Ok(number.and_then(|number| u8::try_from(number).ok()))
        };
        let rate = options.value("rate", values::rate)?.unwrap_or(Rate::Any);
        let tcp = match rate {
            Rate::Auto { .. } => gridhaul_tcp::Settings::parse(&options.without("rate"))?,
            Rate::Any | Rate::Fixed(_) => gridhaul_tcp::Settings::parse(options)?,
        };
        Ok(Self {
            tcp,
            ring_bytes: NonZeroU64::new(slab.get() * slabs).expect("at least one slab"),
            // Pinned sections have half of the ring's memory.
            fits_ring_to_path: asked_slab.is_none() && asked_slabs.is_none() && !pins_files,
            message,
            queue_pairs: queue_pairs.and_then(|count| u16::try_from(count).ok()),
            rate,
            burst: options
                .value("burst", gridhaul_stack::options::bytes)?
                .map_or_else(|| Burst::usual(message, rate), Burst::from),
            depth: options.value("depth", values::depth)?.flatten(),
            mode: options.value("mode", values::mode)?.unwrap_or(Mode::Put),
            inline_bytes: options
                .value("inline", values::inline)?
                .unwrap_or(USUAL_INLINE_BYTES),
            immediate: options
                .value("immediate", gridhaul_stack::options::switch)?
                .unwrap_or(true),
            stall: options.value("stall", values::stall)?.unwrap_or(STALL),
            checksum: options
                .value("crc", gridhaul_stack::options::switch)?
                .unwrap_or(false),
            provider: options
                .value("provider", values::provider)?
                .unwrap_or(Provider::Auto),
            provided: None,
            party: None,
            device_options: DeviceOptions {
                device: options.value("device", values::device)?,
                gid: small("gid", 255)?,
                traffic_class: small("tc", 255)?.unwrap_or(0),
                service_level: small("sl", 15)?,
                partition: options.value("pkey", values::partition)?,
                mtu: options.value("mtu", values::mtu)?,
            },
            pins_files,
        })
    }

    /// The length of a ring over TCP on a path with this round trip time; zero if it is unknown. A
    /// ring that fits into a processor's cache is faster than a longer one, so by default it is no
    /// longer than the path can fill.
    pub(crate) fn ring_bytes_over_tcp(&self, round_trip: Duration) -> NonZeroU64 {
        if !self.fits_ring_to_path || round_trip.is_zero() {
            return self.ring_bytes;
        }
        let product = u128::from(FASTEST_PATH) * round_trip.as_nanos() / 1_000_000_000;
        // One part is being filled, one is in flight and one is being drained.
        let wanted = u64::try_from(3 * product).unwrap_or(u64::MAX);
        let wanted = NonZeroU64::new(wanted.max(LEAST_MESSAGES * self.message));
        wanted.map_or(self.ring_bytes, |wanted| wanted.min(self.ring_bytes))
    }

    /// The offer to the other end, which also limits the other end's offer, with rings of this
    /// length and so many queue pairs.
    pub(crate) fn offer(&self, ring_bytes: NonZeroU64, queue_pairs: u16) -> Offer {
        Offer {
            ring_bytes,
            queue_pairs,
            pieces: pieces(ring_bytes.get()),
            mode: self.mode,
            immediate: self.immediate,
            inline_bytes: self.inline_bytes,
        }
    }
}

#[cfg(test)]
mod tests {
    use gridhaul_stack::Driver as _;

    use super::*;
    use crate::Rdma;

    fn settings(options: &[(&str, &str)]) -> Settings {
        let options: Vec<_> = options
            .iter()
            .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
            .collect();
        Settings::parse(&Rdma.read_options(&options).unwrap()).unwrap()
    }

    #[test]
    fn a_ring_fits_its_path_unless_it_was_asked_for() {
        let over_tcp = |options: &[_], microseconds| {
            let round_trip = Duration::from_micros(microseconds);
            settings(options).ring_bytes_over_tcp(round_trip).get()
        };
        assert_eq!(over_tcp(&[], 20), 8 * MESSAGE_BYTES);
        assert_eq!(over_tcp(&[], 100), 3_750_000);
        assert_eq!(over_tcp(&[], 10_000), SLAB_BYTES * SLABS);
        assert_eq!(over_tcp(&[], 0), SLAB_BYTES * SLABS);
        assert_eq!(over_tcp(&[("message", "4M")], 20), SLAB_BYTES * SLABS);
        assert_eq!(over_tcp(&[("slab", "4M")], 20), SLAB_BYTES * SLABS);
        assert_eq!(over_tcp(&[("slabs", "3")], 20), SLAB_BYTES * 3);
        assert_eq!(over_tcp(&[("register", "dynamic")], 20), SLAB_BYTES * SLABS);
    }
}
