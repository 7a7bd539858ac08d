//! Opens a channel on a data connection: agrees with the other end, connects queue pairs, makes rings.

use std::net::{IpAddr, SocketAddr};
use std::num::NonZeroU64;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Duration;

use gridhaul_stack::{AcceptError, ChannelError, ConnectError, Operation, Side, SocketOptions};
use gridhaul_tcp::{TcpChannel, TcpListener};

use crate::engine::{
    Exchange, Pacer, Path, Rate, Reader, ReaderSettings, Receiver, Ring, Sender, SenderSettings,
};
use crate::handshake::{
    self, Answer, FabricRecord, Mode, Offer, Record, RecordError, RingRecord, Token, Way, Ways,
};
use crate::memory::{Holder, Memory, Pool, PoolError, Share};
use crate::outgoing::Outgoing;
use crate::provider::{Completion, Endpoint, Fabric, Message, Remote, Request, Wanted, Work};
use crate::random::random_bytes;
use crate::round_trip::round_trip;
use crate::sections::Sections;
use crate::settings::{Provider, Settings};
use crate::soft::{self, Established, HandshakeError, SoftEndpoint};
use crate::verbs::{Connection, ConnectionError, Listener, Place, VerbsEndpoint, VerbsError};

/// A channel that is ready for data.
#[derive(Debug)]
pub(crate) struct Opened {
    pub(crate) endpoint: Box<dyn Endpoint>,
    pub(crate) exchange: Exchange,
    pub(crate) outgoing: Outgoing,
    /// The ring that the other end writes to.
    pub(crate) incoming: Arc<Memory>,
    pub(crate) tuning: Tuning,
    /// Who carries the messages, and why it is not somebody else.
    pub(crate) choice: String,
}

/// How the path to the peer is used.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Tuning {
    /// The largest WRITE or READ.
    pub(crate) message_bytes: u64,
    /// Requests under way on each queue pair.
    pub(crate) depth: usize,
    /// As TCP has measured it.
    pub(crate) round_trip: Duration,
}

impl Tuning {
    /// How long rings would have to be to keep a path of this rate, in bytes per second, busy, if they are too short for
    /// it: one part is filled, one flies and one drains, and each is what is under way in a round trip.
    pub(crate) fn wanted_ring_bytes(&self, rate: u64, ring_bytes: u64) -> Option<u64> {
        let product = u128::from(rate) * self.round_trip.as_nanos() / 1_000_000_000;
        let wanted = u64::try_from(3 * product).unwrap_or(u64::MAX);
        (wanted > ring_bytes).then_some(wanted)
    }
}

/// Why a channel did not open.
#[derive(Debug, thiserror::Error)]
enum OpenError {
    #[error(transparent)]
    Channel(#[from] ChannelError),
    #[error(transparent)]
    Record(#[from] RecordError),
    #[error(transparent)]
    Handshake(#[from] HandshakeError),
    #[error("the other end answered something else than was asked")]
    Unexpected,
    #[error("the other end chose more than it was offered")]
    Greedy,
    /// Ours, and told to the other end.
    #[error("{0}")]
    Local(String),
}

/// The two ends of the data connection, and what is known of them.
struct Opening<'a> {
    socket: OwnedFd,
    peer: SocketAddr,
    settings: &'a Settings,
    options: &'a SocketOptions,
    operation: &'a Operation<'a>,
}

/// Opens a channel.
///
/// # Errors
///
/// When the other end does not speak the protocol, refuses, goes away or is silent until the deadline, or
/// when there is no memory.
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
        | OpenError::Record(RecordError::Channel(error))
        | OpenError::Handshake(HandshakeError::Channel(error)) => error,
        OpenError::Record(RecordError::Closed) => ChannelError::Aborted,
        other => ChannelError::Protocol {
            driver: "rdma",
            reason: other.to_string(),
        },
    })
}

