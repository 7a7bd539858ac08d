//! The driver's options.

use std::num::NonZeroU64;
use std::sync::Arc;
use std::time::Duration;

use gridhaul_stack::options::{self, Audience, OptionDoc, OptionKind, Options};
use gridhaul_stack::{Party, StackError};

use crate::handshake::{MAX_INLINE_BYTES, Mode, Offer, USUAL_INLINE_BYTES};
use crate::pacing::Rate;
use crate::provider;
use crate::verbs::Wishes;

/// The options of this driver, beside those of sockets.
#[derive(Debug, Clone)]
pub(crate) struct Settings {
    pub(crate) tcp: gridhaul_tcp::Settings,
    /// The length of each direction's ring in bytes.
    pub(crate) ring_bytes: NonZeroU64,
    /// The length is the default; on a short path the ring may be shorter.
    fits_ring_to_path: bool,
    /// The largest WRITE in bytes.
    pub(crate) message: u64,
    pub(crate) queue_pairs: u16,
    pub(crate) rate: Rate,
    /// In bytes.
    pub(crate) burst: u64,
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
    /// Whom the rings count for.
    pub(crate) party: Option<Party>,
    pub(crate) wishes: Wishes,
}

/// Which provider carries messages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Provider {
    /// Verbs if both ends have them for the data connection's address; otherwise `soft`.
    Auto,
    Soft,
    Verbs,
}

/// The audience of options that choose devices of this end.
const DEVICES: Audience =
    Audience::Administrator("it says which devices of the server are used, and where they connect");

/// The audience of options that choose how networks treat packets.
const PRIORITY: Audience =
    Audience::Administrator("it puts packets into classes of the network that others pay for");

/// The options of this driver only.
const OWN: [OptionDoc; 18] = [
    OptionDoc {
        name: "slab",
        meaning: "The size of a slab in bytes; 4M unless given, and less on a short path.",
        example: "64M",
        kind: OptionKind::Bytes,
        // Sixteen such slabs are a ring of 1 GiB. `rdma-memory` bounds all rings together.
        audience: Audience::client_up_to("64M"),
    },
    OptionDoc {
        name: "slabs",
        meaning: "Slabs in the ring of each direction, 3 to 256; 4 unless given.",
        example: "3",
        kind: OptionKind::Number,
        // See `slab`.
        audience: Audience::client_up_to("16"),
    },
    OptionDoc {
        name: "message",
        meaning: "The largest message in bytes; 256K unless given.",
        example: "256K",
        kind: OptionKind::Bytes,
        // An adapter sends a message without a pause, and other traffic on the path waits behind
        // it.
        audience: Audience::client_up_to("4M"),
    },
    OptionDoc {
        name: "rate",
        meaning: "Sends at most so many bits per second (with k, m or g) or bytes per second (without); auto finds out \
                  what the path lets through.",
        example: "auto",
        kind: OptionKind::Rate,
        // It can only make the client's own channels slower.
        audience: Audience::Client,
    },
    OptionDoc {
        name: "burst",
        meaning: "Bytes that may leave at once where a rate is given; one and a half messages unless given.",
        example: "1M",
        kind: OptionKind::Bytes,
        // Without a rate everything is sent at once, so a large burst is no worse.
        audience: Audience::Client,
    },
    OptionDoc {
        name: "qps",
        meaning: "Queue pairs of a channel, 1 to 16; 1 unless given.",
        example: "4",
        kind: OptionKind::Number,
        // Queue pairs of a device are limited, and each of `soft` is a connection with a port.
        audience: Audience::client_up_to("8"),
    },
    OptionDoc {
        name: "depth",
        meaning: "Messages under way on each queue pair at most, 2 to 65536; auto unless given: all that ring and device take.",
        example: "64",
        kind: OptionKind::Number,
        // It can only reduce what `auto` allows.
        audience: Audience::Client,
    },
    OptionDoc {
        name: "mode",
        meaning: "Who moves bytes: put for their sender, get for their receiver; put unless given.",
        example: "get",
        kind: OptionKind::Word,
        // Both modes move bytes of the client's own ring.
        audience: Audience::Client,
    },
    OptionDoc {
        name: "inline",
        meaning: "Payloads of up to so many bytes travel in the message that announces them, 0 to 16K; 1K unless given.",
        example: "4K",
        kind: OptionKind::Bytes,
        // The driver bounds it to 16K for each piece of a channel, and the other end must agree.
        audience: Audience::Client,
    },
    OptionDoc {
        name: "immediate",
        meaning: "Lets a WRITE announce what it writes, where adapters can do that and the other end agrees; on unless given.",
        example: "off",
        kind: OptionKind::Word,
        // It can only turn off what `on` allows.
        audience: Audience::Client,
    },
    OptionDoc {
        name: "stall",
        meaning: "A queue pair of a device on which nothing completes for so long is given up, 100ms to 10m; 3s unless given.",
        example: "10s",
        kind: OptionKind::Time,
        // It concerns the client's own channels; `stall-timeout` ends a transfer that makes no
        // progress.
        audience: Audience::Client,
    },
    OptionDoc {
        name: "provider",
        meaning: "Who carries messages: verbs is an RDMA adapter, soft is iWARP over TCP by this program; auto \
                  takes verbs where both ends have them.",
        example: "verbs",
        kind: OptionKind::Word,
        // A peer without an adapter gets `soft` with `auto` as well, and one with an adapter gets
        // it with `auto` too.
        audience: Audience::Client,
    },
    OptionDoc {
        name: "device",
        meaning: "The RDMA device of this end; the one with the data connection's address unless given.",
        example: "mlx5_0",
        kind: OptionKind::Word,
        // A client could reach networks of other adapters of the machine.
        audience: DEVICES,
    },
    OptionDoc {
        name: "gid",
        meaning: "The place of the GID to use in the table of the device's port; by address unless given.",
        example: "3",
        kind: OptionKind::Number,
        // With it the other end may be another host than that of the data connection.
        audience: DEVICES,
    },
    OptionDoc {
        name: "tc",
        meaning: "The traffic class of RoCE packets, which has the DSCP in its upper six bits; 0 unless given.",
        example: "106",
        kind: OptionKind::Number,
        audience: PRIORITY,
    },
    OptionDoc {
        name: "sl",
        meaning: "The service level of InfiniBand or RoCE packets, 0 to 15; 0 unless given.",
        example: "3",
        kind: OptionKind::Number,
        audience: PRIORITY,
    },
    OptionDoc {
        name: "register",
        meaning: "What is registered for sending: static is a ring that files are read into, dynamic the pages of \
                  the files; static unless given.",
        example: "dynamic",
        kind: OptionKind::Word,
        // Pinned pages replace memory of the ring and count for `rdma-memory` and the limit on
        // pinned memory.
        audience: Audience::Client,
    },
    OptionDoc {
        name: "crc",
        meaning: "Adds a checksum to every segment of the provider soft; off unless given.",
        example: "on",
        kind: OptionKind::Word,
        // It takes processor time for the client's own bytes, less than encryption does.
        audience: Audience::Client,
    },
];

