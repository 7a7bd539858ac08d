//! Further rings for simulated channels: real reservations in a pool, and memory that may have addresses
//! only. It is there when a thread would have mapped and pinned it.

use std::num::{NonZeroU64, NonZeroUsize};
use std::sync::Arc;
use std::time::Duration;

use super::endpoint::{Addresses, SimEndpoint};
use super::preparation::Preparation;
use crate::engine::{Shape, Supplied, Supply, Wanted, Way};
use crate::handshake::Mode;
use crate::memory::{Memory, Part, Share};
use crate::open::ring_length::MostGrown;
use crate::open::shape::Shaping;
use crate::provider::Endpoint;

/// What the rings of one end are made of.
#[derive(Debug)]
pub(crate) struct Supplies {
    /// With those of its first rings.
    pub(crate) share: (Arc<Share>, [Part; 2]),
    pub(crate) shaping: Shaping,
    pub(crate) mode: Mode,
    pub(crate) most: MostGrown,
    /// How long rings take to be there.
    pub(crate) preparation: Preparation,
    /// One ring of so many cannot be prepared; 0 if all can.
    pub(crate) fails_once_in: u64,
}

/// The rings of one end.
#[derive(Debug)]
pub(crate) struct RingSupply {
    share: Arc<Share>,
    shaping: Shaping,
    mode: Mode,
    most: MostGrown,
    preparation: Preparation,
    fails_once_in: u64,
    prepared: u64,
    addresses: Addresses,
    has_content: bool,
    /// What was asked for, by direction.
    asked: [Option<Asked>; 2],
}

/// A ring that was asked for.
#[derive(Debug)]
struct Asked {
    part: Part,
    ready_at: Duration,
}

impl RingSupply {
    /// The first rings have the regions `first`.
    pub(crate) fn new(
        supplies: Supplies,
        endpoint: &SimEndpoint,
        first: [usize; 2],
        has_content: bool,
    ) -> Self {
        let addresses = endpoint.addresses();
        let (share, parts) = supplies.share;
        for (region, part) in first.into_iter().zip(parts) {
            addresses.hold(region, part);
        }
        Self {
            share,
            shaping: supplies.shaping,
            mode: supplies.mode,
            most: supplies.most,
            preparation: supplies.preparation,
            fails_once_in: supplies.fails_once_in,
            prepared: 0,
            addresses,
            has_content,
            asked: [None, None],
        }
    }
}

impl Supply for RingSupply {
    fn ask(&mut self, _: &mut dyn Endpoint, way: Way, wanted: Wanted) -> Option<NonZeroU64> {
        let most = wanted.bytes.min(self.most.bytes);
        let is_long_enough = most >= wanted.least;
        let share = Some(&self.share).filter(|_| is_long_enough)?;
        let part = share.further([wanted.least, most], wanted.present)?;
        let bytes = part.bytes();
        let ready_at = self
            .addresses
            .now()
            .saturating_add(self.preparation.time(bytes));
        self.asked[way as usize] = Some(Asked { part, ready_at });
        NonZeroU64::new(bytes)
    }

    fn answer(&mut self, endpoint: &mut dyn Endpoint, way: Way) -> Option<Option<Supplied>> {
        let now = self.addresses.now();
        let asked = self.asked[way as usize].take_if(|asked| asked.ready_at <= now)?;
        self.prepared += 1;
        if self.prepared.is_multiple_of(self.fails_once_in) {
            return Some(None);
        }
        let part = asked.part;
        let bytes = NonZeroU64::new(part.bytes()).expect("a part has bytes");
        let access = way.of(self.mode.access());
        let memory = self.has_content.then(|| {
            let length = NonZeroUsize::try_from(bytes).expect("short");
            Arc::new(Memory::new(length).expect("memory"))
        });
        let region = match &memory {
            Some(memory) => endpoint.register(memory, access).expect("registered"),
            None => self.addresses.register(bytes.get(), access),
        };
        self.addresses.hold(region.id, part);
        Some(Some(Supplied {
            bytes,
            region,
            memory,
        }))
    }

    fn is_contended(&self) -> bool {
        self.share.is_contended()
    }

    fn knows_path(&self) -> bool {
        self.most.knows_path
    }

    fn least_bytes(&self) -> u64 {
        1
    }

    fn shape(&self, window: NonZeroU64, ring: NonZeroU64) -> Shape {
        self.shaping.shape(window, ring)
    }
}
