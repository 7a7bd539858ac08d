//! What the two ends of a channel agree on: its rings, by options, path, memory and trust, and what depends on their length.
//!
//! No socket and no device: the simulation opens channels by the same rules.

use std::num::NonZeroU64;

use gridhaul_stack::Flow;

use super::ring_length::{self, MostGrown};
use crate::files::ALIGNMENT;
use crate::handshake::{Mode, Offer, PathRecord};
use crate::memory::{Lengths, Pool, Share};
use crate::settings::Settings;

/// The ring for the direction in which no data flows, in bytes: it carries handshakes of transforms.
const OTHER_WAY_BYTES: NonZeroU64 =
    NonZeroU64::new(256 << 10).expect("a constant that is not zero");

/// What decides about the rings of one end, besides the path.
#[derive(Debug, Clone, Copy)]
pub(crate) struct RingRules {
    /// The length that an option sets, in bytes.
    asked: Option<NonZeroU64>,
    /// The largest message that options allow, in bytes.
    message_bytes: u64,
    /// The channel serves a client of a server, whose claims are not known to be true.
    is_client: bool,
    /// The bound of all rings of the process, in bytes.
    limit: u64,
    /// The length of rings that many channels can all have, in bytes.
    common: u64,
}

/// The data that the connecting end has for a channel.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Load {
    pub(crate) flow: Flow,
    /// The channels that share the path; 0 is one.
    pub(crate) channels: usize,
    /// No adapter is used.
    pub(crate) over_tcp: bool,
}

impl RingRules {
    /// With the memory of this pool, which a device pins or not.
    pub(crate) fn new(settings: &Settings, pool: &Pool, pins: bool) -> Self {
        Self {
            asked: settings.ring_bytes,
            message_bytes: settings.message,
            is_client: settings.party.is_some(),
            limit: pool.limit(pins),
            common: pool.common_ring_bytes(pins),
        }
    }

    /// The rings that the connecting end offers. The accepting end takes those or shorter ones.
    pub(crate) fn offered(self, path: PathRecord, load: Load) -> Lengths {
        let ring_bytes = self.offered_bytes(path, load);
        let both = Lengths::both(ring_bytes);
        let little = ring_bytes.min(OTHER_WAY_BYTES);
        let rings = match load.flow {
            Flow::Both => both,
            Flow::Out => Lengths {
                incoming: little,
                ..both
            },
            Flow::In => Lengths {
                outgoing: little,
                ..both
            },
        };
        self.within_trust(rings)
    }

    fn offered_bytes(self, path: PathRecord, load: Load) -> NonZeroU64 {
        if let Some(asked) = self.asked {
            return asked;
        }
        let of_path = ring_length::of_path(self.trusted(path), load.channels);
        let short = ring_length::of_short_path(path.round_trip, self.message_bytes);
        let Some(short) = short else {
            return of_path;
        };
        let ring_bytes = if load.over_tcp { short } else { of_path };
        // Where a shorter ring is enough, all channels get rings of the same length.
        NonZeroU64::new(self.common).map_or(ring_bytes, |common| ring_bytes.min(common))
    }

    /// The longest ring that the accepting end takes, before it looks at its memory.
    pub(crate) fn acceptable(self, path: PathRecord) -> NonZeroU64 {
        let of_path = || ring_length::of_path(self.trusted(path), 1);
        self.asked.unwrap_or_else(of_path)
    }

    /// What the accepting end takes of `wanted`, which both ends want, and the length to which rings may grow.
    pub(crate) fn accepted(self, wanted: Offer, path: PathRecord) -> (Offer, MostGrown) {
        let rings = self.within_trust(wanted.rings);
        let most_grown = self.most_grown(path, wanted.mode);
        // Between ports whose rates both ends know, the rings are long enough from the start.
        let grows = wanted.grows && most_grown.bytes > rings.longer().get();
        let accepted = Offer {
            rings,
            grows,
            ..wanted
        };
        (accepted, most_grown)
    }

    /// The length to which rings may grow, from what this end knows about the path.
    pub(crate) fn most_grown(self, path: PathRecord, mode: Mode) -> MostGrown {
        let path = self.trusted(path);
        MostGrown {
            bytes: ring_length::most_grown(path, mode, self.limit, self.is_client),
            knows_path: path.rate.is_some(),
        }
    }

    /// The part of a path that the length of rings may follow.
    fn trusted(self, path: PathRecord) -> PathRecord {
        match self.is_client {
            true => ring_length::trusted(path),
            false => path,
        }
    }

    /// Bounds rings on behalf of a client whose length follows from what the other end claims.
    fn within_trust(self, rings: Lengths) -> Lengths {
        match self.asked.is_none() && self.is_client {
            true => ring_length::of_client(rings, self.limit),
            false => rings,
        }
    }
}

/// There is no memory for the messages of an adapter.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error(
    "no memory for messages: they take {bytes} bytes in addition to rings, which rdma-memory and the limit on pinned memory do \
     not leave"
)]
pub(crate) struct NoSlots {
    bytes: u64,
}

