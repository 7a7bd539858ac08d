//! What the two ends tell each other on the data connection before the first byte goes by RDMA.
//!
//! The connecting end offers, the accepting end chooses, both within their own limits; then each end says once where its
//! ring is, and the queue pairs are connected. Whoever cannot go on says why, and the other end has
//! that reason in its log.

use std::fmt;
use std::num::NonZeroU64;
use std::os::fd::{AsFd, OwnedFd};

use gridhaul_stack::{ChannelError, Operation};
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags, recv, send};

use crate::provider::Access;

/// What stands before every record: a name, the version, the kind, and the length of the rest.
const HEAD_BYTES: usize = 12;
const NAME: &[u8; 8] = b"GHRDMA\r\n";
const VERSION: u8 = 2;

const KIND_OFFER: u8 = 1;
const KIND_ANSWER: u8 = 2;
const KIND_RING: u8 = 3;
const KIND_REFUSAL: u8 = 4;
const KIND_FABRIC: u8 = 5;
const KIND_READY: u8 = 6;

/// No record is longer, whatever it says.
const MAX_RECORD_BYTES: usize = 1024;

/// Proves on a further connection that it belongs to a data connection.
pub(crate) type Token = [u8; 16];

/// How queue pairs are connected.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Way {
    /// iWARP, by programs at both ends: the data connection is the first queue pair.
    Soft = 1,
    /// iWARP, by an adapter at one end at least: all queue pairs have connections of their own.
    Iwarp = 2,
    /// RoCE v2; the ends tell each other what to connect.
    Roce = 4,
    /// InfiniBand, in the same manner.
    InfiniBand = 8,
    /// RoCE v2 by a provider that is no part of this crate, in the same manner; both ends have the same one.
    Provided = 16,
}

/// The ways that an end can go.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Ways(u8);

impl Ways {
    pub(crate) fn with(self, way: Way) -> Self {
        Self(self.0 | way as u8)
    }

    pub(crate) fn has(self, way: Way) -> bool {
        self.0 & way as u8 != 0
    }

    /// The best way that both ends can go: adapters that understand each other before programs.
    pub(crate) fn choose(self, other: Self) -> Option<Way> {
        let speaks_iwarp = |ways: Self| ways.has(Way::Soft) || ways.has(Way::Iwarp);
        let both = |way: Way| self.has(way) && other.has(way);
        if both(Way::Provided) {
            Some(Way::Provided)
        } else if both(Way::InfiniBand) {
            Some(Way::InfiniBand)
        } else if both(Way::Roce) {
            Some(Way::Roce)
        } else if !speaks_iwarp(self) || !speaks_iwarp(other) {
            None
        } else if self.has(Way::Iwarp) || other.has(Way::Iwarp) {
            Some(Way::Iwarp)
        } else {
            Some(Way::Soft)
        }
    }
}

impl fmt::Display for Ways {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names = [
            (Way::Soft, "iWARP in user space"),
            (Way::Iwarp, "iWARP"),
            (Way::Roce, "RoCE"),
            (Way::InfiniBand, "InfiniBand"),
            (Way::Provided, "RoCE by a provider of its own"),
        ];
        let names = names.iter().filter(|(way, _)| self.has(*way));
        let names: Vec<_> = names.map(|(_, name)| *name).collect();
        f.write_str(&names.join(" and "))
    }
}

/// What the connecting end would like.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Offer {
    /// The length of each ring, in bytes.
    pub(crate) ring_bytes: NonZeroU64,
    /// Queue pairs.
    pub(crate) queue_pairs: u16,
    /// Pieces that may be under way in each direction.
    pub(crate) pieces: u16,
    /// The connecting end decides.
    pub(crate) mode: Mode,
}

/// Who moves bytes from ring to ring.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Mode {
    /// Their sender, by WRITEs.
    Put = 0,
    /// Their receiver, by READs.
    Get = 1,
}

impl Mode {
    /// What the peer's device may do with the ring that is sent from, and with the one that is received into: it gets
    /// at one of the two.
    pub(crate) fn access(self) -> [Access; 2] {
        match self {
            Self::Put => [Access::Local, Access::RemoteWrite],
            Self::Get => [Access::RemoteRead, Access::Sink],
        }
    }
}

/// What the accepting end makes of it: none of the numbers is larger.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Answer {
    pub(crate) chosen: Offer,
    pub(crate) way: Way,
    /// Where queue pairs with a connection of their own are connected, at the address of the data connection; 0 if
    /// there are none.
    pub(crate) port: u16,
    pub(crate) token: Token,
}

/// The receiving ring of one end, as the other writes to it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct RingRecord {
    pub(crate) address: u64,
    pub(crate) key: u32,
}