/// Options of the driver `tcp` that mean the same here.
///
/// The last one is the rate, which has more values here.
const OF_TCP: usize = gridhaul_tcp::OPTIONS.len() - 1;

/// All options.
pub(crate) const OPTIONS: [OptionDoc; OWN.len() + OF_TCP] = {
    let mut all = [OWN[0]; OWN.len() + OF_TCP];
    let mut at = 0;
    while at < all.len() {
        all[at] = if at < OWN.len() {
            OWN[at]
        } else {
            gridhaul_tcp::OPTIONS[at - OWN.len()]
        };
        at += 1;
    }
    all
};

const SLAB_BYTES: u64 = 4 << 20;
const SLABS: u64 = 4;
const MESSAGE_BYTES: u64 = 256 << 10;
const STALL: Duration = Duration::from_secs(3);

/// The fastest path that a ring is fitted to, in bytes per second: 100 Gb/s.
const FASTEST_PATH: u64 = 12_500_000_000;

/// The least number of messages in a ring that is fitted to its path. With fewer, the two ends wait
/// for each other more often; with more, it leaves the cache.
const LEAST_MESSAGES: u64 = 8;

/// The largest ring, in bytes: the bandwidth-delay product of 100 Gb/s and 300 ms.
const MAX_RING_BYTES: u64 = 4 << 30;

/// Pieces that may be in flight in each direction: enough to fill a ring with the blocks of a
/// sender that flushes each, and some for each queue pair. They also bound what the receiver
/// remembers.
fn pieces(ring_bytes: u64) -> u16 {
    const USUAL_BYTES: u64 = 256 << 10;
    let pieces = (ring_bytes / USUAL_BYTES).clamp(64, MAX_RING_BYTES / USUAL_BYTES);
    u16::try_from(pieces).unwrap_or(u16::MAX)
}

