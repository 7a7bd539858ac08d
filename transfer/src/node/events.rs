//! What a node reports of a transfer.

use std::fmt;
use std::net::{IpAddr, SocketAddr};

use gridhaul_stack::{Details, Movement};
use gridhaul_storage::ChecksumAlgorithm;

use crate::error::TransferError;

/// Receives the events of one transfer.
pub type EventSink = Box<dyn Fn(Event) + Send + Sync>;

/// A change of a transfer's state.
#[derive(Debug)]
pub enum Event {
    /// All workers are busy; the transfer waits in a fair queue.
    Queued {
        /// Transfers ahead in the queue.
        ahead: usize,
    },
    /// Files and channels are ready: the time for `150`, or `125` when channels are reused.
    Started {
        /// Data channels of an earlier transfer are used.
        reused: bool,
    },
    /// The transfer has ended, in success or failure.
    Finished(Box<Outcome>),
}

/// How a transfer ended, with the values for the transfer log.
#[derive(Debug)]
pub struct Outcome {
    /// Success means that every announced byte arrived, every EOD was counted, and close succeeded.
    pub result: Result<(), TransferError>,
    /// File or listing bytes moved.
    pub bytes: u64,
    /// Data channels used, over all stripes.
    pub channels: usize,
    /// Stripes used.
    pub stripes: usize,
    /// The peers of the data channels, each address once.
    pub peers: Vec<IpAddr>,
    /// The kernel buffer of a channel, in bytes.
    pub buffer_bytes: usize,
    /// The largest block, in bytes.
    pub block_bytes: usize,
    /// How the driver moved the bytes, where it had a choice.
    pub movement: Option<Movement>,
    /// What the drivers reported of all channels, added up.
    pub details: Details,
    /// The checksums of a received file that were computed while it arrived.
    pub checksums: Vec<(ChecksumAlgorithm, String)>,
    /// Data connections that were closed: from hosts that may not open one, or with a failed handshake.
    pub refused: usize,
    /// The last connection with a failed handshake.
    pub last_refusal: Option<Refusal>,
    /// The data nodes that took part, the one with the first stripe first. Empty for a node in the same process.
    pub nodes: Vec<NodePart>,
}

/// What one of several data nodes did for a transfer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NodePart {
    /// Its name for administrators.
    pub name: String,
    /// The first peer of its data channels, if there was one.
    pub peer: Option<IpAddr>,
}

/// A data connection that failed its handshake.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refusal {
    /// The address of the peer.
    pub peer: SocketAddr,
    /// The error; with data channel authentication it has the identity of the peer and the expected one.
    pub reason: String,
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.peer, self.reason)
    }
}

/// What is known of a transfer while it runs, for administrators.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Survey {
    /// The bytes that the transfer is to move, once they are known.
    pub total_bytes: Option<u64>,
    /// Data channels so far.
    pub channels: usize,
    /// The peers of the data channels, each address once.
    pub peers: Vec<IpAddr>,
    /// What the drivers report of all channels until now.
    pub details: Details,
}

/// Bytes moved so far.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Progress {
    /// Bytes of each stripe, in the order of the stripes; at least one entry.
    pub stripes: Vec<u64>,
}
