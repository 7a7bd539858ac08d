//! Opens a channel on a data connection: agrees with the other end, connects queue pairs, makes rings.

use std::net::{IpAddr, SocketAddr};
use std::num::NonZeroU64;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use gridhaul_stack::{AcceptError, ChannelError, ConnectError, Operation, Side, SocketOptions};
use gridhaul_tcp::{TcpChannel, TcpListener};

use crate::engine::{Exchange, Pacer, Receiver, Ring, Sender, SenderSettings};
use crate::handshake::{self, Answer, Offer, Record, RecordError, RingRecord, Token};
use crate::memory::{Holder, Memory, Pool, PoolError, Share};
use crate::provider::{Access, Endpoint, Remote};
use crate::random::random_bytes;
use crate::settings::Settings;
use crate::soft::{self, Established, HandshakeError, SoftEndpoint};

/// A channel that is ready for data.
#[derive(Debug)]
pub(crate) struct Opened {
    pub(crate) endpoint: Box<dyn Endpoint>,
    pub(crate) exchange: Exchange,
    /// The ring that we send from.
    pub(crate) outgoing: Arc<Memory>,
    /// The ring that the other end writes to.
    pub(crate) incoming: Arc<Memory>,
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
        let mut share = self.share(Side::Connector, self.settings.ring_bytes)?;
        let offer = self.settings.offer(share.ring_bytes());
        handshake::write(&self.socket, &Record::Offer(offer), self.operation)?;
        let Record::Answer(answer) = handshake::read(&self.socket, self.operation)? else {
            return Err(OpenError::Unexpected);
        };
        if answer.chosen.within(offer) != answer.chosen {
            return Err(OpenError::Greedy);
        }
        share.shrink(answer.chosen.ring_bytes);
        let mut rings = Self::rings(share)?;
        let remote = self.exchange(&rings)?;
        for number in 1..answer.chosen.queue_pairs {
            let address = SocketAddr::new(self.peer.ip(), answer.port);
            let further =
                gridhaul_tcp::connect(&self.settings.tcp, address, self.options, self.operation);
            let (socket, _) = further.map_err(connect_error)?.into_parts();
            let connection = self.establish(socket, Side::Connector, answer.token, number)?;
            rings.attach(connection)?;
        }
        self.finish(rings, answer, Side::Connector, remote)
    }

    fn accept(self) -> Result<Opened, OpenError> {
        let Record::Offer(offer) = handshake::read(&self.socket, self.operation)? else {
            return Err(OpenError::Unexpected);
        };
        let prepared = self.prepare(offer);
        if let Err(OpenError::Local(reason)) = &prepared {
            // It goes if it can; ours is the reason that counts.
            let refusal = Record::Refusal(reason.clone());
            let _ = handshake::write(&self.socket, &refusal, self.operation);
        }
        let (chosen, mut rings, mut listener) = prepared?;
        let answer = Answer {
            chosen,
            port: listener.as_ref().map_or(0, TcpListener::port),
            token: random_bytes(),
        };
        handshake::write(&self.socket, &Record::Answer(answer), self.operation)?;
        let remote = self.exchange(&rings)?;
        for number in 1..chosen.queue_pairs {
            let Some(listener) = &mut listener else {
                break;
            };
            rings.attach(self.accept_further(listener, answer.token, number)?)?;
        }
        self.finish(rings, answer, Side::Acceptor, remote)
    }

    /// What may fail at this end, before anything is promised to the other.
    fn prepare(&self, offer: Offer) -> Result<(Offer, Rings, Option<TcpListener>), OpenError> {
        let wanted = offer.within(self.settings.offer(self.settings.ring_bytes));
        let share = self.share(Side::Acceptor, wanted.ring_bytes)?;
        let chosen = Offer {
            ring_bytes: share.ring_bytes(),
            ..wanted
        };
        let rings = Self::rings(share)?;
        let listener = (chosen.queue_pairs > 1)
            .then(|| {
                let local = self.local_address()?;
                TcpListener::open(&self.settings.tcp, local, self.options)
                    .map_err(|error| OpenError::Local(error.to_string()))
            })
            .transpose()?;
        Ok((chosen, rings, listener))
    }

    fn local_address(&self) -> Result<IpAddr, OpenError> {
        rustix::net::getsockname(&self.socket)
            .and_then(SocketAddr::try_from)
            .map(|address| address.ip())
            .map_err(|errno| OpenError::Local(errno.to_string()))
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
        let mut private = token.to_vec();
        private.extend(number.to_be_bytes());
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

    /// Our part of the memory for rings, which may be less than is wanted.
    fn share(&self, side: Side, ring_bytes: NonZeroU64) -> Result<Share, OpenError> {
        let holder = Holder { side, pins: false };
        let taken = Pool::of_process().take(holder, ring_bytes, self.operation);
        taken.map_err(|error| match error {
            PoolError::Cancelled => ChannelError::Cancelled.into(),
            PoolError::Waited(_) | PoolError::Bound(_) => OpenError::Local(error.to_string()),
        })
    }

    fn rings(share: Share) -> Result<Rings, OpenError> {
        let local = |error: std::io::Error| OpenError::Local(format!("no memory: {error}"));
        let mut endpoint = SoftEndpoint::new().map_err(local)?;
        let [outgoing, incoming] = share.map().map_err(local)?;
        let source = endpoint.register(&outgoing, Access::Local).map_err(local)?;
        let sink = endpoint
            .register(&incoming, Access::RemoteWrite)
            .map_err(local)?;
        Ok(Rings {
            endpoint,
            outgoing,
            incoming,
            source: source.id,
            sink: RingRecord {
                address: sink.address,
                key: sink.key,
            },
        })
    }

    /// Each end tells the other where its ring is.
    fn exchange(&self, rings: &Rings) -> Result<Remote, OpenError> {
        handshake::write(&self.socket, &Record::Ring(rings.sink), self.operation)?;
        match handshake::read(&self.socket, self.operation)? {
            Record::Ring(RingRecord { address, key }) => Ok(Remote { address, key }),
            _ => Err(OpenError::Unexpected),
        }
    }

    /// The data connection itself becomes the last queue pair.
    fn finish(
        self,
        mut rings: Rings,
        answer: Answer,
        side: Side,
        remote: Remote,
    ) -> Result<Opened, OpenError> {
        let socket = self.socket.try_clone();
        let socket = socket.map_err(|error| OpenError::Local(error.to_string()))?;
        rings.attach(self.establish(socket, side, answer.token, 0)?)?;
        let limits = rings.endpoint.limits();
        let chosen = answer.chosen;
        let ring = Ring::new(chosen.ring_bytes);
        let pieces = usize::from(chosen.pieces);
        // A ring may be smaller than was wished: one part of it is filled, one flies and one drains.
        let message = self.settings.message.min(ring.bytes().div_ceil(3));
        let settings = SenderSettings {
            ring,
            region: rings.source,
            remote,
            queue_pairs: limits.queue_pairs,
            depth: limits.depth,
            message_bytes: message.min(limits.message_bytes as u64),
            piece_bytes: piece_bytes(ring, message),
            max_pieces: pieces,
            stall: (!limits.over_tcp).then_some(self.settings.stall),
        };
        let pacer = Pacer::new(self.settings.rate, self.settings.burst);
        let sender = Sender::new(settings, pacer);
        let receiver = Receiver::new(ring, pieces);
        Ok(Opened {
            endpoint: Box::new(rings.endpoint),
            exchange: Exchange::new(sender, receiver, limits.queue_pairs),
            outgoing: rings.outgoing,
            incoming: rings.incoming,
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

/// Our side of a channel before its queue pairs are connected.
struct Rings {
    endpoint: SoftEndpoint,
    outgoing: Arc<Memory>,
    incoming: Arc<Memory>,
    source: usize,
    sink: RingRecord,
}

impl Rings {
    fn attach(&mut self, connection: Established) -> Result<(), OpenError> {
        self.endpoint
            .attach(connection)
            .map_err(|error| OpenError::Local(error.to_string()))
    }
}

fn connect_error(error: ConnectError) -> OpenError {
    match error {
        ConnectError::Channel(error) => error.into(),
        other => OpenError::Local(other.to_string()),
    }
}
