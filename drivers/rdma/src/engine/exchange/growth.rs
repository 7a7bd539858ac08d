//! Longer and shorter rings while streams run.
//!
//! The receiver decides, because it sees whether its ring is the limit. It asks for memory, which another
//! thread prepares, and announces the ring to the peer, which asks for a ring of its own: both ends prepare theirs at the same
//! time. Then it offers its ring, and the sender moves the stream to both (`sender::moving`). When the sender reports that it has
//! left the earlier ring, that is deregistered and released, a long one by another thread. Each step happens once for each
//! ring, and one ring is announced at a time, so a peer cannot make this end hold more than two in each
//! direction beside those that are being released, which count against the bound. A ring that is not used
//! is taken back ([`offered`]).
//!
//! In `mode=get` the steps are the same ([`fetched`]).

mod fetched;
mod offered;
mod outgoing;

use std::num::NonZeroU64;
use std::sync::Arc;
use std::time::Duration;

use self::offered::{Decline, Offered, USE_TIME};
use super::{Exchange, Fault};
use crate::engine::demand::{Demand, State, Wish};
use crate::engine::message::Message;
use crate::engine::reader::NextSource;
use crate::engine::receiver::ReceiverError;
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
    /// The number of the ring that is received into, and of the last one that was announced to the peer.
    received: u32,
    offers: u32,
    /// The ring that this end will fetch from when the stream moves (`mode=get`).
    source: Option<NextSource>,
    /// How long an offered ring waits for the stream.
    use_time: Duration,
    sending: Sending,
    /// The number of the last ring that the peer has announced or offered, and of the last one to which the stream has moved.
    announced: u32,
    moved: u32,
    /// The answer to a peer that takes that ring back.
    decline: Option<Decline>,
    /// What the peer had taken when the ring that is sent from last changed.
    taken_before: u64,
    /// The ring that is sent from changes only after the peer has taken so much.
    changes_after: u64,
    /// The first ring of this end was exchanged for a longer one.
    is_longer: bool,
}

/// The ring that this end receives into.
#[derive(Debug)]
enum Receiving {
    Steady,
    /// Memory is being prepared, or is offered.
    Offered(Offered),
    /// The peer has neither used nor declined a ring that was taken back, and gets no other.
    Unanswered,
    /// The stream is in two rings.
    Moving {
        has_moved: bool,
    },
}

/// The rings that this end sends to and from.
#[derive(Debug)]
enum Sending {
    Steady,
    /// Memory for ours is being prepared; the peer prepares one as well, or has offered it.
    Asked(Option<Offer>),
    /// The stream moves as soon as there is an offer and it can; the memory is `None` where our ring stays.
    Ready(Option<Offer>, Option<Supplied>),
    /// The peer has taken it back while memory is being prepared.
    Declining,
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
    #[error("the peer offered ring {0} without a key for each of its adapters")]
    Keys(u32),
    #[error(
        "the peer moves the stream to a ring of its own with ring {0}, which it was not offered"
    )]
    Source(u32),
    #[error("the peer moved the stream to ring {0}, which it was not offered")]
    Switch(u32),
    #[error("the peer has left the ring before ring {0}, to which the stream was not moved")]
    Left(u32),
    #[error("the peer takes back ring {0}, which was not due")]
    TakeBack(u32),
    #[error("the peer declined ring {0}, which was not taken back")]
    Declined(u32),
}

/// How often memory that another thread prepares is asked for.
const ASK_INTERVAL: Duration = Duration::from_millis(5);

/// How often a stream that does not move is looked at, so that memory that it does not use is released.
const LOOK_INTERVAL: Duration = Duration::from_secs(1);

impl Growth {
    /// A queue pair was lost, perhaps with a message about a ring. The peer ignores a repeated one.
    pub(super) fn lost(&mut self) {
        if let Receiving::Offered(offered) = &mut self.receiving {
            offered.lost();
        }
        if let Some(decline) = &mut self.decline {
            decline.is_due = true;
        }
    }

    /// Whether this is the next ring that the peer may offer.
    fn is_due(&self, number: u32) -> bool {
        let is_next = self.announced.checked_add(1) == Some(number);
        is_next && matches!(self.sending, Sending::Steady)
    }

