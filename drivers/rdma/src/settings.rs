//! The driver's options.

use std::num::NonZeroU64;
use std::time::Duration;

use gridhaul_stack::StackError;
use gridhaul_stack::options::{self, OptionDoc, Options};

use crate::handshake::Offer;

/// What the options say, beside what they say of sockets.
#[derive(Debug, Clone)]
pub(crate) struct Settings {
    pub(crate) tcp: gridhaul_tcp::Settings,
    /// The length of the ring of each direction, in bytes.
    pub(crate) ring_bytes: NonZeroU64,
    /// The largest WRITE, in bytes.
    pub(crate) message: u64,
    pub(crate) queue_pairs: u16,
    /// In bytes per second.
    pub(crate) rate: Option<u64>,
    /// In bytes.
    pub(crate) burst: u64,
    pub(crate) checksum: bool,
    pub(crate) stall: Duration,
}

/// Options of this driver only.
const OWN: [OptionDoc; 8] = [
    OptionDoc {
        name: "slab",
        meaning: "The size of a slab in bytes; 4M unless given.",
        example: "64M",
    },
    OptionDoc {
        name: "slabs",
        meaning: "Slabs in the ring of each direction, 3 to 256; 4 unless given.",
        example: "3",
    },
    OptionDoc {
        name: "message",
        meaning: "The largest message in bytes; 256K unless given.",
        example: "256K",
    },
    OptionDoc {
        name: "burst",
        meaning: "Bytes that may leave at once where a rate is given; one message unless given.",
        example: "1M",
    },
    OptionDoc {
        name: "qps",
        meaning: "Queue pairs of a channel, 1 to 16; 1 unless given.",
        example: "4",
    },
    OptionDoc {
        name: "stall",
        meaning: "A queue pair of a device on which nothing completes for so long is given up, 100ms to 10m; 3s unless given.",
        example: "10s",
    },
    OptionDoc {
        name: "provider",
        meaning: "Who carries messages: soft is iWARP over TCP by this program.",
        example: "soft",
    },
    OptionDoc {
        name: "crc",
        meaning: "Adds a checksum to every segment of the provider soft; off unless given.",
        example: "on",
    },
];

/// Options of the driver `tcp` that mean the same here.
const OF_TCP: usize = gridhaul_tcp::OPTIONS.len();

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

/// The largest ring, in bytes: the bandwidth-delay product of 100 Gb/s and 300 ms.
const MAX_RING_BYTES: u64 = 4 << 30;

/// Pieces that may be under way in each direction: enough to fill a ring with the blocks of a sender that has
/// no more to say at a time, and some for each queue pair. What the receiver remembers of them is bounded with them.
fn pieces(ring_bytes: u64) -> u16 {
    const USUAL_BYTES: u64 = 256 << 10;
    let pieces = (ring_bytes / USUAL_BYTES).clamp(64, MAX_RING_BYTES / USUAL_BYTES);
    u16::try_from(pieces).unwrap_or(u16::MAX)
}

impl Settings {
    pub(crate) fn parse(options: &Options<'_>) -> Result<Self, StackError> {
        let slabs = options.value("slabs", between(3, 256))?.unwrap_or(SLABS);
        let slab = options.value("slab", |text| slab(text, slabs))?;
        let slab =
            slab.unwrap_or(NonZeroU64::new(SLAB_BYTES).expect("a constant that is not zero"));
        let message = options.value("message", |text| message(text, slab.get()))?;
        let message = message.unwrap_or_else(|| MESSAGE_BYTES.min(slab.get()));
        let queue_pairs = options.value("qps", between(1, 16))?.unwrap_or(1);
        options.value("provider", provider)?;
        Ok(Self {
            tcp: gridhaul_tcp::Settings::parse(options)?,
            ring_bytes: NonZeroU64::new(slab.get() * slabs).expect("at least one slab"),
            message,
            queue_pairs: u16::try_from(queue_pairs).unwrap_or(1),
            rate: options.value("rate", options::rate)?,
            burst: options.value("burst", options::bytes)?.unwrap_or(message),
            stall: options.value("stall", stall)?.unwrap_or(STALL),
            checksum: options.value("crc", options::switch)?.unwrap_or(false),
        })
    }

    /// What is offered to the other end, and the limit of what it may offer, with rings of this length.
    pub(crate) fn offer(&self, ring_bytes: NonZeroU64) -> Offer {
        Offer {
            ring_bytes,
            queue_pairs: self.queue_pairs,
            pieces: pieces(ring_bytes.get()),
        }
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

fn stall(text: &str) -> Result<Duration, String> {
    let range = Duration::from_millis(100)..=Duration::from_secs(600);
    options::duration(text)
        .ok()
        .filter(|time| range.contains(time))
        .ok_or_else(|| "it is not a time from 100ms to 10m".to_owned())
}

fn provider(text: &str) -> Result<(), String> {
    match text {
        "auto" | "soft" => Ok(()),
        _ => Err("there are soft, and auto, which chooses".to_owned()),
    }
}