/// The queue pairs of one end, for the other to connect to (RoCE and InfiniBand).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FabricRecord {
    /// Where they are.
    pub port: PortRecord,
    /// Each of them.
    pub queue_pairs: Vec<QueuePairRecord>,
}

/// The port that all of them use.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PortRecord {
    /// Its address, in RoCE.
    pub gid: [u8; 16],
    /// Its address, in InfiniBand.
    pub lid: u16,
    /// 1 is 256 bytes, and each further one twice that, to 5 (`enum ibv_mtu`).
    pub mtu: u8,
    /// RDMA READs of each queue pair that are answered at a time.
    pub reads: u8,
}

/// One queue pair, 24 bits each.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct QueuePairRecord {
    /// What packets to it name it by.
    pub number: u32,
    /// What its first packet is counted as.
    pub first_packet: u32,
}

/// A record.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Record {
    Offer(Offer, Ways),
    Answer(Answer),
    Ring(RingRecord),
    Fabric(FabricRecord),
    /// The sender's queue pairs are connected.
    Ready,
    /// Why the sender of it cannot go on.
    Refusal(String),
}

/// Why a handshake failed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum RecordError {
    #[error(transparent)]
    Channel(#[from] ChannelError),
    #[error("the other end closed the connection instead of answering")]
    Closed,
    #[error("the other end does not speak this protocol: is its stack rdma as well?")]
    Name,
    #[error("the other end speaks version {0} of the protocol, this one version {VERSION}")]
    Version(u8),
    #[error("the other end sent a record of {0} bytes; {MAX_RECORD_BYTES} are the limit")]
    Length(usize),
    #[error("the other end sent a record of the kind {0} that makes no sense")]
    Content(u8),
    #[error("the other end refused: {0}")]
    Refused(String),
}

impl Record {
    fn encode(&self) -> Vec<u8> {
        let mut content = Vec::new();
        let kind = match self {
            Self::Offer(offer, ways) => {
                offer.encode(&mut content);
                content.push(ways.0);
                KIND_OFFER
            }
            Self::Answer(answer) => {
                answer.chosen.encode(&mut content);
                content.push(answer.way as u8);
                content.extend(answer.port.to_be_bytes());
                content.extend(answer.token);
                KIND_ANSWER
            }
            Self::Ring(ring) => {
                content.extend(ring.address.to_be_bytes());
                content.extend(ring.key.to_be_bytes());
                KIND_RING
            }
            Self::Fabric(fabric) => {
                fabric.encode(&mut content);
                KIND_FABRIC
            }
            Self::Ready => KIND_READY,
            Self::Refusal(reason) => {
                content.extend(reason.bytes().take(MAX_RECORD_BYTES));
                KIND_REFUSAL
            }
        };
        let length = u16::try_from(content.len()).expect("every record is short");
        let mut bytes = NAME.to_vec();
        bytes.extend([VERSION, kind]);
        bytes.extend(length.to_be_bytes());
        bytes.extend(content);
        bytes
    }

    fn decode(kind: u8, content: &[u8]) -> Result<Self, RecordError> {
        let mut fields = Fields(content);
        let record = match kind {
            KIND_OFFER => Offer::decode(&mut fields)
                .zip(fields.u8())
                .map(|(offer, ways)| Self::Offer(offer, Ways(ways))),
            KIND_ANSWER => Answer::decode(&mut fields).map(Self::Answer),
            KIND_RING => fields
                .u64()
                .zip(fields.u32())
                .map(|(address, key)| Self::Ring(RingRecord { address, key })),
            KIND_FABRIC => FabricRecord::decode(&mut fields).map(Self::Fabric),
            KIND_READY => Some(Self::Ready),
            KIND_REFUSAL => {
                // It goes to logs: no character of it may be special there.
                let reason = String::from_utf8_lossy(content).escape_debug().to_string();
                return Ok(Self::Refusal(reason));
            }
            _ => None,
        };
        record
            .filter(|_| fields.0.is_empty())
            .ok_or(RecordError::Content(kind))
    }
}

impl Offer {
    fn encode(&self, bytes: &mut Vec<u8>) {
        bytes.extend(self.ring_bytes.get().to_be_bytes());
        bytes.extend(self.queue_pairs.to_be_bytes());
        bytes.extend(self.pieces.to_be_bytes());
        bytes.push(self.mode as u8);
    }

