//! Opens a channel on a data connection: negotiates, makes the rings, connects the queue pairs.

pub(crate) mod agreement;
mod capabilities;
mod fabric;
mod interface;
mod iwarp;
mod iwarp_adapter;
mod opening;
mod pace;
pub(crate) mod queue_pairs;
pub(crate) mod ring_length;
mod rings;
mod round_trip;
pub(crate) mod shape;
mod supply;
pub(crate) mod tuning;
mod unusable_paths;

use std::sync::Arc;

use gridhaul_iwarp::HandshakeError;
use gridhaul_stack::exact::ReadError;
use gridhaul_stack::{ChannelError, Operation, Side, SocketOptions, random_bytes};
use gridhaul_tcp::TcpChannel;

use self::agreement::{Load, choose, offer_with_slots};
use self::capabilities::Capabilities;
use self::fabric::TestRings;
#[cfg(any(test, fuzzing))]
pub(crate) use self::opening::private_data;
use self::opening::{OpenError, Opening, QueuePairListener};
use self::ring_length::MostGrown;
use self::rings::{NewEndpoint, Rings, locality};
pub(crate) use self::tuning::Opened;
use self::tuning::Parts;
use crate::handshake::{
    self, Answer, Method, Methods, Mode, Offer, PathRecord, Record, RecordError,
};
use crate::memory::{Lengths, Share};
use crate::numa::Locality;
use crate::provider::RemoteRing;
use crate::settings::Settings;

/// Opens a channel.
///
/// # Errors
///
/// When the other end does not speak the protocol, refuses, closes the connection or is silent
/// until the deadline, or when there is no memory.
pub(crate) fn open(
    connection: TcpChannel,
    side: Side,
    settings: &Settings,
    options: &SocketOptions,
    operation: &Operation<'_>,
) -> Result<Opened, ChannelError> {
    let (socket, peer) = connection.into_parts();
    let opening = Opening {
        socket,
        peer,
        settings,
        options,
        operation,
    };
    let opened = match side {
        Side::Connector => opening.connect(),
        Side::Acceptor => opening.accept(),
    };
    opened.map_err(|error| match error {
        OpenError::Channel(error)
        | OpenError::Record(RecordError::Read(ReadError::Channel(error)))
        | OpenError::Handshake(HandshakeError::Write(error)) => error,
        OpenError::Record(RecordError::Read(ReadError::Closed)) => ChannelError::Aborted,
        other => ChannelError::Protocol {
            driver: "rdma",
            reason: other.to_string(),
        },
    })
}

