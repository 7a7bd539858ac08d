//! Rings that are prepared and offered, and perhaps not used.
//!
//! The peer learns the length of a ring when its preparation begins. A ring that cannot be prepared is taken back, too.
//!
//! The memory of an offered ring counts for this end while the peer may write to it. So an end that receives takes a ring back to
//! which the stream does not move in time. The peer answers that it declines the ring, or has moved before. It may also be idle: then
//! it finds the offer and the end of it together later, and declines. A ring of a peer that does not answer is deregistered, so
//! that it loses the connection if it writes there.

use std::num::NonZeroU64;
use std::time::Duration;

use super::{Growth, GrowthError, Receiving, Sending};
use crate::engine::exchange::{Exchange, Fault};
use crate::engine::message::Message;
use crate::engine::supply::{Supplied, Way};
use crate::provider::{Endpoint, Keys};

/// How long an offered ring waits for the stream. A sender prepares a ring of its own meanwhile, which takes seconds.
pub(super) const USE_TIME: Duration = Duration::from_secs(60);

/// How long a ring that is taken back waits for the peer's answer: longer than messages may be under way.
const ANSWER_TIME: Duration = Duration::from_secs(300);

/// A ring that was offered to the peer, or is to be.
#[derive(Debug)]
pub(super) struct Offered {
    ring: Ring,
    /// When the peer was told first where the ring is.
    told_at: Option<Duration>,
    taken_back_at: Option<Duration>,
    /// That it is prepared, where it is, or that it is taken back, is to be told, perhaps again.
    is_due: bool,
}

/// The ring that is to be offered.
#[derive(Debug)]
enum Ring {
    /// Memory of so many bytes is being prepared.
    Preparing(NonZeroU64),
    /// With its address for the peer, and its keys at the adapters of this end.
    Ready(Supplied, (u64, Keys)),
    /// It could not be prepared.
    Failed,
}

impl Offered {
    /// A ring of so many bytes is being prepared.
    pub(super) fn preparing(bytes: NonZeroU64) -> Self {
        Self {
            ring: Ring::Preparing(bytes),
            told_at: None,
            taken_back_at: None,
            is_due: true,
        }
    }

    pub(super) fn is_preparing(&self) -> bool {
        matches!(self.ring, Ring::Preparing(_))
    }

    /// It is there, with its address and keys for the peer, or could not be prepared.
    fn prepared(&mut self, ring: Option<(Supplied, (u64, Keys))>, now: Duration) {
        self.is_due = true;
        self.ring = match ring {
            Some((ring, exposed)) => Ring::Ready(ring, exposed),
            None => {
                // The peer may have memory for it.
                self.taken_back_at = Some(now);
                Ring::Failed
            }
        };
    }

    /// Whether the peer may know where it is.
    pub(super) fn is_told(&self) -> bool {
        self.told_at.is_some()
    }

    /// The ring, if the peer may know where it is.
    pub(super) fn into_told(self) -> Option<Supplied> {
        let is_told = self.is_told();
        self.into_ring().filter(|_| is_told)
    }

    fn into_ring(self) -> Option<Supplied> {
        match self.ring {
            Ring::Ready(ring, _) => Some(ring),
            Ring::Preparing(_) | Ring::Failed => None,
        }
    }

    /// A queue pair was lost, perhaps with the message.
    pub(super) fn lost(&mut self) {
        self.is_due = true;
    }

    /// Takes it back if the stream has not moved to it for `use_time`.
    fn take_back_unused(&mut self, use_time: Duration, now: Duration) {
        let is_unused = self.told_at.is_some_and(|at| now >= at + use_time);
        if is_unused && self.taken_back_at.is_none() {
            (self.taken_back_at, self.is_due) = (Some(now), true);
        }
    }

    /// Whether the peer has not answered in time after it was taken back.
    fn is_unanswered(&self, now: Duration) -> bool {
        self.taken_back_at.is_some_and(|at| now >= at + ANSWER_TIME)
    }

    /// When to look again.
    pub(super) fn next_at(&self, use_time: Duration) -> Option<Duration> {
        let answered_by = self.taken_back_at.map(|at| at + ANSWER_TIME);
        answered_by.or_else(|| self.told_at.map(|at| at + use_time))
    }

    /// What the peer is to be told about this ring, with its number.
    fn message(&self, number: u32) -> Option<Message> {
        if !self.is_due {
            return None;
        }
        Some(match &self.ring {
            _ if self.taken_back_at.is_some() => Message::TakeBack { number },
            Ring::Failed => Message::TakeBack { number },
            Ring::Preparing(bytes) => Message::Preparing {
                number,
                bytes: bytes.get(),
            },
            Ring::Ready(ring, (address, keys)) => Message::Ring {
                number,
                bytes: ring.bytes.get(),
                address: *address,
                keys: *keys,
            },
        })
    }

