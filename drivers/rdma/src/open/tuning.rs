//! The parameters of a channel: the options, within the limits of the endpoint.

use std::sync::Arc;
use std::time::Duration;

use gridhaul_direct::DirectUse;

use super::opening::{OpenError, Opening, check_reads};
use super::pace;
use super::ring_length::{self, MostGrown};
use super::rings::Rings;
use super::round_trip::round_trip;
use super::shape::{Shaping, message_in, piece_bytes};
use super::supply::RingSupply;
use crate::engine::{
    Exchange, Fault, Reader, ReaderSettings, Receiver, Ring, Sender, SenderSettings,
};
use crate::gauges;
use crate::handshake::{Mode, Offer};
use crate::numa::Locality;
use crate::outgoing::Outgoing;
use crate::pacing::{Burst, Pacers, Path, Rate};
use crate::provider::{Endpoint, RemoteRing};

/// How the path to the peer is used.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Tuning {
    /// The largest WRITE or READ in bytes.
    pub(crate) message_bytes: u64,
    /// Outstanding requests on each queue pair.
    pub(crate) depth: usize,
    /// The round trip time that TCP has measured.
    pub(crate) round_trip: Duration,
}

/// A channel that is ready for data.
#[derive(Debug)]
pub(crate) struct Opened {
    pub(crate) endpoint: Box<dyn Endpoint>,
    pub(crate) exchange: Exchange,
    pub(crate) outgoing: Outgoing,
    pub(crate) tuning: Tuning,
    /// The content of files is aligned in the rings.
    pub(crate) aligned: bool,
    /// Which files are moved past the page cache.
    pub(crate) direct: Option<DirectUse>,
    /// The chosen provider, and why it was chosen.
    pub(crate) choice: String,
    /// The NUMA nodes of the adapters.
    pub(crate) locality: Option<Arc<Locality>>,
}

impl Opened {
    /// See [`Exchange::advance`]. What is sent from now on comes from the present ring.
    ///
    /// # Errors
    ///
    /// When the peer violates the protocol.
    pub(crate) fn advance(&mut self, now: Duration) -> Result<(), Fault> {
        self.exchange.advance(self.endpoint.as_mut(), now)?;
        if let Some(ring) = self.exchange.take_outgoing() {
            self.outgoing = Outgoing::ring(ring);
        }
        Ok(())
    }
}

/// What a channel is made of when its queue pairs are connected.
pub(super) struct Parts {
    pub(super) rings: Rings,
    pub(super) chosen: Offer,
    pub(super) remote: RemoteRing,
    /// The chosen provider, and why it was chosen.
    pub(super) choice: String,
    pub(super) most_grown: MostGrown,
}

impl Tuning {
    /// The ring length that would keep a path of this rate, in bytes per second, busy, if the
    /// present one is too short.
    pub(crate) fn wanted_ring_bytes(&self, rate: u64, ring_bytes: u64) -> Option<u64> {
        let wanted = ring_length::needed_bytes(rate, self.round_trip);
        (wanted > ring_bytes).then_some(wanted)
    }
}

