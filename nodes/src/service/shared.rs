//! What all sessions of a node share.

use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use gridhaul_protocol::stack::StackSpec;
use gridhaul_shares::Pool;
use gridhaul_stack::{Driver, RestoreError, SessionValue};
use gridhaul_transfer::DataNode;
use tokio::sync::watch;

use super::threads::Threads;
use crate::generated as message;
use crate::limits::LARGE_REQUESTS;
use crate::load;
use crate::sync::lock;
use crate::told::{CardLoad, MachineLoad, Traffic};

/// Makes the driver of a session from its value.
pub type RestoreDriver =
    dyn Fn(&SessionValue) -> Result<Arc<dyn Driver>, RestoreError> + Send + Sync;

/// Applies settings of the node to a stack.
pub type OwnStack = dyn Fn(StackSpec) -> StackSpec + Send + Sync;

/// From the address of a client and that of a host to the reason why the node must not connect there.
pub type ReachRule = dyn Fn(IpAddr, IpAddr) -> Result<(), String> + Send + Sync;

/// What a node serves.
pub struct ServiceConfig {
    /// Storage and data channels.
    pub node: Arc<dyn DataNode>,
    /// Makes the drivers of sessions.
    pub restore: Box<RestoreDriver>,
    /// The node's own root, for sessions that have no other one.
    pub root: PathBuf,
    /// The host name, for messages.
    pub host: String,
    /// The version of the program.
    pub program: String,
    /// The driver stack of data channels.
    pub stack: String,
    /// The drivers that clients may name.
    pub drivers: Vec<String>,
    /// Applies the node's own ports, addresses and devices to a stack of the control server.
    pub own_stack: Box<OwnStack>,
    /// Whether a session of this client may have the node connect to a host; the error is the reason.
    pub reach: Box<ReachRule>,
    /// Where data channels listen, each at one of these; without any, at the address at which the control server has reached the
    /// node.
    pub data_addresses: Vec<IpAddr>,
    /// What clients are told instead of the address of a data port, if the node is behind address translation.
    pub advertised: Option<IpAddr>,
    /// The number of threads for work on files. The runtime must allow [`blocking_threads`] of it.
    pub file_threads: usize,
    /// A session ends whose control server takes no reply for this time.
    pub reply_time: Duration,
}

/// The number of blocking threads that the runtime of a node must allow, if it has so many for work on files.
pub fn blocking_threads(file_threads: usize) -> usize {
    Threads::needed(file_threads)
}

/// The machine of a node, measured now and then.
#[derive(Debug, Clone, Default)]
pub struct MachineSample {
    /// Memory of RDMA rings in use, in bytes.
    pub ring_bytes: u64,
    /// The limit of `ring_bytes`.
    pub ring_bytes_limit: u64,
    /// The network cards.
    pub cards: Vec<Card>,
    /// Bytes per second that the transfers of the node moved in the same time: the increase of [`super::Service::transferred`].
    pub transferred: Traffic,
}

/// A network card.
#[derive(Debug, Clone)]
pub struct Card {
    /// Its traffic.
    pub load: CardLoad,
    /// The addresses of its interface.
    pub addresses: Vec<IpAddr>,
}

impl MachineSample {
    /// How busy the card with an address is, in quarters of the speed of its link: traffic changes all the time, and small
    /// differences should not decide. An unknown card is idle.
    fn busy_quarters(&self, address: IpAddr) -> u64 {
        let card = self.cards.iter().find(|card| card.has_any(&[address]));
        let busy = card.and_then(|card| {
            let traffic = card.load.traffic;
            let most = traffic.received.max(traffic.sent);
            most.saturating_mul(4).checked_div(card.load.link?)
        });
        busy.unwrap_or(0)
    }
}

impl Card {
    fn has_any(&self, addresses: &[IpAddr]) -> bool {
        addresses
            .iter()
            .any(|address| self.addresses.contains(address))
    }
}

impl fmt::Debug for ServiceConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ServiceConfig")
            .field("host", &self.host)
            .field("node", &self.node)
            .finish_non_exhaustive()
    }
}

/// What all sessions share.
pub(super) struct Shared {
    pub(super) config: ServiceConfig,
    pub(super) threads: Threads,
    /// Places for large requests.
    pub(super) large: Pool,
    instance: [u8; 16],
    sessions: AtomicUsize,
    transfers: AtomicUsize,
    received: AtomicU64,
    sent: AtomicU64,
    machine: Mutex<MachineSample>,
    /// The number of data ports that have been given an address.
    turn: AtomicUsize,
    draining: watch::Receiver<bool>,
}

impl Shared {
    pub(super) fn new(config: ServiceConfig, draining: watch::Receiver<bool>) -> Arc<Self> {
        Arc::new(Self {
            threads: Threads::new(config.file_threads),
            large: Pool::new(LARGE_REQUESTS),
            config,
            instance: instance(),
            sessions: AtomicUsize::new(0),
            transfers: AtomicUsize::new(0),
            received: AtomicU64::new(0),
            sent: AtomicU64::new(0),
            machine: Mutex::default(),
            turn: AtomicUsize::new(0),
            draining,
        })
    }