    /// Nothing of an offer may be zero.
    fn decode(fields: &mut Fields<'_>) -> Option<Self> {
        let offer = Self {
            ring_bytes: NonZeroU64::new(fields.u64()?)?,
            queue_pairs: fields.u16()?,
            pieces: fields.u16()?,
            mode: match fields.array()? {
                [0] => Mode::Put,
                [1] => Mode::Get,
                _ => return None,
            },
        };
        (offer.queue_pairs > 0 && offer.pieces > 0).then_some(offer)
    }

    /// The smaller of each number, and this mode.
    pub(crate) fn within(self, other: Self) -> Self {
        Self {
            ring_bytes: self.ring_bytes.min(other.ring_bytes),
            queue_pairs: self.queue_pairs.min(other.queue_pairs),
            pieces: self.pieces.min(other.pieces),
            mode: self.mode,
        }
    }
}

impl Answer {
    fn decode(fields: &mut Fields<'_>) -> Option<Self> {
        Some(Self {
            chosen: Offer::decode(fields)?,
            way: Way::decode(fields.u8()?)?,
            port: fields.u16()?,
            token: fields.array()?,
        })
    }
}

impl Way {
    fn decode(number: u8) -> Option<Self> {
        let all = [
            Self::Soft,
            Self::Iwarp,
            Self::Roce,
            Self::InfiniBand,
            Self::Provided,
        ];
        all.into_iter().find(|&way| way as u8 == number)
    }
}

impl QueuePairRecord {
    /// Whether both are numbers of 24 bits.
    pub(crate) fn is_valid(&self) -> bool {
        self.number >> 24 == 0 && self.first_packet >> 24 == 0
    }
}

impl FabricRecord {
    fn encode(&self, bytes: &mut Vec<u8>) {
        bytes.extend(self.port.gid);
        bytes.extend(self.port.lid.to_be_bytes());
        bytes.extend([self.port.mtu, self.port.reads]);
        for queue_pair in &self.queue_pairs {
            bytes.extend(queue_pair.number.to_be_bytes());
            bytes.extend(queue_pair.first_packet.to_be_bytes());
        }
    }

    fn decode(fields: &mut Fields<'_>) -> Option<Self> {
        let port = PortRecord {
            gid: fields.array()?,
            lid: fields.u16()?,
            mtu: fields.u8().filter(|mtu| (1..=5).contains(mtu))?,
            reads: fields.u8()?,
        };
        let mut queue_pairs = Vec::new();
        while !fields.0.is_empty() {
            let [number, first_packet] = [fields.u32()?, fields.u32()?];
            let record = QueuePairRecord {
                number,
                first_packet,
            };
            queue_pairs.push(Some(record).filter(QueuePairRecord::is_valid)?);
        }
        Some(Self { port, queue_pairs })
    }
}

/// The numbers of a record, one after the other.
struct Fields<'a>(&'a [u8]);

impl Fields<'_> {
    fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (field, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(*field)
    }

    fn u8(&mut self) -> Option<u8> {
        self.array().map(u8::from_be_bytes)
    }

    fn u16(&mut self) -> Option<u16> {
        self.array().map(u16::from_be_bytes)
    }

    fn u32(&mut self) -> Option<u32> {
        self.array().map(u32::from_be_bytes)
    }

    fn u64(&mut self) -> Option<u64> {
        self.array().map(u64::from_be_bytes)
    }
}

/// Sends a record over a socket that does not block.
///
/// # Errors
///
/// When the connection fails, or has no room until the deadline.
pub(crate) fn write(
    socket: &OwnedFd,
    record: &Record,
    operation: &Operation<'_>,
) -> Result<(), ChannelError> {
    write_all(socket, &record.encode(), operation)
}

/// Receives a record, and not a byte more. A refusal is an error.
///
/// # Errors
///
/// When the other end does not speak the protocol, refuses, or is silent until the deadline.
pub(crate) fn read(socket: &OwnedFd, operation: &Operation<'_>) -> Result<Record, RecordError> {
    let mut head = [0; HEAD_BYTES];
    read_all(socket, &mut head, operation)?;
    let [.., version, kind, high, low] = head;
    if !head.starts_with(NAME) {
        return Err(RecordError::Name);
    }
    if version != VERSION {
        return Err(RecordError::Version(version));
    }
    let length = usize::from(u16::from_be_bytes([high, low]));
    if length > MAX_RECORD_BYTES {
        return Err(RecordError::Length(length));
    }
    let mut content = vec![0; length];
    read_all(socket, &mut content, operation)?;
    match Record::decode(kind, &content)? {
        Record::Refusal(reason) => Err(RecordError::Refused(reason)),
        record => Ok(record),
    }
}