impl Opening<'_> {
    fn connect(self) -> Result<Opened, OpenError> {
        let abilities = self.or_refuse(self.abilities())?;
        let pins = abilities.place.is_some();
        let mut share = self.share(Side::Connector, pins, self.settings.ring_bytes)?;
        let offer = self.settings.offer(share.ring_bytes());
        let record = Record::Offer(offer, abilities.ways);
        handshake::write(&self.socket, &record, self.operation)?;
        let Record::Answer(answer) = handshake::read(&self.socket, self.operation)? else {
            return Err(OpenError::Unexpected);
        };
        if answer.chosen.within(offer) != answer.chosen || answer.chosen.mode != offer.mode {
            return Err(OpenError::Greedy);
        }
        share.shrink(answer.chosen.ring_bytes);
        let rings = self.rings(share, answer.chosen, answer.way, &abilities);
        let mut rings = self.or_refuse(rings)?;
        let remote = self.exchange(&rings)?;
        match &mut rings.carrier {
            Carrier::Soft(endpoint) if answer.way == Way::Iwarp => {
                for number in 0..answer.chosen.queue_pairs {
                    let connection = self.connect_further(answer, number)?;
                    endpoint.attach(connection).map_err(local_error)?;
                }
                endpoint.keep(self.socket.try_clone().map_err(local_error)?);
                self.greet(endpoint, Side::Connector)?;
            }
            Carrier::Soft(endpoint) => {
                for number in 1..answer.chosen.queue_pairs {
                    let connection = self.connect_further(answer, number)?;
                    endpoint.attach(connection).map_err(local_error)?;
                }
                let connection = self.last(Side::Connector, answer.token)?;
                endpoint.attach(connection).map_err(local_error)?;
            }
            Carrier::Iwarp(endpoint) => {
                let connected = self.connect_iwarp(endpoint, answer);
                self.or_refuse(connected)?;
                self.greet(endpoint.as_mut(), Side::Connector)?;
            }
            Carrier::Fabric(endpoint) => self.connect_fabric(endpoint.as_mut(), answer.way)?,
        }
        self.finish(rings, answer.chosen, remote, abilities.reason(answer.way))
    }

    fn accept(self) -> Result<Opened, OpenError> {
        let Record::Offer(offer, ways) = handshake::read(&self.socket, self.operation)? else {
            return Err(OpenError::Unexpected);
        };
        let prepared = self.or_refuse(self.prepare(offer, ways))?;
        let Prepared {
            chosen,
            way,
            choice,
            mut rings,
            mut listener,
        } = prepared;
        let answer = Answer {
            chosen,
            way,
            port: listener.port(),
            token: random_bytes(),
        };
        handshake::write(&self.socket, &Record::Answer(answer), self.operation)?;
        let remote = self.exchange(&rings)?;
        match &mut rings.carrier {
            Carrier::Soft(endpoint) => {
                let first = u16::from(way == Way::Soft);
                if let Door::Tcp(listener) = &mut listener {
                    for number in first..chosen.queue_pairs {
                        let connection = self.accept_further(listener, answer.token, number)?;
                        endpoint.attach(connection).map_err(local_error)?;
                    }
                }
                if way == Way::Soft {
                    let connection = self.last(Side::Acceptor, answer.token)?;
                    endpoint.attach(connection).map_err(local_error)?;
                } else {
                    endpoint.keep(self.socket.try_clone().map_err(local_error)?);
                    self.greet(endpoint, Side::Acceptor)?;
                }
            }
            Carrier::Iwarp(endpoint) => {
                if let Door::Manager(listener, _) = &listener {
                    let accepted = self.accept_iwarp(endpoint, listener, answer);
                    self.or_refuse(accepted)?;
                }
                self.greet(endpoint.as_mut(), Side::Acceptor)?;
            }
            Carrier::Fabric(endpoint) => self.connect_fabric(endpoint.as_mut(), way)?,
        }
        self.finish(rings, chosen, remote, choice)
    }

    /// What may fail at this end, before anything is promised to the other.
    fn prepare(&self, offer: Offer, ways: Ways) -> Result<Prepared, OpenError> {
        let abilities = self.abilities()?;
        let way = ways.choose(abilities.ways).ok_or_else(|| {
            let (theirs, ours) = (ways, abilities.ways);
            OpenError::Local(format!(
                "the connecting end has {theirs}, and the accepting end {ours}{}",
                abilities.reservation()
            ))
        })?;
        let wanted = offer.within(self.settings.offer(self.settings.ring_bytes));
        let share = self.share(Side::Acceptor, way != Way::Soft, wanted.ring_bytes)?;
        let chosen = Offer {
            ring_bytes: share.ring_bytes(),
            ..wanted
        };
        let rings = self.rings(share, chosen, way, &abilities)?;
        let listener = match rings.carrier {
            Carrier::Iwarp(_) => self.listen_by_manager()?,
            Carrier::Soft(_) if way == Way::Iwarp || chosen.queue_pairs > 1 => {
                Door::Tcp(self.listen()?)
            }
            Carrier::Soft(_) | Carrier::Fabric(_) => Door::None,
        };
        Ok(Prepared {
            chosen,
            way,
            choice: abilities.reason(way),
            rings,
            listener,
        })
    }

    fn listen(&self) -> Result<TcpListener, OpenError> {
        let local = self.local_address()?;
        TcpListener::open(&self.settings.tcp, local, self.options)
            .map_err(|error| OpenError::Local(error.to_string()))
    }

    /// Adapters listen at the ports of TCP, and so within the range that is for them.
    fn listen_by_manager(&self) -> Result<Door, OpenError> {
        const TRIES: usize = 16;
        let local = self.local_address()?;
        let mut outcome = Err(OpenError::Unexpected);
        for _ in 0..TRIES {
            // Somebody else may take the port between the two.
            let port = self.listen()?.port();
            outcome = Listener::open(SocketAddr::new(local, port))
                .map(|listener| Door::Manager(listener, port))
                .map_err(connection_error);
            if outcome.is_ok() {
                break;
            }
        }
        outcome
    }

    /// What this end can do for the address of the data connection.
    fn abilities(&self) -> Result<Abilities, OpenError> {
        let soft = Ways::default().with(Way::Soft);
        if self.settings.provided.is_some() {
            return self.provided_abilities();
        }
        let provider = self.settings.provider;
        if provider == Provider::Soft {
            return Ok(Abilities {
                ways: soft,
                place: None,
                without_verbs: None,
            });
        }
        let programs = match provider {
            Provider::Verbs => Ways::default(),
            Provider::Auto | Provider::Soft => soft,
        };
        match Place::find(self.local_address()?, &self.settings.wishes) {
            Ok(place) => Ok(Abilities {
                ways: programs.with(place.way()),
                place: Some(place),
                without_verbs: None,
            }),
            Err(error) if provider == Provider::Verbs => Err(OpenError::Local(error.to_string())),
            Err(error) => Ok(Abilities {
                ways: programs,
                place: None,
                without_verbs: Some(error),
            }),
        }
    }

    /// A provider that is no part of this crate does it alone.
    fn provided_abilities(&self) -> Result<Abilities, OpenError> {
        let place = Place::find(self.local_address()?, &self.settings.wishes);
        let place = place.map_err(|error| OpenError::Local(error.to_string()))?;
        if place.way() != Way::Roce {
            return Err(OpenError::Local(format!("{} is no RoCE", place.device())));
        }
        Ok(Abilities {
            ways: Ways::default().with(Way::Provided),
            place: Some(place),
            without_verbs: None,
        })
    }

    /// Tells the other end why this one cannot go on.
    fn or_refuse<T>(&self, outcome: Result<T, OpenError>) -> Result<T, OpenError> {
        if let Err(OpenError::Local(reason)) = &outcome {
            // It goes if it can; ours is the reason that counts.
            let refusal = Record::Refusal(reason.clone());
            let _ = handshake::write(&self.socket, &refusal, self.operation);
        }
        outcome
    }

    fn local_address(&self) -> Result<IpAddr, OpenError> {
        rustix::net::getsockname(&self.socket)
            .and_then(SocketAddr::try_from)
            .map(|address| address.ip())
            .map_err(|errno| OpenError::Local(errno.to_string()))
    }

    /// The connection of a further queue pair.
    fn connect_further(&self, answer: Answer, number: u16) -> Result<Established, OpenError> {
        let address = SocketAddr::new(self.peer.ip(), answer.port);
        let further =
            gridhaul_tcp::connect(&self.settings.tcp, address, self.options, self.operation);
        let (socket, _) = further.map_err(connect_error)?.into_parts();
        self.establish(socket, Side::Connector, answer.token, number)
    }

    /// The connection of a further queue pair. Whoever else calls is turned away.
    fn accept_further(
        &self,
        listener: &mut TcpListener,
        token: Token,
        number: u16,
    ) -> Result<Established, OpenError> {
        loop {
            let connection = match listener.accept_channel(self.operation) {
                Ok(connection) => connection,
                Err(AcceptError::Connection { .. }) => continue,
                Err(AcceptError::Listener(error)) => return Err(error.into()),
            };
            let (socket, peer) = connection.into_parts();
            if peer.ip() != self.peer.ip() {
                continue;
            }
            match self.establish(socket, Side::Acceptor, token, number) {
                Err(OpenError::Handshake(error)) if !error.is_final() => {}
                outcome => return outcome,
            }
        }
    }

    fn establish(
        &self,
        socket: OwnedFd,
        side: Side,
        token: Token,
        number: u16,
    ) -> Result<Established, OpenError> {
        let private = private_data(token, number);
        let offer = soft::Offer {
            checksum: self.settings.checksum,
            revision: 2,
            segment_bytes: usize::MAX,
            private,
        };
        let accepts = |theirs: &[u8]| theirs == offer.private;
        let established = soft::establish(socket, side, &offer, &accepts, self.operation)?;
        Ok(established)
    }

    /// Our part of the memory for rings, which may be less than is wanted. `pins`: they may be for a device.
    fn share(&self, side: Side, pins: bool, ring_bytes: NonZeroU64) -> Result<Share, OpenError> {
        let holder = Holder { side, pins };
        let taken = Pool::of_process().take(holder, ring_bytes, self.operation);
        taken.map_err(|error| match error {
            PoolError::Cancelled => ChannelError::Cancelled.into(),
            PoolError::Waited(_) | PoolError::Bound(_) => OpenError::Local(error.to_string()),
        })
    }

    /// The data connection itself becomes the last queue pair.
    fn last(&self, side: Side, token: Token) -> Result<Established, OpenError> {
        let socket = self.socket.try_clone().map_err(local_error)?;
        self.establish(socket, side, token, 0)
    }

    /// Connects the queue pairs of an adapter of iWARP to whatever speaks that at the other end.
    fn connect_iwarp(&self, endpoint: &mut VerbsEndpoint, answer: Answer) -> Result<(), OpenError> {
        let local = self.local_address()?;
        let peer = SocketAddr::new(self.peer.ip(), answer.port);
        for number in 0..answer.chosen.queue_pairs {
            let private = private_data(answer.token, number);
            let introduction = endpoint.introduction(number, &private);
            // librdmacm does not know which ports TCP has given to others, and takes another the next time.
            let mut tries = 0..CONNECT_TRIES;
            let connection = loop {
                match Connection::connect(local, peer, introduction, self.operation) {
                    Err(ConnectionError::Call { error, .. })
                        if error.kind() == std::io::ErrorKind::AddrInUse
                            && tries.next().is_some() => {}
                    outcome => break outcome,
                }
            };
            endpoint.attach(number, connection.map_err(connection_error)?);
        }
        let socket = self.socket.try_clone().map_err(local_error)?;
        endpoint.keep(socket).map_err(local_error)
    }

    /// Lets the other end connect to the queue pairs of an adapter of iWARP. Whoever else calls is turned away.
    fn accept_iwarp(
        &self,
        endpoint: &mut VerbsEndpoint,
        listener: &Listener,
        answer: Answer,
    ) -> Result<(), OpenError> {
        for number in 0..answer.chosen.queue_pairs {
            let private = private_data(answer.token, number);
            let incoming = loop {
                let incoming = listener.next(self.operation).map_err(connection_error)?;
                if incoming.private().starts_with(&private) {
                    break incoming;
                }
                incoming.reject();
            };
            let introduction = endpoint.introduction(number, &private);
            let connection = incoming.accept(introduction, self.operation);
            endpoint.attach(number, connection.map_err(connection_error)?);
        }
        let socket = self.socket.try_clone().map_err(local_error)?;
        endpoint.keep(socket).map_err(local_error)
    }

    /// RFC 5044 7.1: the end that has connected sends first. Which end has data is another matter, so it sends an empty
    /// message on each queue pair.
    fn greet(&self, endpoint: &mut dyn Endpoint, side: Side) -> Result<(), OpenError> {
        let limits = endpoint.limits();
        let count = limits.queue_pairs;
        if side == Side::Connector {
            let message = Message::new(&[]).expect("it has no byte");
            let work = Work::Send(message);
            for queue_pair in 0..count {
                let posted = endpoint.post(queue_pair, Request { id: 0, work });
                posted.map_err(|error| OpenError::Local(error.to_string()))?;
            }
        }
        // A device sends by itself; what the peer does after that is for whoever uses the channel.
        let is_done = side == Side::Connector && !limits.needs_polling;
        let (mut seen, mut completions) = (0, Vec::new());
        while !is_done && seen < count {
            endpoint.poll(&mut completions);
            for completion in completions.drain(..) {
                match completion {
                    Completion::Done { .. } => seen += 1,
                    Completion::Received { message, .. } if message.as_bytes().is_empty() => {
                        seen += 1;
                    }
                    Completion::Lost { .. } => return Err(ChannelError::Aborted.into()),
                    _ => return Err(OpenError::Unexpected),
                }
            }
            if seen < count {
                self.operation.wait_readable(endpoint.descriptor())?;
            }
        }
        match side {
            Side::Acceptor => {
                handshake::write(&self.socket, &Record::Ready, self.operation)?;
                Ok(())
            }
            Side::Connector => match handshake::read(&self.socket, self.operation)? {
                Record::Ready => Ok(()),
                _ => Err(OpenError::Unexpected),
            },
        }
    }

    /// Connects the queue pairs of adapters; the data connection stays beside them.
    fn connect_fabric(&self, endpoint: &mut dyn Fabric, way: Way) -> Result<(), OpenError> {
        let record = Record::Fabric(endpoint.record());
        handshake::write(&self.socket, &record, self.operation)?;
        let Record::Fabric(peer) = handshake::read(&self.socket, self.operation)? else {
            return Err(OpenError::Unexpected);
        };
        self.or_refuse(self.check_gid(&peer, way))?;
        let socket = self.socket.try_clone().map_err(local_error)?;
        let connected = endpoint.connect(&peer, socket).map_err(local_error);
        self.or_refuse(connected)?;
        // Whoever is sent to has to be ready: what comes too early is repeated only after a while.
        handshake::write(&self.socket, &Record::Ready, self.operation)?;
        match handshake::read(&self.socket, self.operation)? {
            Record::Ready => Ok(()),
            _ => Err(OpenError::Unexpected),
        }
    }

    /// An adapter sends where the peer says. That must be the host of the data connection, or the peer could have us
    /// send to others.
    fn check_gid(&self, peer: &FabricRecord, way: Way) -> Result<(), OpenError> {
        let gid = IpAddr::V6(peer.port.gid.into()).to_canonical();
        let host = self.peer.ip().to_canonical();
        if way == Way::InfiniBand || self.settings.wishes.gid.is_some() || gid == host {
            return Ok(());
        }
        Err(OpenError::Local(format!(
            "the adapter of the other end has the address {gid}, and the data connection {host}: where both are the \
             same host, the option gid at this end says that it may be so"
        )))
    }

    fn carrier(
        &self,
        chosen: Offer,
        way: Way,
        abilities: &Abilities,
    ) -> Result<Carrier, OpenError> {
        let wanted = Wanted {
            queue_pairs: chosen.queue_pairs,
            pieces: chosen.pieces,
            round_trip: round_trip(&self.socket),
        };
        match (way, &abilities.place) {
            (Way::Iwarp, Some(place)) if place.way() == way => {
                let endpoint = VerbsEndpoint::new(place, wanted);
                let endpoint = endpoint.map_err(|error| OpenError::Local(error.to_string()))?;
                Ok(Carrier::Iwarp(Box::new(endpoint)))
            }
            (Way::Soft | Way::Iwarp, _) if abilities.ways.has(Way::Soft) => {
                Ok(Carrier::Soft(SoftEndpoint::new().map_err(local_error)?))
            }
            (Way::Roce | Way::InfiniBand, Some(place)) if place.way() == way => {
                let endpoint = VerbsEndpoint::new(place, wanted);
                let endpoint = endpoint.map_err(|error| OpenError::Local(error.to_string()))?;
                Ok(Carrier::Fabric(Box::new(endpoint)))
            }
            (Way::Provided, Some(place)) => match &self.settings.provided {
                Some(provider) => provider
                    .endpoint(place, wanted)
                    .map(Carrier::Fabric)
                    .map_err(|error| OpenError::Local(format!("{}: {error}", provider.name()))),
                None => Err(OpenError::Greedy),
            },
            _ => Err(OpenError::Greedy),
        }
    }

    fn rings(
        &self,
        share: Share,
        chosen: Offer,
        way: Way,
        abilities: &Abilities,
    ) -> Result<Rings, OpenError> {
        let local = |error: std::io::Error| OpenError::Local(format!("no memory: {error}"));
        let mut carrier = self.carrier(chosen, way, abilities)?;
        let sections = (self.settings.pins_files && chosen.mode == Mode::Put)
            .then(|| Sections::beside(chosen.ring_bytes.get()))
            .flatten();
        let pinned_bytes = sections.as_ref().map_or(0, Sections::allowance);
        let [outgoing, incoming] = share.map(pinned_bytes).map_err(local)?;
        if chosen.mode == Mode::Get {
            // The peer may read all of it, and it may have been another's.
            outgoing.clear();
        }
        let endpoint = carrier.endpoint();
        let [source, sink] = chosen.mode.access();
        let source = endpoint.register(&outgoing, source).map_err(local)?;
        let sink = endpoint.register(&incoming, sink).map_err(local)?;
        let told = match chosen.mode {
            Mode::Put => sink,
            Mode::Get => source,
        };
        Ok(Rings {
            carrier,
            outgoing: match sections {
                Some(sections) => Outgoing::pinning(outgoing, source.id, sections),
                None => Outgoing::ring(outgoing),
            },
            incoming,
            source: source.id,
            sink: sink.id,
            told: RingRecord {
                address: told.address,
                key: told.key,
            },
        })
    }

    /// Each end tells the other where the ring is that it gets at.
    fn exchange(&self, rings: &Rings) -> Result<Remote, OpenError> {
        handshake::write(&self.socket, &Record::Ring(rings.told), self.operation)?;
        match handshake::read(&self.socket, self.operation)? {
            Record::Ring(RingRecord { address, key }) => Ok(Remote { address, key }),
            _ => Err(OpenError::Unexpected),
        }
    }

    fn finish(
        self,
        mut rings: Rings,
        chosen: Offer,
        remote: Remote,
        choice: String,
    ) -> Result<Opened, OpenError> {
        let limits = rings.carrier.endpoint().limits();
        let ring = Ring::new(chosen.ring_bytes);
        let pieces = usize::from(chosen.pieces);
        // A ring may be smaller than was wished: one part of it is filled, one flies and one drains.
        let message = self.settings.message.min(ring.bytes().div_ceil(3));
        let settings = SenderSettings {
            ring,
            region: rings.source,
            remote,
            queue_pairs: limits.queue_pairs,
            depth: self
                .settings
                .depth
                .map_or(limits.depth, |depth| depth.min(limits.depth)),
            message_bytes: message.min(limits.message_bytes as u64),
            piece_bytes: piece_bytes(ring, message),
            max_pieces: pieces,
            is_fetched: chosen.mode == Mode::Get,
            completes_early: limits.over_tcp,
            stall: (!limits.over_tcp).then_some(self.settings.stall),
        };
        let rate = match self.settings.rate {
            // TCP finds it out by itself; where nothing is replaced, nothing may be lost to find it out; and a receiver
            // that fetches does not know what was lost of a READ.
            Rate::Auto { .. }
                if limits.over_tcp || !limits.replaces || chosen.mode == Mode::Get =>
            {
                Rate::Any
            }
            rate => rate,
        };
        let path = Path::to(self.peer.ip(), rate, self.settings.burst);
        let pacer = Pacer::new(Arc::clone(&path), limits.queue_pairs);
        let sender = Sender::new(settings, pacer);
        let receiver = Receiver::new(ring, pieces);
        let mut exchange = Exchange::new(sender, receiver, limits.queue_pairs);
        if chosen.mode == Mode::Get {
            if limits.reads == 0 {
                return Err(OpenError::Local(
                    "mode=get reads, and one of the two adapters does not (max_qp_rd_atom is 0)"
                        .to_owned(),
                ));
            }
            let settings = ReaderSettings {
                ring,
                region: rings.sink,
                remote,
                queue_pairs: limits.queue_pairs,
                depth: limits.reads,
                message_bytes: settings.message_bytes,
            };
            exchange = exchange.fetch(Reader::new(settings, Pacer::new(path, 0)));
        }
        Ok(Opened {
            endpoint: rings.carrier.into_endpoint(),
            exchange,
            outgoing: rings.outgoing,
            incoming: rings.incoming,
            tuning: Tuning {
                message_bytes: settings.message_bytes,
                depth: settings.depth,
                round_trip: round_trip(&self.socket),
            },
            choice,
        })
    }
}

