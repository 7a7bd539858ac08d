//! An endpoint that is not connected yet, with its registered rings.

use std::num::NonZeroU64;
use std::sync::Arc;
use std::time::Duration;

use gridhaul_stack::{ChannelError, Side};

use super::agreement::RingRules;
use super::capabilities::{self, Capabilities};
use super::interface;
use super::opening::{OpenError, Opening, local_error};
use super::ring_length::requests;
use super::round_trip::{path_mtu, round_trip};
use crate::handshake::{Method, Mode, Offer, PathRecord, RingRecord, messages};
use crate::iwarp::SoftEndpoint;
use crate::memory::{Holder, Lengths, Memory, Pool, PoolError, Share};
use crate::numa::Locality;
use crate::outgoing::Outgoing;
use crate::outgoing::Sections;
use crate::pacing::Rate;
use crate::provider::{Endpoint, Fabric, Wanted, keys_of};
use crate::verbs::{Place, VerbsEndpoint};

/// This end of a channel before its queue pairs are connected.
pub(super) struct Rings {
    pub(super) new_endpoint: NewEndpoint,
    pub(super) outgoing: Outgoing,
    pub(super) incoming: Arc<Memory>,
    pub(super) lengths: Lengths,
    pub(super) source: usize,
    pub(super) sink: usize,
    /// The ring that the peer accesses.
    pub(super) exposed: RingRecord,
    /// The NUMA nodes of the adapters.
    pub(super) locality: Option<Arc<Locality>>,
    /// The memory of the channel.
    pub(super) share: Arc<Share>,
}

impl Rings {
    /// Memory that fewer adapters pin than the ends had agreed on, because rails were left out, counts less once the adapters of
    /// those have deregistered it.
    pub(super) fn count_adapters(&mut self) {
        let further = self.new_endpoint.endpoint().further_keys(self.source);
        self.share.unpin_when_released(1 + further.len() as u64);
    }
}

/// An endpoint whose queue pairs are not connected yet.
pub(super) enum NewEndpoint {
    Soft(Box<SoftEndpoint>),
    /// An adapter whose queue pairs the connection manager connects.
    Iwarp(Box<VerbsEndpoint>),
    Fabric(Box<dyn Fabric>),
}

impl NewEndpoint {
    pub(super) fn endpoint(&mut self) -> &mut dyn Endpoint {
        match self {
            Self::Soft(endpoint) => endpoint.as_mut(),
            Self::Iwarp(endpoint) => endpoint.as_mut(),
            Self::Fabric(endpoint) => endpoint.as_mut(),
        }
    }

    pub(super) fn into_endpoint(self) -> Box<dyn Endpoint> {
        match self {
            Self::Soft(endpoint) => endpoint,
            Self::Iwarp(endpoint) => endpoint,
            Self::Fabric(endpoint) => endpoint,
        }
    }
}

/// On a shorter path a ring of the usual length is enough for any network card without RDMA, whose
/// rate is then not looked up.
const LEAST_ROUND_TRIP: Duration = Duration::from_micros(500);

/// The NUMA nodes of the adapters of so many rails, to which the thread is moved: memory that it touches first is placed
/// there.
pub(super) fn locality(
    method: Method,
    capabilities: &Capabilities,
    rails: u8,
) -> Option<Arc<Locality>> {
    if method == Method::Soft {
        return None;
    }
    let locality = Place::locality(capabilities.places(rails.into()))?;
    locality.move_thread();
    Some(Arc::new(locality))
}

