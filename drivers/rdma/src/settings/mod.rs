//! The driver's options.

mod options;
mod values;

use std::num::NonZeroU64;
use std::sync::Arc;
use std::time::Duration;

use gridhaul_direct::DirectUse;
use gridhaul_stack::options::Options;
use gridhaul_stack::{Party, StackError};

pub(crate) use self::options::OPTIONS;
pub(crate) use self::values::Provider;
use crate::files;
use crate::handshake::{Mode, Offer, USUAL_INLINE_BYTES};
use crate::memory::Lengths;
use crate::pacing::{Burst, Rate};
use crate::provider::{self, MAX_RAILS};
use crate::verbs::{AdapterName, DeviceOptions};

/// The options of this driver, and those of TCP sockets.
#[derive(Debug, Clone)]
pub(crate) struct Settings {
    pub(crate) tcp: gridhaul_tcp::Settings,
    /// The length of a ring in bytes. `None` for as long as the path needs.
    pub(crate) ring_bytes: Option<NonZeroU64>,
    /// The largest WRITE in bytes.
    pub(crate) message: u64,
    /// The largest WRITE is the default; a long path and a device with short queues may need larger
    /// ones.
    pub(crate) fits_message: bool,
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
    /// Which files are read and written past the page cache.
    pub(crate) direct: Option<DirectUse>,
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
/// The length of messages that no option sets, unless the path needs longer ones.
const MESSAGE_BYTES: u64 = 256 << 10;
const STALL: Duration = Duration::from_secs(3);

impl Settings {
    pub(crate) fn parse(options: &Options<'_>) -> Result<Self, StackError> {
        let asked_slabs = options.value("slabs", values::between(3, 256))?;
        let slabs = asked_slabs.unwrap_or(SLABS);
        let asked_slab = options.value("slab", |text| values::slab(text, slabs))?;
        let slab =
            asked_slab.unwrap_or(NonZeroU64::new(SLAB_BYTES).expect("a constant that is not zero"));
        let asked_message = options.value("message", |text| values::message(text, slab.get()))?;
        let message = asked_message.unwrap_or_else(|| MESSAGE_BYTES.min(slab.get()));
        let queue_pairs = options.value("qps", values::between(1, 16))?;
        let pins_files = options
            .value("register", values::register)?
            .unwrap_or(false);
        let devices = options.value("device", values::devices)?;
        let (device, adapters) = match devices.as_deref() {
            Some([AdapterName::Device(device)]) => (Some(device.clone()), Vec::new()),
            several => (None, several.unwrap_or_default().to_vec()),
        };
        // Pinned sections are no ring, so files are not read into one.
        let usual_direct = (!pins_files).then_some(DirectUse::Measured);
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
            // Pinned sections have half of the ring's memory, and a device takes a limited number of
            // them.
            ring_bytes: NonZeroU64::new(slab.get() * slabs)
                .filter(|_| asked_slab.is_some() || asked_slabs.is_some() || pins_files),
            message,
            // A paced message must be shorter than the burst of a policer.
            fits_message: asked_message.is_none() && matches!(rate, Rate::Any),
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
                device,
                adapters,
                gid: small("gid", 255)?,
                traffic_class: small("tc", 255)?.unwrap_or(0),
                service_level: small("sl", 15)?,
                partition: options.value("pkey", values::partition)?,
                mtu: options.value("mtu", values::mtu)?,
            },
            direct: DirectUse::parse(options, usual_direct)?,
            pins_files,
        })
    }

    /// Whether files may go past the page cache, for which their content has to be aligned in the rings.
    pub(crate) fn aligns_files(&self) -> bool {
        let is_long_enough = self
            .ring_bytes
            .is_none_or(|bytes| bytes.get() >= files::LEAST_RING_BYTES);
        match self.direct {
            None => false,
            Some(DirectUse::Always(_)) => true,
            Some(DirectUse::Measured) => is_long_enough,
        }
    }

    /// The offer to the other end, which also limits the other end's offer, with these rings of the
    /// connecting end, so many queue pairs, adapters of the connecting end, and rails.
    pub(crate) fn offer(
        &self,
        rings: Lengths,
        queue_pairs: u16,
        [adapters, rails]: [usize; 2],
    ) -> Offer {
        let few = |count: usize| u8::try_from(count.clamp(1, MAX_RAILS)).unwrap_or(1);
        Offer {
            rings,
            queue_pairs,
            pieces: 0,
            mode: self.mode,
            immediate: self.immediate,
            inline_bytes: self.inline_bytes,
            aligned: self.aligns_files(),
            adapters: few(adapters),
            rails: few(rails),
            grows: self.ring_bytes.is_none(),
        }
        .within_rails()
        .with_all_pieces()
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
    fn several_devices_replace_the_one() {
        let one = settings(&[("device", "mlx5_0")]).device_options;
        assert_eq!(
            (one.device.as_deref(), one.adapters.len()),
            (Some("mlx5_0"), 0)
        );
        let two = settings(&[("device", "mlx5_0+mlx5_1")]).device_options;
        assert_eq!((two.device.as_deref(), two.adapters.len()), (None, 2));
    }

    #[test]
    fn files_are_aligned_where_they_may_go_past_the_page_cache() {
        let aligns = |options: &[_]| settings(options).aligns_files();
        assert!(aligns(&[]) && aligns(&[("direct", "auto")]));
        assert!(!aligns(&[("direct", "0")]) && !aligns(&[("register", "dynamic")]));
        // Rings of 192 KiB have no room for requests, unless the administrator wants them.
        let short = [("slab", "64K"), ("slabs", "3"), ("message", "16K")];
        assert!(!aligns(&short));
        let [slab, slabs, message] = short;
        assert!(aligns(&[slab, slabs, message, ("direct", "1")]));
    }

    #[test]
    fn the_path_sets_what_no_option_sets() {
        let ring = |options: &[_]| settings(options).ring_bytes.map(NonZeroU64::get);
        assert_eq!(ring(&[]), None);
        assert_eq!(ring(&[("message", "4M"), ("qps", "2")]), None);
        assert_eq!(ring(&[("slab", "4M")]), Some(SLAB_BYTES * SLABS));
        assert_eq!(ring(&[("slabs", "3")]), Some(SLAB_BYTES * 3));
        let pinning = ring(&[("register", "dynamic")]);
        assert_eq!(pinning, Some(SLAB_BYTES * SLABS));
        let fits = |options: &[_]| settings(options).fits_message;
        assert!(fits(&[]) && fits(&[("slab", "4M")]));
        assert!(!fits(&[("message", "256K")]) && !fits(&[("rate", "5g")]));
    }
}