impl Opening<'_> {
    pub(super) fn finish(&self, parts: Parts) -> Result<Opened, OpenError> {
        let Parts {
            mut rings,
            chosen,
            remote,
            choice,
            most_grown,
        } = parts;
        rings.count_adapters();
        let limits = rings.new_endpoint.endpoint().limits();
        let ring = Ring::new(rings.lengths.outgoing);
        let pieces = usize::from(chosen.pieces);
        let depth = self
            .settings
            .depth
            .map_or(limits.depth, |depth| depth.min(limits.depth));
        // The requests of a receiver that fetches are READs.
        let in_flight = match chosen.mode {
            Mode::Put => depth,
            Mode::Get => depth.min(limits.reads),
        };
        let shaping = Shaping {
            message: self.settings.message,
            fits_message: self.settings.fits_message && !limits.over_tcp,
            most_message: limits.message_bytes as u64,
            queue_pairs: limits.queue_pairs,
            requests: limits.queue_pairs * in_flight,
            pieces,
            immediate: chosen.immediate && limits.immediate,
        };
        let longest = shaping.longest_message(rings.lengths.longer());
        let message = message_in(ring, longest);
        let inline_bytes = limits.payload_bytes.min(usize::from(chosen.inline_bytes)) as u64;
        let immediate = |ring: Ring| shaping.immediate && ring.fits_immediates();
        let settings = SenderSettings {
            ring,
            region: rings.source,
            remote,
            queue_pairs: limits.queue_pairs,
            depth,
            message_bytes: message,
            piece_bytes: piece_bytes(ring, message, limits.queue_pairs),
            max_pieces: pieces,
            is_fetched: chosen.mode == Mode::Get,
            inline_bytes,
            immediate: immediate(ring),
            completes_early: limits.over_tcp,
            stall: (!limits.over_tcp).then_some(self.settings.stall),
        };
        let endpoint = rings.new_endpoint.endpoint();
        let (rate, why_off) = pace::rate(self.settings.rate, chosen.mode, endpoint);
        let choice = match why_off {
            Some(reason) => format!("{choice}; rate=auto is off: {reason}"),
            None => choice,
        };
        let burst = match rate {
            // Longer messages are never sent, and a search that tries them would not end.
            Rate::Auto { .. } => self.settings.burst.bytes.min(longest).into(),
            Rate::Any | Rate::Fixed(_) => self.settings.burst,
        };
        let round_trip = round_trip(&self.socket);
        let path = |rail| {
            let rate = pace::on_rail(rate, endpoint, rail);
            let path = Path::to(self.peer.ip(), endpoint.gids(rail), rate, burst);
            if !round_trip.is_zero() {
                path.expect(round_trip);
            }
            path
        };
        let paths: Vec<_> = (0..limits.rails).map(path).collect();
        // TCP does not delay and then send at once, and its requests complete before anything was
        // sent.
        let watched = if limits.over_tcp {
            0
        } else {
            limits.queue_pairs
        };
        let mut pacers = Pacers::new(&paths, watched);
        // With `mode=get` the peer's device sends, and this end paces its READs.
        if self.fixed_rate().is_some() && chosen.mode == Mode::Put {
            let usual = Burst::usual(message, rate);
            pacers.limit(self.options.channels, usual.bytes, endpoint);
        }
        let sender = Sender::new(settings, pacers);
        let incoming = Ring::new(rings.lengths.incoming);
        let mut receiver = Receiver::new(incoming, pieces).in_region(rings.sink);
        if immediate(incoming) && chosen.mode == Mode::Put {
            receiver.take_immediates();
        }
        receiver.take_inline(inline_bytes);
        let exchange = Exchange::new(sender, receiver, limits.queue_pairs);
        let mut exchange = exchange.carry(Arc::clone(&rings.incoming));
        if chosen.mode == Mode::Get {
            check_reads(limits, chosen.mode)?;
            let settings = ReaderSettings {
                ring: incoming,
                remote,
                queue_pairs: limits.queue_pairs,
                depth: limits.reads,
                message_bytes: message_in(incoming, longest),
            };
            exchange = exchange.fetch(Reader::new(settings, Pacers::new(&paths, 0)));
        }
        if chosen.grows {
            let supply = RingSupply::new(
                (rings.share, rings.locality.clone()),
                chosen.mode,
                shaping,
                most_grown,
            );
            exchange.let_rings_change(Box::new(supply), round_trip);
        }
        gauges::note_opened(limits.queue_pairs);
        Ok(Opened {
            endpoint: rings.new_endpoint.into_endpoint(),
            exchange,
            outgoing: rings.outgoing,
            tuning: Tuning {
                message_bytes: message_in(Ring::new(rings.lengths.longer()), longest),
                depth,
                round_trip,
            },
            aligned: chosen.aligned,
            direct: self.settings.direct,
            choice,
            locality: rings.locality,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ring_that_is_too_short_for_its_path_is_noticed() {
        let tuning = Tuning {
            message_bytes: 1,
            depth: 1,
            round_trip: Duration::from_millis(120),
        };
        let rate = 625_000_000;
        assert_eq!(tuning.wanted_ring_bytes(rate, 150_000_000), None);
        let wanted = tuning.wanted_ring_bytes(rate, 16 << 20);
        assert_eq!(wanted, Some(150_000_000));
    }
}