impl Opening<'_> {
    /// If packets of the adapters do not arrive, the two ends begin again without them, where both have iWARP in user space.
    fn connect(&self) -> Result<Opened, OpenError> {
        let capabilities = self.or_refuse(self.capabilities())?;
        match self.connect_with(&capabilities) {
            Err(OpenError::NoPath(reason)) => {
                let capabilities = self.or_refuse(capabilities.after_failed_tests(reason))?;
                let outcome = self.connect_with(&capabilities);
                if outcome.is_err() {
                    // The other end may have nothing else, so that the next channel needs a new test.
                    self.forget_unusable_paths();
                }
                outcome
            }
            outcome => outcome,
        }
    }

    fn connect_with(&self, capabilities: &Capabilities) -> Result<Opened, OpenError> {
        let pins = capabilities.place.is_some();
        let path = self.path(capabilities);
        let load = Load {
            flow: self.options.flow,
            channels: self.options.channels,
            over_tcp: capabilities.methods == Methods::default().with(Method::Soft),
        };
        let rings = self.ring_rules(pins).offered(path, load);
        let adapters = capabilities.adapters();
        let mut share = self.share(Side::Connector, adapters, rings)?;
        let longer = share.rings().longer();
        let way = (None, self.settings.mode);
        let queue_pairs = self.queue_pairs(capabilities, way, longer, adapters);
        let rails = [adapters, capabilities.most_rails()];
        let mut offer = self.settings.offer(share.rings(), queue_pairs, rails);
        let has_slots = pins || capabilities.methods.has(Method::Provided);
        if has_slots {
            let fitted = offer_with_slots(offer, &mut share);
            offer = self.or_refuse(fitted.map_err(OpenError::from))?;
        }
        let record = Record::Offer(offer, capabilities.methods, path);
        handshake::write(&self.socket, &record, self.operation)?;
        let Record::Answer(answer) = handshake::read(&self.socket, self.operation)? else {
            return Err(OpenError::Unexpected);
        };
        if answer.chosen.within(offer) != answer.chosen || answer.chosen.mode != offer.mode {
            return Err(OpenError::ExceedsOffer);
        }
        if answer.method != Method::Soft && answer.chosen.within_slots() != answer.chosen {
            return Err(OpenError::ExceedsOffer);
        }
        if answer.chosen.within_pieces().within_rails() != answer.chosen {
            return Err(OpenError::ExceedsOffer);
        }
        if answer.chosen.rails > 1 && !answer.method.has_rails() {
            return Err(OpenError::ExceedsOffer);
        }
        share.shrink(answer.chosen.rings);
        if has_slots {
            // It is no more than for the offer.
            share.set_extra(slot_bytes(answer.chosen, answer.method));
        }
        let locality = locality(answer.method, capabilities, answer.chosen.rails);
        let endpoint = self.new_endpoint(answer.chosen, answer.method, capabilities);
        let rings =
            endpoint.and_then(|endpoint| self.rings(endpoint, locality, share, answer.chosen));
        let rules = self.ring_rules(answer.method != Method::Soft);
        let most_grown = rules.most_grown(path, answer.chosen.mode);
        let mut rings = self.or_refuse(rings)?;
        let mut remote = self.exchange(&rings, answer.chosen)?;
        match &mut rings.new_endpoint {
            NewEndpoint::Soft(endpoint) => self.connect_soft(endpoint, answer)?,
            NewEndpoint::Iwarp(endpoint) => {
                let connected = self.connect_iwarp(endpoint, answer);
                self.or_refuse(connected)?;
                self.exchange_first_messages(endpoint.as_mut(), Side::Connector)?;
            }
            NewEndpoint::Fabric(endpoint) => {
                let regions = [rings.source, rings.sink];
                let tests = test_rings(answer.chosen.mode, rings.lengths, regions, remote);
                let alternative = capabilities.methods.has(Method::Soft);
                let method = (answer.method, alternative);
                remote = self.connect_fabric(endpoint.as_mut(), method, tests)?;
            }
        }
        let parts = Parts {
            rings,
            chosen: answer.chosen,
            remote,
            choice: capabilities.reason(answer.method),
            most_grown,
        };
        self.finish(parts)
    }

    /// As [`Opening::connect`].
    fn accept(&self) -> Result<Opened, OpenError> {
        let offered = self.read_offer()?;
        let capabilities = self.or_refuse(self.capabilities())?;
        match self.accept_with(offered, &capabilities) {
            Err(OpenError::NoPath(reason)) => {
                let capabilities = self.or_refuse(capabilities.after_failed_tests(reason))?;
                // The connecting end refuses if it has nothing else.
                self.accept_with(self.read_offer()?, &capabilities)
            }
            outcome => outcome,
        }
    }

    fn read_offer(&self) -> Result<Offered, OpenError> {
        match handshake::read(&self.socket, self.operation)? {
            Record::Offer(offer, methods, path) => Ok(Offered {
                offer,
                methods,
                path,
            }),
            _ => Err(OpenError::Unexpected),
        }
    }

    fn accept_with(
        &self,
        offered: Offered,
        capabilities: &Capabilities,
    ) -> Result<Opened, OpenError> {
        let soft = [offered.methods, capabilities.methods].map(|end| end.has(Method::Soft));
        let has_alternative = soft == [true, true];
        let prepared = self.or_refuse(self.prepare(offered, capabilities))?;
        let Prepared {
            chosen,
            method,
            choice,
            share,
            locality,
            new_endpoint,
            mut further,
            most_grown,
        } = prepared;
        let answer = Answer {
            chosen,
            method,
            port: further.port(),
            token: random_bytes(),
        };
        handshake::write(&self.socket, &Record::Answer(answer), self.operation)?;
        // Long rings take a while to map and to register, which both ends do at the same time.
        let mut rings = self.or_refuse(self.rings(new_endpoint, locality, share, chosen))?;
        let mut remote = self.exchange(&rings, chosen)?;
        match &mut rings.new_endpoint {
            NewEndpoint::Soft(endpoint) => self.accept_soft(endpoint, &mut further, answer)?,
            NewEndpoint::Iwarp(endpoint) => {
                if let QueuePairListener::ConnectionManager(listener, _) = &further {
                    let accepted = self.accept_iwarp(endpoint, listener, answer);
                    self.or_refuse(accepted)?;
                }
                self.exchange_first_messages(endpoint.as_mut(), Side::Acceptor)?;
            }
            NewEndpoint::Fabric(endpoint) => {
                let regions = [rings.source, rings.sink];
                let tests = test_rings(chosen.mode, rings.lengths, regions, remote);
                let method = (method, has_alternative);
                remote = self.connect_fabric(endpoint.as_mut(), method, tests)?;
            }
        }
        let parts = Parts {
            rings,
            chosen,
            remote,
            choice,
            most_grown,
        };
        self.finish(parts)
    }

    /// The steps of the accepting end that may fail, before it answers.
    fn prepare(
        &self,
        offered: Offered,
        capabilities: &Capabilities,
    ) -> Result<Prepared, OpenError> {
        let Offered {
            offer,
            methods,
            path,
        } = offered;
        let method = methods.choose(capabilities.methods).ok_or_else(|| {
            let (theirs, ours) = (methods, capabilities.methods);
            OpenError::Local(format!(
                "the connecting end has {theirs}, and the accepting end {ours}{}",
                capabilities.adapter_error()
            ))
        })?;
        let path = self.path(capabilities).with(path);
        let pins = method != Method::Soft;
        let rules = self.ring_rules(pins);
        let ring_bytes = rules.acceptable(path);
        let ours = capabilities.adapters();
        let pairs = match method.has_rails() {
            true => ours
                .max(offer.adapters.into())
                .min(capabilities.most_rails()),
            false => 1,
        };
        let way = (Some(method), offer.mode);
        let queue_pairs = self.queue_pairs(capabilities, way, ring_bytes, pairs);
        let rails = [offer.adapters.into(), pairs];
        let wanted = self
            .settings
            .offer(Lengths::both(ring_bytes), queue_pairs, rails);
        let (wanted, most_grown) = rules.accepted(offer.within(wanted), path);
        let pinning = if pins {
            ours.clamp(1, wanted.rails.into())
        } else {
            0
        };
        let mut share = self.share(Side::Acceptor, pinning, wanted.rings.reversed())?;
        let chosen = choose(wanted, &mut share, pins)?;
        let locality = locality(method, capabilities, chosen.rails);
        let new_endpoint = self.new_endpoint(chosen, method, capabilities)?;
        let further = match new_endpoint {
            NewEndpoint::Iwarp(_) => self.listen_by_manager()?,
            NewEndpoint::Soft(_) if method == Method::Iwarp || chosen.queue_pairs > 1 => {
                QueuePairListener::Tcp(self.listen()?)
            }
            NewEndpoint::Soft(_) | NewEndpoint::Fabric(_) => QueuePairListener::None,
        };
        Ok(Prepared {
            chosen,
            method,
            choice: capabilities.reason(method),
            share,
            locality,
            new_endpoint,
            further,
            most_grown,
        })
    }

    /// Each end sends the address of the ring that the other end accesses, with its key at each adapter.
    fn exchange(&self, rings: &Rings, chosen: Offer) -> Result<RemoteRing, OpenError> {
        let record = Record::Ring(rings.exposed.clone());
        handshake::write(&self.socket, &record, self.operation)?;
        let Record::Ring(theirs) = handshake::read(&self.socket, self.operation)? else {
            return Err(OpenError::Unexpected);
        };
        let rails = usize::from(chosen.rails);
        RemoteRing::over(rails, theirs.address, &theirs.keys).ok_or(OpenError::Unexpected)
    }
}

/// `regions` are the ring that this end sends from, and the one that it receives into.
fn test_rings(mode: Mode, lengths: Lengths, regions: [usize; 2], remote: RemoteRing) -> TestRings {
    let [source, sink] = regions;
    let ring_bytes = match mode {
        Mode::Put => lengths.outgoing,
        Mode::Get => lengths.incoming,
    };
    TestRings {
        mode,
        ring_bytes: ring_bytes.get(),
        source,
        sink,
        remote,
    }
}

/// Memory that an adapter pins for messages.
fn slot_bytes(chosen: Offer, method: Method) -> u64 {
    match method {
        Method::Soft => 0,
        Method::Iwarp | Method::Roce | Method::InfiniBand | Method::Provided => chosen.slot_bytes(),
    }
}

/// What the connecting end has offered.
struct Offered {
    offer: Offer,
    methods: Methods,
    path: PathRecord,
}

/// The state of the accepting end before it answers.
struct Prepared {
    chosen: Offer,
    method: Method,
    choice: String,
    share: Share,
    locality: Option<Arc<Locality>>,
    new_endpoint: NewEndpoint,
    further: QueuePairListener,
    most_grown: MostGrown,
}
