//! The properties of a simulated fabric.

use std::ops::Range;
use std::time::Duration;

use super::congestion::Dcqcn;
use super::link::Link;

/// The properties of a fabric.
#[derive(Debug, Clone, PartialEq)]
pub struct FabricSettings {
    /// From the first host to the second, and back.
    pub links: [Link; 2],
    /// Further paths between other ports of the two hosts, which the queue pairs of a channel take turns with.
    pub rails: Vec<[Link; 2]>,
    /// The payload of a packet: the path's MTU in bytes.
    pub packet_bytes: u64,
    /// The most packets that a queue pair sends before another one has its turn at the port.
    pub turn_packets: u64,
    /// Requests of one queue pair that may be outstanding.
    pub depth: usize,
    /// How long a requester waits for an acknowledgement. It must exceed a round trip.
    pub acknowledgement_timeout: Duration,
    /// Retransmissions before a queue pair is lost; 7 means no limit, as with devices.
    pub retries: u32,
    /// What a device sends again after a loss.
    pub repeat: Repeat,
    /// How devices react to marked packets; `None` if they do not.
    pub congestion_control: Option<Dcqcn>,
    /// WRITEs can carry immediate data.
    pub immediate: bool,
    /// Lost queue pairs are connected again.
    pub replaces: bool,
    /// Devices count retransmissions.
    pub counts_repeats: bool,
    /// The retransmission timer starts with the first packet after it last expired, and is not
    /// restarted when everything is acknowledged, as with rxe: packets in flight when it expires are
    /// retransmitted, even if they are not late.
    pub timer_runs_on: bool,
    /// The rates of a channel's queue pairs in bytes per second, by number, where each has a bottleneck of
    /// its own: a switch chose a crowded path for it, or the adapter sends no faster on one queue pair.
    /// Those without an entry are limited by the port only.
    pub queue_pair_rates: Vec<u64>,
    /// The first host is busy at times, and its port sends late; `None` if it never is.
    pub naps: Option<Naps>,
    /// How late threads of both hosts wake up from a timed wait, at least and at most. `None` for exact
    /// timers, and threads that every completion wakes.
    pub wakes_late: Option<Range<Duration>>,
    /// The seed of all random decisions.
    pub seed: u64,
}

/// What a device sends again after a loss.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Repeat {
    /// Everything from the first missing packet on (the InfiniBand architecture, 9.7), as adapters and rxe do by default.
    GoBackN,
    /// Only what is missing. Responses of READs are requested again as with [`Repeat::GoBackN`].
    Selective,
}

/// Times in which a port does not send. After them it sends all queued packets at once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Naps {
    /// The longest time between two naps.
    pub apart: Duration,
    /// The longest nap.
    pub longest: Duration,
}

/// The largest count of retries means no limit (the InfiniBand architecture, 9.9.2.4.1; rxe and
/// hardware agree).
pub(super) const FOR_EVER: u32 = 7;

impl FabricSettings {
    /// The same path in both directions, without faults.
    pub fn new(link: Link) -> Self {
        // 4.096 µs times a power of two, as for a device: more than two round trips.
        let mut timeout = Duration::from_nanos(4096 << 14);
        while timeout < 4 * (link.delay + link.jitter) {
            timeout *= 2;
        }
        Self {
            links: [link.clone(), link],
            rails: Vec::new(),
            packet_bytes: 4096,
            turn_packets: u64::MAX,
            depth: 1024,
            acknowledgement_timeout: timeout,
            retries: FOR_EVER,
            repeat: Repeat::GoBackN,
            congestion_control: None,
            immediate: true,
            replaces: true,
            counts_repeats: true,
            timer_runs_on: false,
            queue_pair_rates: Vec::new(),
            naps: None,
            wakes_late: None,
            seed: 0,
        }
    }
}
