//! Longer and shorter rings while streams run.
//!
//! The receiver decides, because it sees whether its ring is the limit. It asks for memory, which another
//! thread prepares, and offers the ring to the peer. The sender asks for a ring of its own as well, and
//! moves the stream to both (`sender::moving`). When the sender reports that it has left the earlier
//! ring, that is deregistered and released. Each step happens once for each ring, and one ring is
//! offered at a time, so a peer cannot make this end hold more than two in each direction.

use std::num::NonZeroU64;
use std::sync::Arc;
use std::time::Duration;

use super::{Exchange, Fault};
use crate::engine::demand::{Demand, State, Wish};
use crate::engine::message::Message;
use crate::engine::sender::Destination;
use crate::engine::supply::{Supplied, Supply, Wanted, Way};
use crate::memory::Memory;
use crate::provider::{Endpoint, RemoteRing, Request, Work};

/// The changes of the rings of a channel.
#[derive(Debug)]
pub(super) struct Growth {
    supply: Box<dyn Supply>,
    demand: Demand,
    /// What the demand led to while the stream was in two rings.
    wish: Option<Wish>,
    receiving: Receiving,
    /// The number of the ring that is received into.
    received: u32,
    sending: Sending,
    /// The number of the last ring that the peer has offered.
    offered: u32,
    /// What the peer had taken when the ring that is sent from last changed.
    taken_before: u64,
    /// The first ring of this end was exchanged for a longer one.
    is_longer: bool,
}

/// The ring that this end receives into.
#[derive(Debug)]
enum Receiving {
    Steady,
    /// Memory is being prepared.
    Asked,
    /// A ring was offered to the peer, or is to be.
    Offered {
        ring: Supplied,
        /// The offer was sent at least once.
        is_told: bool,
        /// It is to be sent, perhaps again.
        is_due: bool,
    },
    /// The stream is in two rings.
    Moving {
        has_moved: bool,
    },
}

/// The rings that this end sends to and from.
#[derive(Debug)]
enum Sending {
    Steady,
    /// The peer has offered a ring, and memory for ours is being prepared.
    Asked(Offer),
    /// The stream moves as soon as it can; the memory is `None` where our ring stays.
    Ready(Offer, Option<Supplied>),
    /// It is in two rings.
    Moving,
}

/// A ring of the peer.
#[derive(Debug, Clone, Copy)]
struct Offer {
    number: u32,
    bytes: NonZeroU64,
    remote: RemoteRing,
}

/// How the peer violated the protocol.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(crate) enum GrowthError {
    #[error("the peer sent a message about another ring, which was not negotiated")]
    NotNegotiated,
    #[error("the peer offered ring {0}, which was not due")]
    Offer(u32),
    #[error("the peer offered a ring of {bytes} bytes, and {least} are the least")]
    Length { bytes: u64, least: u64 },
    #[error("the peer moved the stream to ring {0}, which it was not offered")]
    Switch(u32),
    #[error("the peer has left the ring before ring {0}, to which the stream was not moved")]
    Left(u32),
}

/// Our ring has at most so many times the bytes that the peer has taken since our ring last changed. A peer
/// whose ring is the limit has taken most of one in the round trip that it observed, and offers four.
const MOST_STEP: u64 = 8;

/// How often memory that another thread prepares is asked for.
const ASK_INTERVAL: Duration = Duration::from_millis(5);

/// How often a stream that does not move is looked at, so that memory that it does not use is released.
const LOOK_INTERVAL: Duration = Duration::from_secs(1);

impl Growth {
    /// A queue pair was lost, perhaps with the offer of a ring. The peer ignores a repeated one.
    pub(super) fn lost(&mut self) {
        if let Receiving::Offered { is_due, .. } = &mut self.receiving {
            *is_due = true;
        }
    }

    /// When to look again if no event comes before.
    pub(super) fn next_at(&self, now: Duration) -> Option<Duration> {
        let is_asked =
            matches!(self.receiving, Receiving::Asked) || matches!(self.sending, Sending::Asked(_));
        if is_asked {
            return Some(now + ASK_INTERVAL);
        }
        self.is_longer.then_some(now + LOOK_INTERVAL)
    }
}

impl Exchange {
    /// Both rings may change: `supply` provides further ones. `round_trip` is that of the path.
    pub(crate) fn let_rings_change(&mut self, supply: Box<dyn Supply>, round_trip: Duration) {
        self.growth = Some(Growth {
            supply,
            demand: Demand::new(round_trip, self.receiver.ring_bytes()),
            wish: None,
            receiving: Receiving::Steady,
            received: 0,
            sending: Sending::Steady,
            offered: 0,
            taken_before: 0,
            is_longer: false,
        });
    }

