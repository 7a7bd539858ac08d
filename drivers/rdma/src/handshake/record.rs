//! The contents of records.

use std::num::NonZeroU64;
use std::time::Duration;

use super::method::{Method, Methods};
use crate::memory::Lengths;
use crate::provider::{Access, FabricRecord};

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Record {
    Offer(Offer, Methods, PathRecord),
    Answer(Answer),
    Ring(RingRecord),
    Fabric(FabricRecord),
    /// The sender's queue pairs are connected.
    Ready,
    /// Which packets of the sender get to the receiver on each rail.
    Path(Vec<Arrival>),
    /// The reason why the sender cannot continue.
    Refusal(String),
}

/// Which packets of an adapter get to the peer's and are acknowledged.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Arrival {
    Nothing = 0,
    /// Short packets do, and long ones do not.
    Short = 1,
    All = 2,
}

/// Proves that a further connection belongs to this data connection.
pub(crate) type Token = [u8; 16];

/// The connecting end's offer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Offer {
    /// The rings of the connecting end.
    pub(crate) rings: Lengths,
    /// The number of queue pairs.
    pub(crate) queue_pairs: u16,
    /// Pieces that may be in flight in each direction.
    pub(crate) pieces: u16,
    /// The connecting end decides.
    pub(crate) mode: Mode,
    /// WRITEs may announce pieces by immediate data where devices support it.
    pub(crate) immediate: bool,
    /// The longest inline payload in bytes.
    pub(crate) inline_bytes: u16,
    /// The content of files begins in the ring where direct I/O needs it, at one of the ends at least.
    pub(crate) aligned: bool,
    /// Adapters of the connecting end.
    pub(crate) adapters: u8,
    /// Paths between adapters that the channel may use at once.
    pub(crate) rails: u8,
    /// Rings may be exchanged for longer or shorter ones while data flows.
    pub(crate) grows: bool,
}

impl Offer {
    /// The smaller of each number, the common features, what either end needs, and this mode.
    pub(crate) fn within(self, other: Self) -> Self {
        Self {
            rings: self.rings.within(other.rings),
            queue_pairs: self.queue_pairs.min(other.queue_pairs),
            pieces: self.pieces.min(other.pieces),
            mode: self.mode,
            immediate: self.immediate && other.immediate,
            inline_bytes: self.inline_bytes.min(other.inline_bytes),
            aligned: self.aligned || other.aligned,
            adapters: self.adapters.min(other.adapters),
            rails: self.rails.min(other.rails),
            grows: self.grows && other.grows,
        }
    }
}

/// What one end knows about the path.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct PathRecord {
    /// The rate of its port in bytes of payload per second, if it is known.
    pub(crate) rate: Option<NonZeroU64>,
    /// The round trip time in whole microseconds; zero if it was not measured.
    pub(crate) round_trip: Duration,
}

impl PathRecord {
    /// What both ends know together: the rate of the slower port, and the shorter of the measured
    /// round trips, because the other one contains a delay of a host.
    pub(crate) fn with(self, other: Self) -> Self {
        let (shorter, longer) = if self.round_trip < other.round_trip {
            (self.round_trip, other.round_trip)
        } else {
            (other.round_trip, self.round_trip)
        };
        Self {
            rate: self
                .rate
                .zip(other.rate)
                .map(|(ours, theirs)| ours.min(theirs)),
            round_trip: if shorter.is_zero() { longer } else { shorter },
        }
    }
}

/// Which end moves bytes from ring to ring.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Mode {
    /// The sender, by WRITEs.
    Put = 0,
    /// The receiver, by READs.
    Get = 1,
}

impl Mode {
    /// The peer's access to the outgoing and to the incoming ring: it accesses one of the two.
    pub(crate) fn access(self) -> [Access; 2] {
        match self {
            Self::Put => [Access::Local, Access::RemoteWrite],
            Self::Get => [Access::RemoteRead, Access::Sink],
        }
    }
}

/// The accepting end's answer; no number exceeds the offer's.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Answer {
    pub(crate) chosen: Offer,
    pub(crate) method: Method,
    /// The port, at the address of the data connection, for queue pairs with connections of their
    /// own; 0 if there are none.
    pub(crate) port: u16,
    pub(crate) token: Token,
}

/// The ring of one end that the other end accesses.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct RingRecord {
    pub(crate) address: u64,
    /// One for each adapter of this end.
    pub(crate) keys: Vec<u32>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_is_as_fast_as_its_slower_end_and_as_short_as_measured() {
        let path = |rate, milliseconds| PathRecord {
            rate: NonZeroU64::new(rate),
            round_trip: Duration::from_millis(milliseconds),
        };
        for [one, other, both] in [
            [path(3, 50), path(2, 60), path(2, 50)],
            [path(3, 50), path(0, 0), path(0, 50)],
            [path(0, 0), path(0, 7), path(0, 7)],
        ] {
            assert_eq!(one.with(other), both);
            assert_eq!(other.with(one), both);
        }
    }
}