impl Opening<'_> {
    /// What this end knows about the path.
    pub(super) fn path(&self, capabilities: &Capabilities) -> PathRecord {
        let round_trip = round_trip(&self.socket);
        let of_port = capabilities.port_rate().and_then(NonZeroU64::new);
        let of_interface = || {
            let is_long = round_trip >= LEAST_ROUND_TRIP;
            let local = self.local_address().ok().filter(|_| is_long);
            local.and_then(interface::rate)
        };
        PathRecord {
            rate: of_port.or_else(of_interface),
            round_trip,
        }
    }

    /// What decides about the rings of this end, whose memory a device pins or not.
    pub(super) fn ring_rules(&self, pins: bool) -> RingRules {
        RingRules::new(self.settings, Pool::of_process(), pins)
    }

    /// This channel's part of the memory for rings, perhaps less than wanted. So many `adapters` may
    /// have to pin it.
    pub(super) fn share(
        &self,
        side: Side,
        adapters: usize,
        rings: Lengths,
    ) -> Result<Share, OpenError> {
        let holder = Holder {
            side,
            pins: adapters as u64,
            party: self.settings.party,
        };
        let taken = Pool::of_process().take(holder, rings, self.operation);
        taken.map_err(|error| match error {
            PoolError::Cancelled => ChannelError::Cancelled.into(),
            PoolError::Waited(_) | PoolError::Bound(_) => OpenError::Local(error.to_string()),
        })
    }

    /// Maps the rings and registers them with the endpoint.
    pub(super) fn rings(
        &self,
        mut new_endpoint: NewEndpoint,
        locality: Option<Arc<Locality>>,
        share: Share,
        chosen: Offer,
    ) -> Result<Rings, OpenError> {
        let local = |error: std::io::Error| OpenError::Local(format!("no memory: {error}"));
        let lengths = share.rings();
        let sections = (self.settings.pins_files && chosen.mode == Mode::Put)
            .then(|| Sections::for_ring(lengths.outgoing.get()))
            .flatten();
        let pinned_bytes = sections.as_ref().map_or(0, Sections::allowance);
        let is_wanted = || self.operation.check().is_ok();
        let map = || share.map(pinned_bytes, &is_wanted);
        let mapped = match &locality {
            // The threads that populate long rings would place parts of them on the other nodes.
            Some(locality) => locality.with_thread_bound(map),
            None => map(),
        };
        if mapped.is_err() {
            // This is the reason, if it is over.
            self.operation.check()?;
        }
        let (share, [outgoing, incoming]) = mapped.map_err(local)?;
        // A ring of an earlier channel may be elsewhere. Registered memory cannot be moved any more.
        if let Some(locality) = &locality {
            locality.place(&outgoing);
            locality.place(&incoming);
        }
        // Both rings contain only zeros: the peer may READ all of one, or announce all of the
        // other.
        let endpoint = new_endpoint.endpoint();
        let [source, sink] = chosen.mode.access();
        let source = endpoint.register(&outgoing, source).map_err(local)?;
        let sink = endpoint.register(&incoming, sink).map_err(local)?;
        let exposed = match chosen.mode {
            Mode::Put => sink,
            Mode::Get => source,
        };
        let keys = keys_of(endpoint, exposed).as_slice().to_vec();
        Ok(Rings {
            new_endpoint,
            outgoing: match sections {
                Some(sections) => Outgoing::pinning(outgoing, source.id, sections),
                None => Outgoing::ring(outgoing),
            },
            incoming,
            lengths,
            source: source.id,
            sink: sink.id,
            exposed: RingRecord {
                address: exposed.address,
                keys,
            },
            locality,
            share,
        })
    }

    /// The rate that the options set, in bytes per second. It is that of a path, and so of a rail, which the channels of a transfer
    /// share. What a search finds changes too often for a device.
    pub(super) fn fixed_rate(&self) -> Option<u64> {
        match self.settings.rate {
            Rate::Fixed(rate) => Some(rate).filter(|&rate| rate > 0),
            Rate::Any | Rate::Auto { .. } => None,
        }
    }

    /// An endpoint for the chosen method, without memory.
    pub(super) fn new_endpoint(
        &self,
        chosen: Offer,
        method: Method,
        capabilities: &Capabilities,
    ) -> Result<NewEndpoint, OpenError> {
        let rails = usize::from(chosen.rails);
        let wanted = Wanted {
            local: self.local_address()?,
            queue_pairs: chosen.queue_pairs,
            requests: requests(usize::from(chosen.pieces.div_ceil(chosen.queue_pairs))),
            messages: messages(usize::from(chosen.pieces)),
            payload_bytes: usize::from(chosen.inline_bytes),
            round_trip: round_trip(&self.socket),
            path_mtu: path_mtu(&self.socket),
            rate: self.fixed_rate(),
        };
        match (method, &capabilities.place) {
            (Method::Iwarp, Some(place)) if capabilities::method(place) == method => {
                let endpoint = VerbsEndpoint::new(std::slice::from_ref(place), 1, wanted);
                let endpoint = endpoint.map_err(|error| OpenError::Local(error.to_string()))?;
                Ok(NewEndpoint::Iwarp(Box::new(endpoint)))
            }
            (Method::Soft | Method::Iwarp, _) if capabilities.methods.has(Method::Soft) => {
                let endpoint = SoftEndpoint::new(wanted.payload_bytes, wanted.messages);
                Ok(NewEndpoint::Soft(Box::new(endpoint.map_err(local_error)?)))
            }
            (Method::Roce | Method::InfiniBand, Some(place))
                if capabilities::method(place) == method =>
            {
                let (local, peer) = (wanted.local, self.peer.ip());
                let places = capabilities.places(rails).iter();
                let places: Vec<_> = places
                    .map(|place| place.with_route(local, peer, self.operation))
                    .collect::<Result<_, _>>()?;
                let endpoint = VerbsEndpoint::new(&places, rails, wanted);
                let endpoint = endpoint.map_err(|error| OpenError::Local(error.to_string()))?;
                Ok(NewEndpoint::Fabric(Box::new(endpoint)))
            }
            (Method::Provided, place) => match &self.settings.provided {
                Some(provider) => provider
                    .endpoint(place.as_ref().map(Place::adapter_port).as_ref(), wanted)
                    .map(NewEndpoint::Fabric)
                    .map_err(|error| OpenError::Local(format!("{}: {error}", provider.name()))),
                None => Err(OpenError::ExceedsOffer),
            },
            _ => Err(OpenError::ExceedsOffer),
        }
    }
}