/// Pieces of a sixteenth of the ring keep several queue pairs busy and the receiver informed; none is shorter than a
/// message or longer than its length can be told.
pub(crate) fn piece_bytes(ring: Ring, message: u64) -> u64 {
    const MAX_PIECE_BYTES: u64 = 16 << 20;
    let sixteenth = (ring.bytes() / 16).min(MAX_PIECE_BYTES);
    sixteenth.max(message).min(ring.bytes())
}

/// What this end can do.
struct Abilities {
    ways: Ways,
    /// The port for adapters.
    place: Option<Place>,
    /// Why there is none, if one was looked for.
    without_verbs: Option<VerbsError>,
}

impl Abilities {
    /// Why messages go this way.
    fn reason(&self, way: Way) -> String {
        match (way, &self.place, &self.without_verbs) {
            (Way::Soft, None, Some(error)) => error.to_string(),
            (Way::Soft, None, None) => "provider=soft".to_owned(),
            (Way::Soft, Some(place), _) => {
                format!(
                    "the other end has nothing that understands {}",
                    place.device()
                )
            }
            (Way::Iwarp, None, _) => "the other end has an adapter of iWARP".to_owned(),
            (_, Some(place), _) => {
                format!("the data connection has an address of {}", place.device())
            }
            (_, None, _) => "the other end chose so".to_owned(),
        }
    }

