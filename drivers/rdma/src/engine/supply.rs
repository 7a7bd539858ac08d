//! Where an engine gets further rings from.

use std::fmt;
use std::num::NonZeroU64;
use std::sync::Arc;

use super::sender::Shape;
use crate::memory::Memory;
use crate::provider::{Endpoint, Region};

/// A direction of a channel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Way {
    /// What this end sends.
    Outgoing,
    /// What it receives.
    Incoming,
}

impl Way {
    /// The one for this direction.
    pub(crate) fn of<T>(self, [outgoing, incoming]: [T; 2]) -> T {
        match self {
            Self::Outgoing => outgoing,
            Self::Incoming => incoming,
        }
    }
}

/// Supplies registered memory for rings, never waiting.
pub(crate) trait Supply: fmt::Debug + Send {
    /// Asks for a ring. One is asked for at a time in each direction. Returns the length that is reserved for it, in bytes,
    /// or `None` if there is no memory: then there is no answer.
    fn ask(&mut self, endpoint: &mut dyn Endpoint, way: Way, wanted: Wanted) -> Option<NonZeroU64>;

    /// The answer, once: a ring, or `None` if it cannot be prepared. Outer `None` while the ring is
    /// being prepared.
    fn answer(&mut self, endpoint: &mut dyn Endpoint, way: Way) -> Option<Option<Supplied>>;

    /// Whether other channels wait for memory.
    fn is_contended(&self) -> bool;

    /// Whether the rate of the path is known, so that no ring is longer than the path needs.
    fn knows_path(&self) -> bool;

    /// The shortest ring that a peer may offer, in bytes.
    fn least_bytes(&self) -> u64;

    /// How the stream is cut where `window` bytes may be in flight in a ring of the peer of `ring`
    /// bytes.
    fn shape(&self, window: NonZeroU64, ring: NonZeroU64) -> Shape;
}

/// The lengths of a ring that is asked for, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Wanted {
    pub(crate) bytes: u64,
    /// A shorter ring is refused.
    pub(crate) least: u64,
    /// The ring that it replaces, and that is held until the stream has left it.
    pub(crate) present: u64,
}

/// A registered ring.
#[derive(Debug)]
pub(crate) struct Supplied {
    pub(crate) bytes: NonZeroU64,
    pub(crate) region: Region,
    /// `None` in runs that do not look at the content.
    pub(crate) memory: Option<Arc<Memory>>,
}
