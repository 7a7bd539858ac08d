//! Rings of channels whose receiver fetches (`mode=get`).
//!
//! The receiver offers its ring without a key, because the sender does not access it. The sender takes a ring of its own, as
//! elsewhere, and names that before it says where the stream moves.

use std::num::NonZeroU64;
use std::time::Duration;

use super::{GrowthError, Receiving};
use crate::engine::demand::Demand;
use crate::engine::exchange::Exchange;
use crate::engine::reader::{NextSource, Reader};
use crate::engine::supply::Supplied;
use crate::provider::{Endpoint, Keys, keys_of};

impl Exchange {
    /// What the present ring is found to need. Where this end fetches, a place is free again after two round trips: those of the READ, and
    /// of its announcement and the credit.
    pub(super) fn demand(&self, round_trip: Duration, knows_path: bool) -> Demand {
        let round_trips = if self.reader.is_some() { 2 } else { 1 };
        let first = self.receiver.ring_bytes();
        Demand::new(round_trips * round_trip, first, knows_path)
    }

    /// The address and the keys with which the peer accesses a ring that this end receives into.
    pub(super) fn exposed(&self, endpoint: &dyn Endpoint, ring: &Supplied) -> (u64, Keys) {
        match self.reader {
            None => (ring.region.address, keys_of(endpoint, ring.region)),
            Some(_) => (0, Keys::NONE),
        }
    }

    /// The peer will move the stream to another ring of its own.
    pub(in crate::engine::exchange) fn source_changes(
        &mut self,
        number: u32,
        at: u64,
        bytes: u64,
        (address, keys): (u64, Keys),
    ) -> Result<(), GrowthError> {
        let present = self.reader.as_ref().map(Reader::remote);
        let Some(growth) = self.growth()? else {
            return Ok(());
        };
        if number <= growth.received {
            // It comes once on each queue pair.
            return Ok(());
        }
        let present = present.ok_or(GrowthError::NotNegotiated)?;
        let is_offered =
            matches!(&growth.receiving, Receiving::Offered(offered) if offered.is_told());
        if !is_offered || number != growth.offers {
            return Err(GrowthError::Source(number));
        }
        let least = growth.supply.least_bytes();
        let length = NonZeroU64::new(bytes).filter(|bytes| bytes.get() >= least);
        let remote = present.exchanged_for(address, keys);
        growth.source = Some(NextSource {
            at,
            bytes: length.ok_or(GrowthError::Length { bytes, least })?,
            remote: remote.ok_or(GrowthError::Keys(number))?,
        });
        Ok(())
    }
}
