//! Events of a simulated fabric.

use std::cmp::Ordering;
use std::ops::Range;
use std::time::Duration;

use super::link::Arrival;
use super::queue_pair::Train;
use crate::provider::Loss;

/// A generation of a queue pair in the fabric.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Place {
    pub(crate) host: usize,
    pub(crate) channel: usize,
    pub(crate) queue_pair: usize,
    pub(crate) generation: u32,
}

impl Place {
    pub(crate) fn peer(self) -> Self {
        Self {
            host: 1 - self.host,
            ..self
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Event {
    pub(super) at: Duration,
    pub(super) number: u64,
    pub(super) place: Place,
    pub(super) kind: EventKind,
}

/// An event at a place.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum EventKind {
    /// The port of the host has sent its train.
    PortIsFree,
    /// The queue pair may send its next train.
    Rested,
    /// Packets of a train have arrived.
    Arrives { train: Train, arrival: Arrival },
    /// The device at the other end has received all packets before this one.
    Acknowledged { packet: u64 },
    /// The device at the other end misses this packet. If it holds packets behind it, it names those that have just arrived.
    Missing {
        packet: u64,
        arrived: Vec<Range<u64>>,
    },
    /// The device at the other end has received marked packets.
    Congested,
    /// The device at the other end refused the request.
    Refused { reason: &'static str },
    /// The retransmission timer expires.
    Deadline,
    /// The other end reports over a separate connection that it has closed the queue pair.
    PeerLost { ended: Option<Loss> },
    /// Both ends are connected again.
    Connected,
}

/// The earliest event is the greatest, for the heap.
impl Ord for Event {
    fn cmp(&self, other: &Self) -> Ordering {
        (other.at, other.number).cmp(&(self.at, self.number))
    }
}

impl PartialOrd for Event {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}