    /// Distinguishes nodes, also two names of one node.
    pub(super) fn instance(&self) -> &[u8] {
        &self.instance
    }

    pub(super) fn sessions(&self) -> usize {
        self.sessions.load(Ordering::Relaxed)
    }

    pub(super) fn transfers(&self) -> usize {
        self.transfers.load(Ordering::Acquire)
    }

    /// Counts a transfer until the value is dropped.
    pub(super) fn count_transfer(self: &Arc<Self>) -> CountedTransfer {
        self.transfers.fetch_add(1, Ordering::AcqRel);
        CountedTransfer(Arc::clone(self))
    }

    pub(super) fn draining(&self) -> watch::Receiver<bool> {
        self.draining.clone()
    }

    /// The load for a control server that has reached the node at the address `here`.
    pub(super) fn load(&self, here: IpAddr) -> message::Load {
        let mut sent = message::Load {
            draining: *self.draining.borrow(),
            ..load::message(&self.config.node.load())
        };
        self.machine(&self.data_addresses(here)).fill(&mut sent);
        sent
    }

    /// Where data channels of a control server listen that has reached the node at the address `here`: one of
    /// [`Self::data_addresses`]. They take turns, except one whose card has more
    /// traffic than another, in quarters of the speed of its link.
    pub(super) fn data_address(&self, here: IpAddr) -> IpAddr {
        let mut addresses = self.data_addresses(here);
        let turn = self.turn.fetch_add(1, Ordering::Relaxed) % addresses.len().max(1);
        addresses.rotate_left(turn);
        let sample = lock(&self.machine);
        let best = addresses
            .iter()
            .min_by_key(|address| sample.busy_quarters(**address));
        best.copied().unwrap_or(here)
    }

    /// All addresses where data channels of such a control server listen.
    pub(super) fn data_addresses(&self, here: IpAddr) -> Vec<IpAddr> {
        match self.config.data_addresses.as_slice() {
            [] => vec![here.to_canonical()],
            configured => configured.to_vec(),
        }
    }

    /// The same as clients are told.
    pub(super) fn announced_addresses(&self, here: IpAddr) -> Vec<IpAddr> {
        match self.config.advertised {
            Some(advertised) => vec![advertised],
            None => self.data_addresses(here),
        }
    }

    /// The address of a data port, as clients are told it.
    pub(super) fn announced(&self, listening: SocketAddr) -> SocketAddr {
        let host = self.config.advertised.unwrap_or_else(|| listening.ip());
        SocketAddr::new(host, listening.port())
    }

    /// Whether connections to an address arrive at a data port of this node.
    pub(super) fn listens_at(&self, address: SocketAddr, here: IpAddr) -> bool {
        let node = &self.config.node;
        let is_translated = self.config.advertised == Some(address.ip().to_canonical());
        let own = self.data_addresses(here).into_iter();
        let mut own = own.map(|own| SocketAddr::new(own, address.port()));
        node.listens_at(address) || is_translated && own.any(|own| node.listens_at(own))
    }

    fn machine(&self, data_addresses: &[IpAddr]) -> MachineLoad {
        let sample = lock(&self.machine);
        let cards = sample.cards.iter();
        MachineLoad {
            sessions: self.sessions() as u64,
            // Only a control server knows which ones are its own.
            other_sessions: 0,
            transfers: self.transfers() as u64,
            ring_bytes: sample.ring_bytes,
            ring_bytes_limit: sample.ring_bytes_limit,
            cards: cards
                .filter(|card| card.has_any(data_addresses))
                .map(|card| card.load.clone())
                .collect(),
            transferred: sample.transferred,
        }
    }

    pub(super) fn set_machine(&self, sample: MachineSample) {
        *lock(&self.machine) = sample;
    }

    /// Counts bytes that a transfer has moved since the last call.
    pub(super) fn add_transferred(&self, receives: bool, bytes: u64) {
        let counter = if receives { &self.received } else { &self.sent };
        counter.fetch_add(bytes, Ordering::Relaxed);
    }

    /// The bytes of all transfers.
    pub(super) fn transferred(&self) -> Traffic {
        Traffic {
            received: self.received.load(Ordering::Relaxed),
            sent: self.sent.load(Ordering::Relaxed),
        }
    }

    /// Counts a session until the value is dropped.
    pub(super) fn count(self: &Arc<Self>) -> Counted {
        self.sessions.fetch_add(1, Ordering::Relaxed);
        Counted(Arc::clone(self))
    }
}

/// A session that counts.
pub(super) struct Counted(Arc<Shared>);

/// A transfer that counts.
pub(super) struct CountedTransfer(Arc<Shared>);

impl Drop for CountedTransfer {
    fn drop(&mut self) {
        self.0.transfers.fetch_sub(1, Ordering::AcqRel);
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.sessions.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Distinguishes nodes, also two names of one node.
fn instance() -> [u8; 16] {
    let mut bytes = [0; 16];
    // The kernel's generator does not fail after the start of the machine; zeros would only hide a node that is named twice.
    let _ = rustix::rand::getrandom(&mut bytes, rustix::rand::GetRandomFlags::empty());
    bytes
}