    /// When to look again if no event comes before.
    pub(super) fn next_at(&self, now: Duration) -> Option<Duration> {
        let is_asked = match &self.receiving {
            Receiving::Offered(offered) => offered.is_preparing(),
            _ => false,
        };
        if is_asked || matches!(self.sending, Sending::Asked(_) | Sending::Declining) {
            return Some(now + ASK_INTERVAL);
        }
        let offered = match &self.receiving {
            Receiving::Offered(offered) => offered.next_at(self.use_time),
            _ => None,
        };
        let look = self.is_longer.then_some(now + LOOK_INTERVAL);
        [offered, look].into_iter().flatten().min()
    }
}

impl Exchange {
    /// Both rings may change: `supply` provides further ones. `round_trip` is that of the path.
    pub(crate) fn let_rings_change(&mut self, supply: Box<dyn Supply>, round_trip: Duration) {
        self.growth = Some(Growth {
            demand: self.demand(round_trip, supply.knows_path()),
            supply,
            wish: None,
            receiving: Receiving::Steady,
            received: 0,
            offers: 0,
            source: None,
            use_time: USE_TIME,
            sending: Sending::Steady,
            announced: 0,
            moved: 0,
            decline: None,
            taken_before: 0,
            changes_after: 0,
            is_longer: false,
        });
    }

    /// The path is as long as that from now on.
    #[cfg(test)]
    pub(crate) fn expect_round_trip(&mut self, round_trip: Duration) {
        let demand = self.demand(round_trip, false);
        let growth = self.growth.as_mut().expect("the rings may change");
        growth.demand = demand;
    }

    /// Offered rings wait so long for the stream.
    #[cfg(test)]
    pub(crate) fn take_rings_back_after(&mut self, time: Duration) {
        let growth = self.growth.as_mut().expect("the rings may change");
        growth.use_time = time;
    }

    /// Whether the stream moves to another ring as soon as the bytes are there for which there is a promise: nothing more should
    /// be promised.
    pub(crate) fn waits_for_disk(&self) -> bool {
        let sending = self.growth.as_ref().map(|growth| &growth.sending);
        matches!(sending, Some(Sending::Ready(Some(offer), _)) if self.sender.can_move_once_filled(offer.bytes))
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
        let declined = self.decline(&mut growth, endpoint, now);
        let changed = declined
            .and_then(|declined| Ok(self.change_incoming(&mut growth, endpoint, now)? || declined));
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
        if matches!(growth.receiving, Receiving::Steady)
            && let Some(wish) = growth.wish.take()
        {
            let wanted = Wanted {
                bytes: wish.bytes,
                least: wish.least,
                present: self.receiver.ring_bytes(),
            };
            match growth.supply.ask(endpoint, Way::Incoming, wanted) {
                Some(bytes) => {
                    growth.offers = growth.offers.saturating_add(1);
                    growth.source = None;
                    growth.receiving = Receiving::Offered(Offered::preparing(bytes));
                }
                None => growth.demand.refused(now),
            }
        }
        self.offer(growth, endpoint, now)
    }

    /// Posts a message to the peer. Returns `false` if there is no room for one.
    fn tell(
        &mut self,
        endpoint: &mut dyn Endpoint,
        message: Message,
        now: Duration,
    ) -> Result<bool, Fault> {
        let Some(queue_pair) = self.sender.reserve(now) else {
            return Ok(false);
        };
        let work = Work::Send(message.encode());
        Self::post(endpoint, queue_pair, Request { id: 0, work })?;
        endpoint.ring_doorbell();
        Ok(true)
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

    /// The changes of rings, if they were negotiated and are still possible.
    fn growth(&mut self) -> Result<Option<&mut Growth>, GrowthError> {
        if self.growth.is_none() && !self.has_given_back {
            return Err(GrowthError::NotNegotiated);
        }
        Ok(self.growth.as_mut())
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
        let ring = match offered {
            Receiving::Offered(offered) if number == growth.offers => offered.into_told(),
            _ => None,
        };
        let ring = ring.ok_or(GrowthError::Switch(number))?;
        growth.received = number;
        growth.is_longer = true;
        growth.receiving = Receiving::Moving { has_moved: false };
        let region = ring.region.id;
        let source = growth.source.take();
        let used = NonZeroU64::new(window.min(ring.bytes.get())).unwrap_or(NonZeroU64::MIN);
        let shape = growth.supply.shape(used, ring.bytes);
        if let Some(reader) = &mut self.reader {
            if reader.reaches_beyond(at) {
                return Err(ReceiverError::Switch { at }.into());
            }
            reader.move_to(source, shape.message_bytes);
        }
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
        if let Some(reader) = &mut self.reader {
            reader.leave();
        }
        endpoint.deregister(region);
        self.incoming.retain(|(other, _)| *other != region);
        Ok(())
    }
}