/// The offer of the connecting end, with pinned memory for its messages.
///
/// # Errors
///
/// When there is too little memory.
pub(crate) fn offer_with_slots(offer: Offer, share: &mut Share) -> Result<Offer, NoSlots> {
    let fitted = with_slots(offer, share)?;
    let rings = share.rings();
    Ok(Offer { rings, ..fitted }.within_pieces().within_rails())
}

/// What the accepting end chooses within its memory. An adapter needs pinned memory for messages.
///
/// # Errors
///
/// When there is too little memory.
pub(crate) fn choose(wanted: Offer, share: &mut Share, has_slots: bool) -> Result<Offer, NoSlots> {
    if wanted.aligned {
        share.shrink(share.rings().in_units(ALIGNMENT));
    }
    let rings = share.rings().reversed();
    let chosen = Offer { rings, ..wanted }.within_pieces();
    if !has_slots {
        return Ok(chosen.within_rails());
    }
    let fitted = with_slots(chosen, share)?;
    let rings = share.rings().reversed();
    Ok(Offer { rings, ..fitted }.within_rails())
}

/// Reserves pinned memory for messages, with inline payloads and queue pairs as far as there is some. The
/// rings may become shorter.
fn with_slots(offer: Offer, share: &mut Share) -> Result<Offer, NoSlots> {
    let fitted = offer.within_slots();
    if share.set_extra(fitted.slot_bytes()) {
        return Ok(fitted);
    }
    // Rings that stay as they are need fewer.
    let fitted = offer.without_growth().within_slots();
    if share.set_extra(fitted.slot_bytes()) {
        return Ok(fitted);
    }
    let usual = fitted.with_usual_slots();
    let one = Offer {
        queue_pairs: 1,
        ..usual
    };
    let found = [usual, one]
        .into_iter()
        .find(|offer| share.make_room(offer.slot_bytes()));
    found.ok_or_else(|| NoSlots {
        bytes: one.slot_bytes(),
    })
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    const MIB: u64 = 1 << 20;
    const GIB: u64 = 1 << 30;

    fn rules(is_client: bool, asked: Option<u64>) -> RingRules {
        RingRules {
            asked: asked.and_then(NonZeroU64::new),
            message_bytes: MIB / 4,
            is_client,
            limit: 64 * GIB,
            common: 8 * MIB,
        }
    }

    fn path(gigabits: u64, round_trip: Duration) -> PathRecord {
        PathRecord {
            rate: NonZeroU64::new(gigabits * 125_000_000),
            round_trip,
        }
    }

    const FAR: Duration = Duration::from_millis(100);

    fn offered(rules: RingRules, path: PathRecord, flow: Flow, over_tcp: bool) -> [u64; 2] {
        let load = Load {
            flow,
            channels: 1,
            over_tcp,
        };
        let Lengths { outgoing, incoming } = rules.offered(path, load);
        [outgoing.get(), incoming.get()]
    }

    #[test]
    fn the_direction_of_the_data_has_the_long_ring() {
        let far = path(100, FAR);
        let offered = |flow| offered(rules(false, None), far, flow, false);
        assert_eq!(offered(Flow::Both), [2_500_000_000; 2]);
        assert_eq!(offered(Flow::Out), [2_500_000_000, MIB / 4]);
        assert_eq!(offered(Flow::In), [MIB / 4, 2_500_000_000]);
    }

    #[test]
    fn clients_have_bounded_rings_unless_options_set_them() {
        let far = path(100, FAR);
        let offered = |rules| offered(rules, far, Flow::Out, false)[0];
        assert_eq!(offered(rules(true, None)), GIB);
        assert_eq!(offered(rules(true, Some(4 * GIB))), 4 * GIB);
        assert_eq!(offered(rules(false, Some(MIB))), MIB);
    }

    #[test]
    fn all_channels_of_a_short_path_could_have_their_rings() {
        let near = path(100, Duration::from_micros(50));
        let offered = |over_tcp| offered(rules(false, None), near, Flow::Both, over_tcp);
        assert_eq!(offered(false), [8 * MIB; 2]);
        assert_eq!(offered(true), [2 * MIB; 2]);
    }

    #[test]
    fn rings_grow_only_where_they_may_become_longer() {
        let grows = |is_client, gigabits| {
            let (rules, path) = (rules(is_client, None), path(gigabits, FAR));
            let rings = Lengths::both(rules.acceptable(path));
            let wanted = Offer {
                rings,
                queue_pairs: 1,
                pieces: 64,
                mode: Mode::Put,
                immediate: true,
                inline_bytes: 0,
                aligned: false,
                adapters: 1,
                rails: 1,
                grows: true,
            };
            let (accepted, most) = rules.accepted(wanted, path);
            (accepted.grows, accepted.rings.longer().get(), most.bytes)
        };
        assert_eq!(grows(false, 100), (false, 2_500_000_000, 2_500_000_000));
        assert_eq!(grows(true, 100), (true, GIB, 2_500_000_000));
        assert_eq!(grows(true, 10), (false, 250_000_000, 250_000_000));
        assert_eq!(grows(false, 0), (true, 16 * MIB, 32 * GIB));
    }
}