    /// What an error adds.
    fn reservation(&self) -> String {
        let error = self.without_verbs.as_ref();
        error.map_or_else(String::new, |error| format!(" ({error})"))
    }
}

/// What the accepting end has before it answers.
struct Prepared {
    chosen: Offer,
    way: Way,
    choice: String,
    rings: Rings,
    listener: Door,
}

/// Where the other end connects queue pairs with connections of their own.
enum Door {
    None,
    Tcp(TcpListener),
    /// With its port.
    Manager(Listener, u16),
}

impl Door {
    /// 0 if there is none.
    fn port(&self) -> u16 {
        match self {
            Self::None => 0,
            Self::Tcp(listener) => listener.port(),
            Self::Manager(_, port) => *port,
        }
    }
}

/// Our side of a channel before its queue pairs are connected.
struct Rings {
    carrier: Carrier,
    outgoing: Outgoing,
    incoming: Arc<Memory>,
    source: usize,
    sink: usize,
    /// The ring that the peer gets at.
    told: RingRecord,
}

/// An endpoint whose queue pairs are still to be connected, in its own manner.
enum Carrier {
    Soft(SoftEndpoint),
    /// An adapter whose queue pairs the connection manager connects.
    Iwarp(Box<VerbsEndpoint>),
    Fabric(Box<dyn Fabric>),
}

