//! The rings that this end sends to and from.

use std::num::NonZeroU64;

use super::{Growth, GrowthError, Offer, Sending};
use crate::engine::exchange::Exchange;
use crate::engine::sender::{Destination, OwnRing};
use crate::engine::supply::{Supplied, Wanted, Way};
use crate::provider::{Endpoint, Keys, keys_of};

/// Our ring has at most so many times the bytes that the peer has taken since our ring last changed. A peer whose ring is the
/// limit announces up to ten times what it has taken in the round trip that it observed. It returns credit for a quarter of a
/// ring at a time, so this end knows of three quarters of that at least.
const MOST_STEP: u64 = 14;

impl Exchange {
    /// Takes the next step of the ring that this end sends from.
    pub(super) fn change_outgoing(&mut self, growth: &mut Growth, endpoint: &mut dyn Endpoint) {
        if let Sending::Asked(offer) = growth.sending
            && let Some(own) = growth.supply.answer(endpoint, Way::Outgoing)
        {
            growth.sending = Sending::Ready(offer, own);
        }
        if let Sending::Ready(Some(offer), own) = &mut growth.sending
            && self.sender.can_move(offer.bytes)
        {
            let (offer, own) = (*offer, own.take());
            let keys = own.as_ref().map(|own| keys_of(endpoint, own.region));
            self.move_outgoing(growth, offer, own.zip(keys));
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

    /// Moves the stream; `own` is our ring with its keys, unless that stays.
    fn move_outgoing(&mut self, growth: &mut Growth, offer: Offer, own: Option<(Supplied, Keys)>) {
        let own_bytes = own.as_ref().map(|(own, _)| own.bytes);
        let window = own_bytes
            .unwrap_or_else(|| self.sender.ring_length())
            .min(offer.bytes);
        let shape = growth.supply.shape(window, offer.bytes);
        let to = Destination {
            number: offer.number,
            theirs: (offer.remote, offer.bytes),
            own: own.as_ref().map(|(own, keys)| OwnRing {
                region: own.region,
                keys: *keys,
                bytes: own.bytes,
            }),
        };
        self.sender.move_to(to, shape);
        if let Some((own, _)) = own {
            growth.taken_before = self.sender.taken();
            self.outgoing = own.memory;
        }
        self.meter.moves.add_one();
        growth.moved = offer.number;
        growth.sending = Sending::Moving;
    }

    /// The peer prepares a ring of so many bytes, or has one: this end prepares its own.
    pub(in crate::engine::exchange) fn ring_announced(
        &mut self,
        endpoint: &mut dyn Endpoint,
        number: u32,
        bytes: u64,
    ) -> Result<(), GrowthError> {
        let own = self.sender.ring_length().get();
        let taken = self.sender.taken();
        let Some(growth) = self.growth()? else {
            return Ok(());
        };
        if number <= growth.announced {
            return Ok(());
        }
        if !growth.is_due(number) {
            return Err(GrowthError::Offer(number));
        }
        let least = growth.supply.least_bytes();
        if bytes < least {
            return Err(GrowthError::Length { bytes, least });
        }
        (growth.announced, growth.decline) = (number, None);
        // Our ring follows what the peer takes, not what it claims that it could.
        let most = MOST_STEP.saturating_mul(taken.saturating_sub(growth.taken_before));
        let wanted = Wanted {
            bytes: bytes.min(most.max(own)),
            least: bytes.min(own.saturating_add(own / 4)),
            present: own,
        };
        // Otherwise a peer could make this end map and clear a ring of nearly the same length with each message.
        let is_worth_it = wanted.bytes >= own.saturating_add(own / 4) || wanted.bytes <= own / 2;
        let is_asked = is_worth_it
            && taken >= growth.changes_after
            && growth.supply.ask(endpoint, Way::Outgoing, wanted).is_some();
        growth.sending = match is_asked {
            true => Sending::Asked(None),
            false => Sending::Ready(None, None),
        };
        Ok(())
    }

    /// The peer offers a ring. A stream that ends stays where it is.
    pub(in crate::engine::exchange) fn ring_offered(
        &mut self,
        endpoint: &mut dyn Endpoint,
        number: u32,
        bytes: u64,
        (address, keys): (u64, Keys),
    ) -> Result<(), GrowthError> {
        // What was said about its preparation may have been lost with a queue pair.
        self.ring_announced(endpoint, number, bytes)?;
        let present = self.sender.remote();
        let remote = match self.sender.is_fetched() {
            // This end does not access it.
            true => Some(present),
            false => present.exchanged_for(address, keys),
        };
        let Some(growth) = self.growth()? else {
            return Ok(());
        };
        if number != growth.announced {
            return Ok(());
        }
        let (Sending::Asked(offer @ None) | Sending::Ready(offer @ None, _)) = &mut growth.sending
        else {
            return Ok(());
        };
        let least = growth.supply.least_bytes();
        let length = NonZeroU64::new(bytes).filter(|bytes| bytes.get() >= least);
        *offer = Some(Offer {
            number,
            bytes: length.ok_or(GrowthError::Length { bytes, least })?,
            remote: remote.ok_or(GrowthError::Keys(number))?,
        });
        Ok(())
    }
}
