//! What may limit a transfer, and what helps.

use std::time::Duration;

/// The limits of this machine. `None` is unknown.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Limits {
    /// The largest receive buffer of a socket.
    pub(super) receive_bytes: Option<u64>,
    /// The speed of the network, in bytes per second.
    pub(super) link: Option<u64>,
}

/// The facts of a finished transfer.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(super) struct Facts {
    /// Whether this server sent the data.
    pub(super) sends: bool,
    pub(super) took: Duration,
    pub(super) bytes: u64,
    pub(super) channels: u64,
    /// Of the slowest channel.
    pub(super) rtt: Option<Duration>,
    /// The shortest one, of the channel whose shortest one was longest.
    pub(super) least_rtt: Option<Duration>,
    /// Packets that were sent again, of all channels.
    pub(super) retransmits: Option<u64>,
    /// The times of `TCP_INFO`, sums of all channels.
    pub(super) times: Option<Times>,
    /// The time in which it waited for the bandwidth of a `[[limit]]`.
    pub(super) bandwidth_wait: Duration,
    /// The rate of its pacing in bytes per second: of a channel over TCP, of a path over RDMA.
    pub(super) rate: Option<u64>,
    pub(super) rdma: Option<Rdma>,
}

/// Where the time of a sender went.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Times {
    /// Data was on its way.
    pub(super) busy: Duration,
    /// Of that, the receiver's window was full.
    pub(super) receiver: Duration,
    /// Of that, the own send buffer was too small.
    pub(super) buffer: Duration,
}

/// What the driver `rdma` has counted.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Rdma {
    /// Queue pairs on which nothing completed for too long.
    pub(super) stalls: u64,
    /// Packets that the device sent again, of all its users meanwhile.
    pub(super) retries: u64,
    pub(super) ring_bytes: u64,
    /// The length of a ring that fits rate and distance, if that is longer.
    pub(super) wanted_ring_bytes: Option<u64>,
}

/// What limited a transfer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) enum Bottleneck {
    /// It was too short for its speed to mean anything.
    Short,
    /// The network's own speed.
    Link,
    /// The bandwidth of a `[[limit]]`.
    GroupLimit,
    /// The rate of its pacing.
    Rate,
    /// This server had nothing to send: its storage, or its processors.
    OwnStorage,
    /// The receiver did not take the data: its storage, its processors or its buffers.
    Receiver,
    /// The send buffers of this machine.
    SendBuffer,
    /// The receive buffers of this machine.
    ReceiveBuffer,
    /// Packets were lost and waited in queues: congestion.
    Loss,
    /// Packets were lost without having waited: a policer, or a bad cable.
    Policer,
    /// The way of the data, or its congestion control, with the sender ready and the receiver too.
    Path,
    /// The sender at the other end.
    Sender,
    /// Messages over RDMA were dropped until queue pairs were given up.
    Stalls,
    /// A device sent packets again.
    Retries,
    /// The rings are too short for rate and distance.
    Ring,
    /// There are no facts.
    Unknown,
}

impl Bottleneck {
    /// Whether an administrator should do something about it.
    pub(super) fn is_problem(self) -> bool {
        match self {
            Self::SendBuffer
            | Self::ReceiveBuffer
            | Self::Loss
            | Self::Policer
            | Self::Stalls
            | Self::Retries
            | Self::Ring => true,
            Self::Short
            | Self::Link
            | Self::GroupLimit
            | Self::Rate
            | Self::OwnStorage
            | Self::Receiver
            | Self::Path
            | Self::Sender
            | Self::Unknown => false,
        }
    }

    /// What it is, and what to do.
    pub(super) fn remedy(self) -> &'static str {
        match self {
            Self::Short => {
                "too short to tell; many small files want pipelining and parallel transfers"
            }
            Self::Link => "the network is full: nothing to gain here",
            Self::GroupLimit => {
                "the bandwidth of a [[limit]] was used up: raise it, or leave it if that is what it is for"
            }
            Self::Rate => {
                "the data was sent at the rate of its pacing: raise the option rate of the stack, or with rate=auto look for what \
                 drops packets above it"
            }
            Self::OwnStorage => {
                "this server had nothing to send: look at its storage (gridhaul-server doctor --disk DIR) and its processors"
            }
            Self::Receiver => {
                "the receiver did not take the data: its storage, its processors, or its receive buffers for this distance"
            }
            Self::SendBuffer => {
                "the send buffers here are too small for this distance: raise the last number of net.ipv4.tcp_wmem, or use more \
                 parallel channels"
            }
            Self::ReceiveBuffer => {
                "the receive buffers here are too small for this distance: raise the last number of net.ipv4.tcp_rmem, or use \
                 more parallel channels"
            }
            Self::Loss => {
                "packets waited in a queue and were lost: the path is congested; use tcp:cc=bbr, or transfer at another time"
            }
            Self::Policer => {
                "packets were lost without having waited in a queue: a policer or a bad cable; send below its rate (tcp:rate=RATE) \
                 or with tcp:cc=bbr, ask the operators of the network, and look at ethtool -S"
            }
            Self::Path => {
                "sender and receiver were ready: the network or its congestion control is the limit; try more parallel channels"
            }
            Self::Sender => {
                "the sender at the other end, or the path from there, is the limit: look at the facts of that side"
            }
            Self::Stalls => {
                "the path dropped messages until queue pairs were given up: a policer, or no flow control; use the options \
                 rate=auto and a smaller message of rdma"
            }
            Self::Retries => {
                "the device sent packets again: look for missing flow control (PFC) or a policer; rate=auto finds the rate that \
                 the path carries"
            }
            Self::Ring => {
                "the rings are too short for this rate and distance: raise rdma-memory, or the options slab and slabs of rdma"
            }
            Self::Unknown => {
                "nothing that limited its channels is known: look at storage and processors of both ends"
            }
        }
    }
}
