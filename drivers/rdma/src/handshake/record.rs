//! What records say.

use std::num::NonZeroU64;

use super::way::{Way, Ways};
use crate::provider::Access;

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

/// Proves on a further connection that it belongs to a data connection.
pub(crate) type Token = [u8; 16];

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
    /// WRITEs may announce what they write, where devices can do that.
    pub(crate) immediate: bool,
    /// Pieces of the stream that may travel in messages, in bytes at most.
    pub(crate) inline_bytes: u16,
}

impl Offer {
    /// The smaller of each number, what both can do, and this mode.
    pub(crate) fn within(self, other: Self) -> Self {
        Self {
            ring_bytes: self.ring_bytes.min(other.ring_bytes),
            queue_pairs: self.queue_pairs.min(other.queue_pairs),
            pieces: self.pieces.min(other.pieces),
            mode: self.mode,
            immediate: self.immediate && other.immediate,
            inline_bytes: self.inline_bytes.min(other.inline_bytes),
        }
    }
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

impl QueuePairRecord {
    /// Whether both are numbers of 24 bits.
    pub(crate) fn is_valid(&self) -> bool {
        self.number >> 24 == 0 && self.first_packet >> 24 == 0
    }
}