impl Carrier {
    fn endpoint(&mut self) -> &mut dyn Endpoint {
        match self {
            Self::Soft(endpoint) => endpoint,
            Self::Iwarp(endpoint) => endpoint.as_mut(),
            Self::Fabric(endpoint) => endpoint.as_mut(),
        }
    }

    fn into_endpoint(self) -> Box<dyn Endpoint> {
        match self {
            Self::Soft(endpoint) => Box::new(endpoint),
            Self::Iwarp(endpoint) => endpoint,
            Self::Fabric(endpoint) => endpoint,
        }
    }
}

/// How often another port is tried for a connection of an adapter.
const CONNECT_TRIES: usize = 16;

/// What proves that a connection belongs to a data connection, and says which queue pair it is for.
fn private_data(token: Token, number: u16) -> Vec<u8> {
    let mut private = token.to_vec();
    private.extend(number.to_be_bytes());
    private
}

fn connection_error(error: ConnectionError) -> OpenError {
    match error {
        ConnectionError::Channel(error) => error.into(),
        other => OpenError::Local(other.to_string()),
    }
}

fn local_error(error: std::io::Error) -> OpenError {
    OpenError::Local(error.to_string())
}

fn connect_error(error: ConnectError) -> OpenError {
    match error {
        ConnectError::Channel(error) => error.into(),
        other => OpenError::Local(other.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ring_covers_three_times_what_is_under_way() {
        let tuning = Tuning {
            message_bytes: 1,
            depth: 1,
            round_trip: Duration::from_millis(120),
        };
        let rate = 625_000_000;
        assert_eq!(tuning.wanted_ring_bytes(rate, 225_000_000), None);
        let wanted = tuning.wanted_ring_bytes(rate, 16 << 20);
        assert_eq!(wanted, Some(225_000_000));
    }
}
