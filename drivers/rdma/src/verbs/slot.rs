//! A slot, which successive queue pairs occupy.
//!
//! When a queue pair is lost, both ends discard theirs, exchange the numbers of new ones and connect
//! these. After that, no data of the lost one can be delivered any more. The end that notices the
//! loss first begins. A generation number identifies the queue pair that a notice is about. After
//! too many generations in a row without a completed request the ends give up.

use std::io;
use std::time::Duration;

use super::queue_pair::QueuePair;
use crate::clock;
use crate::provider::QueuePairRecord;

/// The most generations in a row in which no request completed.
const MAX_ATTEMPTS: u16 = 16;

/// The least time between two generations, if no request completed in between. With it an address may be absent for more than a
/// second before an end gives up.
pub(super) const LEAST_INTERVAL: Duration = Duration::from_millis(100);

/// The place of a queue pair in an endpoint.
#[derive(Debug)]
pub(super) struct Slot {
    pub(super) current: Option<QueuePair>,
    pub(super) connecting: Option<Connecting>,
    /// How many times it was replaced.
    pub(super) generation: u16,
    /// Generations since a request last completed.
    attempts: u16,
    /// When this end last began a generation.
    began_at: Duration,
    /// The peer's queue pair, to which this end connects its own when the path is known and the rail may.
    pub(super) connects_later: Option<QueuePairRecord>,
}

/// A queue pair that is not connected at both ends yet.
#[derive(Debug)]
pub(super) struct Connecting {
    pub(super) queue_pair: QueuePair,
    /// The sequence number of its first packet.
    pub(super) first_packet: u32,
    pub(super) is_connected: bool,
    pub(super) peer_is_connected: bool,
    pub(super) proof: Proof,
}

/// Whether packets of a replacement get to the peer. With several rails that is tested before it is used: its rail may have
/// failed, and the pieces that it got would hold up those of the others.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Proof {
    /// It is not tested.
    None,
    Wanted,
    /// A WRITE of no bytes is under way.
    Posted,
    Given,
}

impl Connecting {
    /// Tests whether packets get to the peer, once both ends are connected.
    ///
    /// # Errors
    ///
    /// When the device refuses the request.
    pub(super) fn prove(&mut self) -> io::Result<()> {
        if !self.is_connected || !self.peer_is_connected || self.proof != Proof::Wanted {
            return Ok(());
        }
        self.proof = Proof::Posted;
        self.queue_pair.write_nothing(0);
        self.queue_pair.ring_doorbell()
    }

    /// The record that the peer needs to connect.
    pub(super) fn record(&self) -> QueuePairRecord {
        QueuePairRecord {
            number: self.queue_pair.number(),
            first_packet: self.first_packet,
        }
    }
}

/// The content of a slot before it was cleared.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Content {
    Empty,
    /// A queue pair that was not reported as connected yet.
    Connecting,
    Connected,
}

impl Slot {
    /// A slot with its first queue pair.
    pub(super) fn new(connecting: Connecting) -> Self {
        Self {
            current: None,
            connecting: Some(connecting),
            generation: 0,
            attempts: 0,
            began_at: Duration::ZERO,
            connects_later: None,
        }
    }

    /// Discards the contents.
    pub(super) fn clear(&mut self) -> Content {
        self.connects_later = None;
        let connecting = self.connecting.take();
        match (self.current.take(), connecting) {
            (Some(_), _) => Content::Connected,
            (None, Some(_)) => Content::Connecting,
            (None, None) => Content::Empty,
        }
    }

    /// The queue pair that this end has connected.
    pub(super) fn connected(&mut self) -> Option<&mut QueuePair> {
        let connecting = self.connecting.as_mut();
        let connecting = connecting.filter(|connecting| connecting.is_connected);
        let connecting = connecting.map(|connecting| &mut connecting.queue_pair);
        self.current.as_mut().or(connecting)
    }

    /// The queue pair of this generation. Data may arrive over it before the peer confirms the
    /// connection.
    pub(super) fn of_generation(&mut self, generation: u16) -> Option<&mut QueuePair> {
        let connecting = self
            .connecting
            .as_mut()
            .map(|connecting| &mut connecting.queue_pair);
        let current = self.current.as_mut().or(connecting);
        current.filter(|queue_pair| queue_pair.generation() == generation)
    }

    /// A request has completed.
    pub(super) fn reset_attempts(&mut self) {
        self.attempts = 0;
    }

    /// When the next generation may begin, if that is later than `now`.
    pub(super) fn waits_until(&self, now: Duration) -> Option<Duration> {
        let due = self.began_at + LEAST_INTERVAL;
        (self.attempts > 0 && now < due).then_some(due)
    }

    /// Counts the next generation; `None` after too many.
    pub(super) fn next_generation(&mut self) -> Option<u16> {
        self.began_at = clock::now();
        self.attempts = self.attempts.saturating_add(1);
        if self.attempts > MAX_ATTEMPTS {
            return None;
        }
        self.generation = self.generation.checked_add(1)?;
        Some(self.generation)
    }

    /// The new queue pair is being tested.
    pub(super) fn awaits_proof(&self) -> bool {
        let connecting = self.connecting.as_ref();
        connecting.is_some_and(|connecting| connecting.proof == Proof::Posted)
    }

    /// A request of the new queue pair has completed: packets get to the peer.
    pub(super) fn prove(&mut self, request: u32) {
        if let Some(connecting) = &mut self.connecting
            && connecting.proof == Proof::Posted
            && connecting.queue_pair.complete(request).count() > 0
        {
            connecting.proof = Proof::Given;
            self.reset_attempts();
        }
    }

    /// Makes the new queue pair the current one, if both ends have connected it and it is proven.
    pub(super) fn promote(&mut self) -> bool {
        let is_ready = |connecting: &mut Connecting| {
            let is_proven = matches!(connecting.proof, Proof::None | Proof::Given);
            connecting.is_connected && connecting.peer_is_connected && is_proven
        };
        let Some(connecting) = self.connecting.take_if(is_ready) else {
            return false;
        };
        self.current = Some(connecting.queue_pair);
        true
    }
}