    /// The path is as long as that from now on.
    #[cfg(test)]
    pub(crate) fn expect_round_trip(&mut self, round_trip: Duration) {
        let growth = self.growth.as_mut().expect("the rings may change");
        growth.demand = Demand::new(round_trip, self.receiver.ring_bytes());
    }

    /// The ring to send from from now on, if it has changed.
    pub(crate) fn take_outgoing(&mut self) -> Option<Arc<Memory>> {
        self.outgoing.take()
    }

    /// Takes the next steps of both directions.
    pub(super) fn change_rings(
        &mut self,
        endpoint: &mut dyn Endpoint,
        now: Duration,
    ) -> Result<(), Fault> {
        let Some(mut growth) = self.growth.take() else {
            return Ok(());
        };
        self.change_outgoing(&mut growth, endpoint);
        let changed = self.change_incoming(&mut growth, endpoint, now);
        self.growth = Some(growth);
        match changed? {
            true => self.work(endpoint, now),
            false => Ok(()),
        }
    }

    /// Takes the next step of the ring that this end receives into. Returns whether a message was posted.
    fn change_incoming(
        &mut self,
        growth: &mut Growth,
        endpoint: &mut dyn Endpoint,
        now: Duration,
    ) -> Result<bool, Fault> {
        self.look(growth, now);
        match &mut growth.receiving {
            Receiving::Steady => {
                if let Some(wish) = growth.wish.take() {
                    let wanted = Wanted {
                        bytes: wish.bytes,
                        least: wish.least,
                        present: self.receiver.ring_bytes(),
                    };
                    growth.supply.ask(endpoint, Way::Incoming, wanted);
                    growth.receiving = Receiving::Asked;
                }
            }
            Receiving::Asked => match growth.supply.answer(endpoint, Way::Incoming) {
                Some(Some(ring)) => {
                    growth.receiving = Receiving::Offered {
                        ring,
                        is_told: false,
                        is_due: true,
                    };
                }
                Some(None) => {
                    growth.demand.refused(now);
                    growth.receiving = Receiving::Steady;
                }
                None => {}
            },
            Receiving::Offered {
                ring,
                is_told,
                is_due,
            } if *is_due => {
                let Some(queue_pair) = self.sender.reserve(now) else {
                    return Ok(false);
                };
                (*is_told, *is_due) = (true, false);
                let message = Message::Ring {
                    number: growth.received + 1,
                    bytes: ring.bytes.get(),
                    address: ring.region.address,
                    key: ring.region.key,
                };
                let work = Work::Send(message.encode());
                Self::post(endpoint, queue_pair, Request { id: 0, work })?;
                endpoint.ring_doorbell();
                return Ok(true);
            }
            Receiving::Offered { .. } | Receiving::Moving { .. } => {}
        }
        Ok(false)
    }

    /// Observes the stream, from the moment on when everything that is taken out comes from its present
    /// ring.
    fn look(&self, growth: &mut Growth, now: Duration) {
        match &mut growth.receiving {
            Receiving::Steady => {}
            Receiving::Moving { has_moved } if self.receiver.has_moved() => {
                if !std::mem::replace(has_moved, true) {
                    growth.demand.moved();
                }
            }
            _ => return,
        }
        if growth.wish.is_none() && !self.receiver.has_ended() {
            let state = State {
                position: self.receiver.consumed(),
                waiting: self.receiver.arrived_bytes(),
                held: self.receiver.held_bytes(),
                ring: self.receiver.ring_bytes(),
                window: self.receiver.window_bytes(),
            };
            let supply = &growth.supply;
            growth.wish = growth.demand.look(now, state, || supply.is_contended());
        }
    }

    fn change_outgoing(&mut self, growth: &mut Growth, endpoint: &mut dyn Endpoint) {
        if let Sending::Asked(offer) = growth.sending
            && let Some(own) = growth.supply.answer(endpoint, Way::Outgoing)
        {
            growth.sending = Sending::Ready(offer, own);
        }
        if let Sending::Ready(offer, own) = &mut growth.sending
            && self.sender.can_move(offer.bytes)
        {
            let (offer, own) = (*offer, own.take());
            self.move_outgoing(growth, offer, own);
        }
        if matches!(growth.sending, Sending::Moving)
            && let Some(left) = self.sender.leave()
        {
            if let Some(region) = left {
                endpoint.deregister(region);
            }
            growth.sending = Sending::Steady;
        }
    }