impl Settings {
    pub(crate) fn parse(options: &Options<'_>) -> Result<Self, StackError> {
        let asked_slabs = options.value("slabs", between(3, 256))?;
        let slabs = asked_slabs.unwrap_or(SLABS);
        let asked_slab = options.value("slab", |text| slab(text, slabs))?;
        let slab =
            asked_slab.unwrap_or(NonZeroU64::new(SLAB_BYTES).expect("a constant that is not zero"));
        let message = options.value("message", |text| message(text, slab.get()))?;
        let message = message.unwrap_or_else(|| MESSAGE_BYTES.min(slab.get()));
        let queue_pairs = options.value("qps", between(1, 16))?.unwrap_or(1);
        let pins_files = options.value("register", register)?.unwrap_or(false);
        let small = |name, most| {
            let number = options.value(name, between(0, most))?;
            Ok(number.and_then(|number| u8::try_from(number).ok()))
        };
        let rate = options.value("rate", rate)?.unwrap_or(Rate::Any);
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
            queue_pairs: u16::try_from(queue_pairs).unwrap_or(1),
            rate,
            // With less, each message would wait until the one before is certain not to have been
            // sent late.
            burst: options
                .value("burst", options::bytes)?
                .unwrap_or(message + message / 2),
            depth: options.value("depth", depth)?.flatten(),
            mode: options.value("mode", mode)?.unwrap_or(Mode::Put),
            inline_bytes: options
                .value("inline", inline)?
                .unwrap_or(USUAL_INLINE_BYTES),
            immediate: options.value("immediate", options::switch)?.unwrap_or(true),
            stall: options.value("stall", stall)?.unwrap_or(STALL),
            checksum: options.value("crc", options::switch)?.unwrap_or(false),
            provider: options
                .value("provider", provider)?
                .unwrap_or(Provider::Auto),
            provided: None,
            party: None,
            wishes: Wishes {
                device: options.value("device", device)?,
                gid: small("gid", 255)?,
                traffic_class: small("tc", 255)?.unwrap_or(0),
                service_level: small("sl", 15)?.unwrap_or(0),
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
    /// length.
    pub(crate) fn offer(&self, ring_bytes: NonZeroU64) -> Offer {
        Offer {
            ring_bytes,
            queue_pairs: self.queue_pairs,
            pieces: pieces(ring_bytes.get()),
            mode: self.mode,
            immediate: self.immediate,
            inline_bytes: self.inline_bytes,
        }
    }
}

fn rate(text: &str) -> Result<Rate, String> {
    match text {
        "auto" => Ok(Rate::Auto { port: None }),
        _ => options::rate(text)
            .map(Rate::Fixed)
            .map_err(|reason| format!("it is not auto, and {reason}")),
    }
}

fn between(least: u64, most: u64) -> impl Fn(&str) -> Result<u64, String> {
    move |text| match options::number(text) {
        Ok(number) if (least..=most).contains(&number) => Ok(number),
        _ => Err(format!("it is not a number from {least} to {most}")),
    }
}

fn slab(text: &str, slabs: u64) -> Result<NonZeroU64, String> {
    let most = MAX_RING_BYTES / slabs;
    options::bytes(text)
        .ok()
        .filter(|bytes| (4096..=most).contains(bytes))
        .and_then(NonZeroU64::new)
        .ok_or_else(|| format!("it is not a number of bytes from 4096 to {most}"))
}

fn message(text: &str, slab: u64) -> Result<u64, String> {
    match options::bytes(text) {
        Ok(bytes) if (1024..=slab).contains(&bytes) => Ok(bytes),
        _ => Err(format!(
            "it is not a number of bytes from 1024 to a slab's, {slab}"
        )),
    }
}

fn depth(text: &str) -> Result<Option<usize>, String> {
    if text == "auto" {
        return Ok(None);
    }
    let number = between(2, 65_536)(text)?;
    Ok(usize::try_from(number).ok())
}

fn mode(text: &str) -> Result<Mode, String> {
    match text {
        "put" => Ok(Mode::Put),
        "get" => Ok(Mode::Get),
        _ => Err("it is neither put nor get".to_owned()),
    }
}

fn inline(text: &str) -> Result<u16, String> {
    options::bytes(text)
        .ok()
        .and_then(|bytes| u16::try_from(bytes).ok())
        .filter(|bytes| *bytes <= MAX_INLINE_BYTES)
        .ok_or_else(|| format!("it is not a number of bytes from 0 to {MAX_INLINE_BYTES}"))
}

fn stall(text: &str) -> Result<Duration, String> {
    let range = Duration::from_millis(100)..=Duration::from_secs(600);
    options::duration(text)
        .ok()
        .filter(|time| range.contains(time))
        .ok_or_else(|| "it is not a time from 100ms to 10m".to_owned())
}

fn register(text: &str) -> Result<bool, String> {
    match text {
        "static" => Ok(false),
        "dynamic" => Ok(true),
        _ => Err("there are static and dynamic".to_owned()),
    }
}

fn provider(text: &str) -> Result<Provider, String> {
    match text {
        "auto" => Ok(Provider::Auto),
        "soft" => Ok(Provider::Soft),
        "verbs" => Ok(Provider::Verbs),
        _ => Err("there are soft, verbs, and auto, which chooses".to_owned()),
    }
}

/// The kernel's names of devices use only these characters.
fn device(text: &str) -> Result<String, String> {
    let is_name = |byte: u8| byte.is_ascii_alphanumeric() || b"_-.".contains(&byte);
    if text.is_empty() || text.len() > 63 || !text.bytes().all(is_name) {
        return Err("it is not the name of a device, such as mlx5_0".to_owned());
    }
    Ok(text.to_owned())
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