/// Receives all of `bytes` from a socket that does not block.
///
/// # Errors
///
/// When the connection ends or fails before, or the operation does.
pub(crate) fn read_all(
    socket: &OwnedFd,
    mut bytes: &mut [u8],
    operation: &Operation<'_>,
) -> Result<(), RecordError> {
    while !bytes.is_empty() {
        operation.check()?;
        match recv(socket, &mut *bytes, RecvFlags::empty()) {
            Ok((_, 0)) => return Err(RecordError::Closed),
            Ok((_, count)) => bytes = &mut bytes[count..],
            Err(Errno::INTR) => {}
            Err(Errno::AGAIN) => operation.wait_readable(socket.as_fd())?,
            Err(errno) => return Err(ChannelError::from_socket(errno.into()).into()),
        }
    }
    Ok(())
}

/// Sends all of `bytes` over a socket that does not block.
///
/// # Errors
///
/// When the connection or the operation fails.
pub(crate) fn write_all(
    socket: &OwnedFd,
    mut bytes: &[u8],
    operation: &Operation<'_>,
) -> Result<(), ChannelError> {
    while !bytes.is_empty() {
        operation.check()?;
        match send(socket, bytes, SendFlags::NOSIGNAL) {
            Ok(count) => bytes = &bytes[count..],
            Err(Errno::INTR) => {}
            Err(Errno::AGAIN) => operation.wait_writable(socket.as_fd())?,
            Err(errno) => return Err(ChannelError::from_socket(errno.into())),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn round(record: &Record) -> Record {
        let bytes = record.encode();
        Record::decode(bytes[9], &bytes[HEAD_BYTES..]).expect("a record")
    }

    #[test]
    fn records_survive_the_wire() {
        let offer = Offer {
            ring_bytes: NonZeroU64::new(1 << 33).unwrap(),
            queue_pairs: 4,
            pieces: 64,
            mode: Mode::Get,
        };
        for record in [
            Record::Offer(offer, Ways::default().with(Way::Soft).with(Way::Roce)),
            Record::Answer(Answer {
                chosen: offer,
                way: Way::Iwarp,
                port: 50_000,
                token: [7; 16],
            }),
            Record::Ring(RingRecord {
                address: u64::MAX,
                key: 1,
            }),
            Record::Fabric(FabricRecord {
                port: PortRecord {
                    gid: [9; 16],
                    lid: 5,
                    mtu: 5,
                    reads: 16,
                },
                queue_pairs: vec![
                    QueuePairRecord {
                        number: 17,
                        first_packet: 0xff_ffff,
                    };
                    2
                ],
            }),
            Record::Ready,
            Record::Refusal("no memory".to_owned()),
        ] {
            assert_eq!(round(&record), record);
        }
        let forged = Record::Refusal("a\r\nb".to_owned());
        assert_eq!(round(&forged), Record::Refusal("a\\r\\nb".to_owned()));
    }

    #[test]
    fn nothing_of_an_offer_is_zero() {
        let offer = Offer {
            ring_bytes: NonZeroU64::MIN,
            queue_pairs: 1,
            pieces: 1,
            mode: Mode::Put,
        };
        let mut bytes = Record::Offer(offer, Ways::default()).encode();
        bytes[HEAD_BYTES..][..8].fill(0);
        let decoded = Record::decode(KIND_OFFER, &bytes[HEAD_BYTES..]);
        assert!(matches!(decoded, Err(RecordError::Content(KIND_OFFER))));
    }

    #[test]
    fn the_best_common_way_is_chosen() {
        let ways = |ways: &[Way]| ways.iter().fold(Ways::default(), |all, &way| all.with(way));
        let soft = ways(&[Way::Soft]);
        let auto = ways(&[Way::Soft, Way::Roce]);
        let roce = ways(&[Way::Roce]);
        let iwarp = ways(&[Way::Iwarp]);
        assert_eq!(auto.choose(auto), Some(Way::Roce));
        assert_eq!(auto.choose(soft), Some(Way::Soft));
        assert_eq!(soft.choose(iwarp), Some(Way::Iwarp));
        assert_eq!(iwarp.choose(auto), Some(Way::Iwarp));
        assert_eq!(roce.choose(soft), None);
        assert_eq!(roce.choose(iwarp), None);
        let provided = ways(&[Way::Provided]);
        assert_eq!(provided.choose(provided), Some(Way::Provided));
        assert_eq!(provided.choose(auto), None);
        assert_eq!(auto.to_string(), "iWARP in user space and RoCE");
    }

    proptest! {
        #[test]
        fn any_bytes_are_a_record_or_an_error(
            kind in 0..8_u8,
            content in proptest::collection::vec(any::<u8>(), 0..60),
        ) {
            let _ = Record::decode(kind, &content);
        }
    }
}