    fn move_outgoing(&mut self, growth: &mut Growth, offer: Offer, own: Option<Supplied>) {
        let own_bytes = own.as_ref().map(|own| own.bytes);
        let window = own_bytes
            .unwrap_or_else(|| self.sender.ring_length())
            .min(offer.bytes);
        let shape = growth.supply.shape(window, offer.bytes);
        let to = Destination {
            number: offer.number,
            theirs: (offer.remote, offer.bytes),
            own: own.as_ref().map(|own| (own.region.id, own.bytes)),
        };
        self.sender.move_to(to, shape);
        if let Some(own) = own {
            growth.taken_before = self.sender.taken();
            self.outgoing = own.memory;
        }
        self.meter.moves.add_one();
        growth.sending = Sending::Moving;
    }

    /// The changes of rings, if they were negotiated and are still possible.
    fn growth(&mut self) -> Result<Option<&mut Growth>, GrowthError> {
        if self.growth.is_none() && !self.has_given_back {
            return Err(GrowthError::NotNegotiated);
        }
        Ok(self.growth.as_mut())
    }

    /// The peer offers a ring. A stream that ends stays where it is.
    pub(super) fn ring_offered(
        &mut self,
        endpoint: &mut dyn Endpoint,
        number: u32,
        bytes: u64,
        remote: RemoteRing,
    ) -> Result<(), GrowthError> {
        let own = self.sender.ring_length().get();
        let taken = self.sender.taken();
        let Some(growth) = self.growth()? else {
            return Ok(());
        };
        if number <= growth.offered {
            return Ok(());
        }
        let is_due = growth.offered.checked_add(1) == Some(number);
        if !is_due || !matches!(growth.sending, Sending::Steady) {
            return Err(GrowthError::Offer(number));
        }
        let least = growth.supply.least_bytes();
        let length = NonZeroU64::new(bytes).filter(|bytes| bytes.get() >= least);
        let Some(length) = length else {
            return Err(GrowthError::Length { bytes, least });
        };
        growth.offered = number;
        let offer = Offer {
            number,
            bytes: length,
            remote,
        };
        // Our ring follows what the peer takes, not what it claims that it could.
        let most = MOST_STEP.saturating_mul(taken.saturating_sub(growth.taken_before));
        let wanted = bytes.min(most.max(own));
        let least = bytes.min(own.saturating_add(own / 4));
        // Otherwise a peer could make this end map and clear a ring of nearly the same length with each message.
        let is_worth_it = wanted >= own.saturating_add(own / 4) || wanted <= own / 2;
        growth.sending = if is_worth_it {
            let wanted = Wanted {
                bytes: wanted,
                least,
                present: own,
            };
            growth.supply.ask(endpoint, Way::Outgoing, wanted);
            Sending::Asked(offer)
        } else {
            Sending::Ready(offer, None)
        };
        Ok(())
    }

    /// The peer moves the stream to the ring that it was offered.
    pub(super) fn switched(&mut self, number: u32, at: u64, window: u64) -> Result<(), Fault> {
        let Some(growth) = self.growth()? else {
            return Ok(());
        };
        if number <= growth.received {
            // It comes once on each queue pair.
            return Ok(());
        }
        let offered = std::mem::replace(&mut growth.receiving, Receiving::Steady);
        let Receiving::Offered {
            ring,
            is_told: true,
            ..
        } = offered
        else {
            return Err(GrowthError::Switch(number).into());
        };
        if growth.received.checked_add(1) != Some(number) {
            return Err(GrowthError::Switch(number).into());
        }
        growth.received = number;
        growth.is_longer = true;
        growth.receiving = Receiving::Moving { has_moved: false };
        let region = ring.region.id;
        self.receiver.switch(at, (ring.bytes, region), window)?;
        if let Some(memory) = ring.memory {
            self.incoming.push((region, memory));
        }
        self.meter.moves.add_one();
        Ok(())
    }

    /// Nothing more arrives in the earlier ring.
    pub(super) fn peer_left(
        &mut self,
        endpoint: &mut dyn Endpoint,
        number: u32,
    ) -> Result<(), Fault> {
        let Some(growth) = self.growth()? else {
            return Ok(());
        };
        if number > growth.received {
            return Err(GrowthError::Left(number).into());
        }
        let is_moving = matches!(growth.receiving, Receiving::Moving { .. });
        if number < growth.received || !is_moving {
            // It was repeated.
            return Ok(());
        }
        growth.receiving = Receiving::Steady;
        let region = self.receiver.leave()?;
        endpoint.deregister(region);
        self.incoming.retain(|(other, _)| *other != region);
        Ok(())
    }
}