    /// The peer was told.
    fn told(&mut self, now: Duration) {
        self.is_due = false;
        if matches!(self.ring, Ring::Ready(..)) {
            self.told_at.get_or_insert(now);
        }
    }
}

/// The answer to a peer that takes a ring back.
#[derive(Debug, Clone, Copy)]
pub(super) struct Decline {
    number: u32,
    /// It is to be sent, perhaps again.
    pub(super) is_due: bool,
}

impl Exchange {
    /// Takes the next step of a ring that is to be offered. Returns whether a message was posted.
    pub(super) fn offer(
        &mut self,
        growth: &mut Growth,
        endpoint: &mut dyn Endpoint,
        now: Duration,
    ) -> Result<bool, Fault> {
        let Receiving::Offered(offered) = &mut growth.receiving else {
            return Ok(false);
        };
        if offered.is_preparing()
            && let Some(ring) = growth.supply.answer(endpoint, Way::Incoming)
        {
            let with_keys = |ring: Supplied| {
                let exposed = self.exposed(endpoint, &ring);
                (ring, exposed)
            };
            offered.prepared(ring.map(with_keys), now);
        }
        offered.take_back_unused(growth.use_time, now);
        if offered.is_unanswered(now) {
            let before = std::mem::replace(&mut growth.receiving, Receiving::Unanswered);
            if let Receiving::Offered(offered) = before
                && let Some(ring) = offered.into_ring()
            {
                endpoint.deregister(ring.region.id);
            }
            return Ok(false);
        }
        let Some(message) = offered.message(growth.offers) else {
            return Ok(false);
        };
        let is_posted = self.tell(endpoint, message, now)?;
        if is_posted {
            offered.told(now);
        }
        Ok(is_posted)
    }

    /// The peer takes back the ring that it offered. If the stream has moved there, it knows that already, or will.
    pub(in crate::engine::exchange) fn ring_taken_back(
        &mut self,
        endpoint: &mut dyn Endpoint,
        number: u32,
    ) -> Result<(), GrowthError> {
        let after = self
            .sender
            .taken()
            .saturating_add(self.sender.ring_length().get());
        let Some(growth) = self.growth()? else {
            return Ok(());
        };
        if number > growth.announced {
            // What was said about it was lost with a queue pair.
            if !growth.is_due(number) {
                return Err(GrowthError::TakeBack(number));
            }
            growth.announced = number;
        }
        if number < growth.announced || number <= growth.moved {
            return Ok(());
        }
        // A peer may not make this end map and clear a ring with each message.
        growth.sending = match std::mem::replace(&mut growth.sending, Sending::Steady) {
            Sending::Asked(_) => {
                growth.changes_after = after;
                Sending::Declining
            }
            Sending::Ready(_, Some(own)) => {
                growth.changes_after = after;
                endpoint.deregister(own.region.id);
                Sending::Steady
            }
            Sending::Ready(_, None) => Sending::Steady,
            other => other,
        };
        let is_due = true;
        growth.decline = Some(Decline { number, is_due });
        Ok(())
    }

    /// Answers a peer that takes a ring back, once no memory is being prepared for it: the next offer may follow. Returns whether a
    /// message was posted.
    pub(super) fn decline(
        &mut self,
        growth: &mut Growth,
        endpoint: &mut dyn Endpoint,
        now: Duration,
    ) -> Result<bool, Fault> {
        if matches!(growth.sending, Sending::Declining)
            && let Some(own) = growth.supply.answer(endpoint, Way::Outgoing)
        {
            if let Some(own) = own {
                endpoint.deregister(own.region.id);
            }
            growth.sending = Sending::Steady;
        }
        let Some(decline) = growth.decline.as_mut().filter(|decline| decline.is_due) else {
            return Ok(false);
        };
        if !matches!(growth.sending, Sending::Steady) {
            return Ok(false);
        }
        let number = decline.number;
        let is_posted = self.tell(endpoint, Message::Declined { number }, now)?;
        decline.is_due = !is_posted;
        Ok(is_posted)
    }

    /// The stream does not move to the ring that was taken back.
    pub(in crate::engine::exchange) fn ring_declined(
        &mut self,
        endpoint: &mut dyn Endpoint,
        number: u32,
        now: Duration,
    ) -> Result<(), GrowthError> {
        let Some(growth) = self.growth()? else {
            return Ok(());
        };
        if number < growth.offers {
            return Ok(());
        }
        if number > growth.offers {
            return Err(GrowthError::Declined(number));
        }
        growth.receiving = match std::mem::replace(&mut growth.receiving, Receiving::Steady) {
            Receiving::Offered(offered) => {
                if offered.taken_back_at.is_none() {
                    return Err(GrowthError::Declined(number));
                }
                if let Some(ring) = offered.into_ring() {
                    endpoint.deregister(ring.region.id);
                }
                growth.demand.refused(now);
                Receiving::Steady
            }
            Receiving::Unanswered => Receiving::Steady,
            // It was repeated.
            other => other,
        };
        Ok(())
    }
}
