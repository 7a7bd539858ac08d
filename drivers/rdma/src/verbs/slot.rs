//! The slot of a queue pair, which successive queue pairs may occupy.
//!
//! When a queue pair is lost, both ends discard theirs, exchange the next ones and connect them.
//! Each end then knows that nothing of the earlier one is delivered any more. The end that notices
//! first begins. Lives are numbered, so that both ends agree on the queue pair that a notice means,
//! and bounded, so that the ends do not try without end where nothing gets through.

use super::queue_pair::QueuePair;
use crate::provider::QueuePairRecord;

/// The most lives in a row in which no request completed.
const MAX_FRUITLESS_LIVES: u16 = 16;

/// The slot of a queue pair.
#[derive(Debug)]
pub(super) struct Slot {
    pub(super) living: Option<QueuePair>,
    pub(super) coming: Option<Coming>,
    /// How many times it was replaced.
    pub(super) life: u16,
    fruitless: u16,
}

/// A queue pair that is not connected at both ends yet.
#[derive(Debug)]
pub(super) struct Coming {
    pub(super) queue_pair: QueuePair,
    /// The sequence number of its first packet.
    pub(super) first_packet: u32,
    pub(super) is_connected: bool,
    pub(super) peer_is_connected: bool,
}

impl Coming {
    /// The record that the peer needs to connect.
    pub(super) fn record(&self) -> QueuePairRecord {
        QueuePairRecord {
            number: self.queue_pair.number(),
            first_packet: self.first_packet,
        }
    }
}

/// What was in a slot.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Content {
    Nothing,
    /// It was not reported as connected yet.
    Coming,
    Living,
}

impl Slot {
    /// With its first queue pair.
    pub(super) fn new(coming: Coming) -> Self {
        Self {
            living: None,
            coming: Some(coming),
            life: 0,
            fruitless: 0,
        }
    }

    /// Discards the contents.
    pub(super) fn clear(&mut self) -> Content {
        let coming = self.coming.take();
        match (self.living.take(), coming) {
            (Some(_), _) => Content::Living,
            (None, Some(_)) => Content::Coming,
            (None, None) => Content::Nothing,
        }
    }

    /// The queue pair of this life. Data may arrive over it before it is known to be connected.
    pub(super) fn of_life(&mut self, life: u16) -> Option<&mut QueuePair> {
        let coming = self.coming.as_mut().map(|coming| &mut coming.queue_pair);
        let current = self.living.as_mut().or(coming);
        current.filter(|queue_pair| queue_pair.life() == life)
    }

    /// A request has completed.
    pub(super) fn bears_fruit(&mut self) {
        self.fruitless = 0;
    }

    /// Counts the next life; `None` after too many.
    pub(super) fn next_life(&mut self) -> Option<u16> {
        self.fruitless += 1;
        if self.fruitless > MAX_FRUITLESS_LIVES {
            return None;
        }
        self.life = self.life.checked_add(1)?;
        Some(self.life)
    }

    /// Makes the new queue pair the connected one, if both ends have connected it.
    pub(super) fn revive(&mut self) -> bool {
        let is_ready = |coming: &mut Coming| coming.is_connected && coming.peer_is_connected;
        let Some(coming) = self.coming.take_if(is_ready) else {
            return false;
        };
        self.living = Some(coming.queue_pair);
        true
    }
}
