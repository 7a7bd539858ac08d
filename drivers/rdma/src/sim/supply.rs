//! Further rings for simulated channels: real reservations in a pool, and memory that may have addresses
//! only.

use std::num::{NonZeroU64, NonZeroUsize};
use std::sync::Arc;

use super::endpoint::{Addresses, SimEndpoint};
use crate::engine::{Shape, Supplied, Supply, Wanted, Way};
use crate::handshake::Mode;
use crate::memory::{Memory, Part, Share};
use crate::open::shape::Shaping;
use crate::provider::Endpoint;

/// What the rings of one end are made of.
#[derive(Debug)]
pub(crate) struct Supplies {
    /// With its first rings.
    pub(crate) share: (Arc<Share>, [Arc<Memory>; 2]),
    pub(crate) shaping: Shaping,
    /// The longest ring in bytes.
    pub(crate) most: u64,
    /// Answers come at the so-many-th call.
    pub(crate) calls: usize,
}

/// The rings of one end.
#[derive(Debug)]
pub(crate) struct RingSupply {
    supplies: Supplies,
    addresses: Addresses,
    has_content: bool,
    /// What was asked for, by direction, and how often the answer was not there yet.
    asked: [Option<(Option<Part>, usize)>; 2],
    /// The parts of the rings of each direction, with their regions.
    parts: [Vec<(usize, Part)>; 2],
}

impl RingSupply {
    pub(crate) fn new(supplies: Supplies, endpoint: &SimEndpoint, has_content: bool) -> Self {
        Self {
            supplies,
            addresses: endpoint.addresses(),
            has_content,
            asked: [None, None],
            parts: [Vec::new(), Vec::new()],
        }
    }
}

impl Supply for RingSupply {
    fn ask(&mut self, _: &mut dyn Endpoint, way: Way, wanted: Wanted) {
        let addresses = &self.addresses;
        self.parts[way as usize].retain(|(region, _)| addresses.has(*region));
        let most = wanted.bytes.min(self.supplies.most);
        let is_long_enough = most >= wanted.least;
        let share = Some(&self.supplies.share.0).filter(|_| is_long_enough);
        let part = share.and_then(|share| share.further([wanted.least, most], wanted.present));
        self.asked[way as usize] = Some((part, self.supplies.calls));
    }

    fn answer(&mut self, endpoint: &mut dyn Endpoint, way: Way) -> Option<Option<Supplied>> {
        let (part, calls) = self.asked[way as usize].as_mut()?;
        if *calls > 0 {
            *calls -= 1;
            return None;
        }
        let part = part.take();
        self.asked[way as usize] = None;
        let Some(part) = part else {
            return Some(None);
        };
        let bytes = NonZeroU64::new(part.bytes()).expect("a part has bytes");
        let [outgoing, incoming] = Mode::Put.access();
        let access = match way {
            Way::Outgoing => outgoing,
            Way::Incoming => incoming,
        };
        let memory = self.has_content.then(|| {
            let length = NonZeroUsize::try_from(bytes).expect("short");
            Arc::new(Memory::new(length).expect("memory"))
        });
        let region = match &memory {
            Some(memory) => endpoint.register(memory, access).expect("registered"),
            None => self.addresses.register(bytes.get(), access),
        };
        self.parts[way as usize].push((region.id, part));
        Some(Some(Supplied {
            bytes,
            region,
            memory,
        }))
    }

    fn is_contended(&self) -> bool {
        self.supplies.share.0.is_contended()
    }

    fn least_bytes(&self) -> u64 {
        1
    }

    fn shape(&self, window: NonZeroU64, ring: NonZeroU64) -> Shape {
        self.supplies.shaping.shape(window, ring)
    }
}
