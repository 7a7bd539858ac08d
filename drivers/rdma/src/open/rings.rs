//! An endpoint that is not connected yet, with its registered rings.

use std::num::NonZeroU64;
use std::sync::Arc;

use gridhaul_stack::{ChannelError, Side};

use super::capabilities::{self, Capabilities};
use super::opening::{OpenError, Opening, local_error};
use super::round_trip::{path_mtu, round_trip};
use crate::handshake::{Method, Methods, Mode, Offer, RingRecord, messages};
use crate::iwarp::SoftEndpoint;
use crate::memory::{Holder, Memory, Pool, PoolError, Share};
use crate::numa::Locality;
use crate::outgoing::Outgoing;
use crate::outgoing::Sections;
use crate::provider::{Endpoint, Fabric, Wanted};
use crate::verbs::{Place, VerbsEndpoint};

/// This end of a channel before its queue pairs are connected.
pub(super) struct Rings {
    pub(super) new_endpoint: NewEndpoint,
    pub(super) outgoing: Outgoing,
    pub(super) incoming: Arc<Memory>,
    pub(super) source: usize,
    pub(super) sink: usize,
    /// The ring that the peer accesses.
    pub(super) exposed: RingRecord,
    /// The NUMA node of the adapter.
    pub(super) locality: Option<Locality>,
}

/// An endpoint whose queue pairs are not connected yet.
pub(super) enum NewEndpoint {
    Soft(SoftEndpoint),
    /// An adapter whose queue pairs the connection manager connects.
    Iwarp(Box<VerbsEndpoint>),
    Fabric(Box<dyn Fabric>),
}

impl NewEndpoint {
    pub(super) fn endpoint(&mut self) -> &mut dyn Endpoint {
        match self {
            Self::Soft(endpoint) => endpoint,
            Self::Iwarp(endpoint) => endpoint.as_mut(),
            Self::Fabric(endpoint) => endpoint.as_mut(),
        }
    }

    pub(super) fn into_endpoint(self) -> Box<dyn Endpoint> {
        match self {
            Self::Soft(endpoint) => Box::new(endpoint),
            Self::Iwarp(endpoint) => endpoint,
            Self::Fabric(endpoint) => endpoint,
        }
    }
}

impl Opening<'_> {
    /// The length of ring that the connecting end offers. The accepting end takes that or a shorter
    /// one.
    pub(super) fn offered_ring_bytes(&self, capabilities: &Capabilities) -> NonZeroU64 {
        let wanted = self.settings.ring_bytes;
        let fitted = self.settings.ring_bytes_over_tcp(round_trip(&self.socket));
        let ring_bytes = if capabilities.methods == Methods::default().with(Method::Soft) {
            fitted
        } else {
            wanted
        };
        // Where a shorter ring is enough, all channels get rings of the same length.
        let common =
            NonZeroU64::new(Pool::of_process().common_ring_bytes(capabilities.place.is_some()));
        match common {
            Some(common) if fitted < wanted => ring_bytes.min(common),
            _ => ring_bytes,
        }
    }

    /// This channel's part of the memory for rings, perhaps less than wanted. `pins`: a device may
    /// have to pin it.
    pub(super) fn share(
        &self,
        side: Side,
        pins: bool,
        ring_bytes: NonZeroU64,
    ) -> Result<Share, OpenError> {
        let holder = Holder {
            side,
            pins,
            party: self.settings.party,
        };
        let taken = Pool::of_process().take(holder, ring_bytes, self.operation);
        taken.map_err(|error| match error {
            PoolError::Cancelled => ChannelError::Cancelled.into(),
            PoolError::Waited(_) | PoolError::Bound(_) => OpenError::Local(error.to_string()),
        })
    }

    pub(super) fn rings(
        &self,
        share: Share,
        chosen: Offer,
        method: Method,
        capabilities: &Capabilities,
    ) -> Result<Rings, OpenError> {
        let local = |error: std::io::Error| OpenError::Local(format!("no memory: {error}"));
        let place = capabilities
            .place
            .as_ref()
            .filter(|_| method != Method::Soft);
        let mut locality = place.and_then(Place::locality);
        // Memory that this thread touches first is placed on its node.
        locality.iter_mut().for_each(Locality::move_thread);
        let mut new_endpoint = self.new_endpoint(chosen, method, capabilities)?;
        let sections = (self.settings.pins_files && chosen.mode == Mode::Put)
            .then(|| Sections::for_ring(chosen.ring_bytes.get()))
            .flatten();
        let pinned_bytes = sections.as_ref().map_or(0, Sections::allowance);
        let [outgoing, incoming] = share.map(pinned_bytes).map_err(local)?;
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
        Ok(Rings {
            new_endpoint,
            outgoing: match sections {
                Some(sections) => Outgoing::pinning(outgoing, source.id, sections),
                None => Outgoing::ring(outgoing),
            },
            incoming,
            source: source.id,
            sink: sink.id,
            exposed: RingRecord {
                address: exposed.address,
                key: exposed.key,
            },
            locality,
        })
    }

    fn new_endpoint(
        &self,
        chosen: Offer,
        method: Method,
        capabilities: &Capabilities,
    ) -> Result<NewEndpoint, OpenError> {
        let wanted = Wanted {
            local: self.local_address()?,
            queue_pairs: chosen.queue_pairs,
            messages: messages(usize::from(chosen.pieces)),
            payload_bytes: usize::from(chosen.inline_bytes),
            round_trip: round_trip(&self.socket),
            path_mtu: path_mtu(&self.socket),
        };
        match (method, &capabilities.place) {
            (Method::Iwarp, Some(place)) if capabilities::method(place) == method => {
                let endpoint = VerbsEndpoint::new(place, wanted);
                let endpoint = endpoint.map_err(|error| OpenError::Local(error.to_string()))?;
                Ok(NewEndpoint::Iwarp(Box::new(endpoint)))
            }
            (Method::Soft | Method::Iwarp, _) if capabilities.methods.has(Method::Soft) => {
                Ok(NewEndpoint::Soft(
                    SoftEndpoint::new(wanted.payload_bytes, wanted.messages)
                        .map_err(local_error)?,
                ))
            }
            (Method::Roce | Method::InfiniBand, Some(place))
                if capabilities::method(place) == method =>
            {
                let place = place.with_route(wanted.local, self.peer.ip(), self.operation)?;
                let endpoint = VerbsEndpoint::new(&place, wanted);
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
