//! The driver `rdma`: data channels that move bytes from memory to memory.
//!
//! Both ends register a ring of slabs when a channel opens, and exchange the addresses. Then the
//! sender fills its ring straight from the file and writes it to the receiver's ring, in messages that
//! are no larger and no faster than the path allows. The receiver writes arrived bytes to its file and
//! returns credit.
//!
//! ```text
//!   Rdma ── settings               the driver and its options
//!    │
//!   channel ── open ── handshake   blocking calls; opening a channel on a data connection
//!    │           │
//!    │        outgoing             the ring to send from, or pinned sections of files
//!    │        files                requests to a disk, from and to the rings
//!    │
//!   engine ── pacing               the protocol, without I/O and clock; the rate of messages
//!    │
//!   provider                       the interface of endpoints and queue pairs
//!    │
//!    ├── verbs                     RDMA adapters, through libibverbs
//!    ├── iwarp                     iWARP in user space, by the crate `gridhaul-iwarp`
//!    └── sim                       a simulated fabric, for tests and benchmarks
//!    │
//!   memory                         rings under the bound of the process
//! ```
//!
//! # Options
//!
//! | option | meaning |
//! | --- | --- |
//! | `slab=4M` | the size of a slab in bytes |
//! | `slabs=4` | slabs in a ring; if neither is given, the ring has two bandwidth-delay products of the slower port, and 16M at least, and changes with what it is used for |
//! | `message=256K` | the largest message, in bytes: below the burst that a policer on the path allows. Longer unless given where a device could not keep a ring of shorter ones in flight |
//! | `rate=5g` | sends at most so fast: bits per second with `k`, `m` or `g`, bytes per second without; `auto` finds the rate of the path, where lost queue pairs can be replaced |
//! | `burst=1M` | bytes that may leave at once where a rate is given; one and a half messages unless given, and at high rates a message and 200 µs of the rate |
//! | `qps=4` | queue pairs of a channel; unless given, by the rate of the adapter's port, the length of the path and the requests that the device takes |
//! | `depth=64` | messages under way on each queue pair at most; `auto`, all that ring and device take, unless given |
//! | `mode=get` | the end that moves bytes: `put` is the sender, by WRITEs; `get` the receiver, by READs of announced pieces. The connecting end decides |
//! | `inline=4K` | payloads of up to so many bytes travel in the message that announces them, at most 16K; 1K unless given |
//! | `immediate=off` | announces every piece by a message of its own; `on`, by the WRITE itself where RoCE or InfiniBand carry it, unless given |
//! | `stall=10s` | a queue pair of a device on which no request completes for so long, or fewer bytes arrive than the device retransmits, is given up; 3 s unless given |
//! | `provider=auto` | `verbs` is an RDMA adapter, `soft` iWARP over TCP by this program (RFC 5040), which works on every machine; `auto` takes `verbs` where both ends have it and the path carries its packets |
//! | `device=mlx5_0` | the adapter of this end, where its address is not the data connection's; with `+` between them, up to four adapters, by device or address, which a channel uses at once |
//! | `gid=3` | the place of the GID in the table of its port, where it is not the data connection's address |
//! | `tc=106` | the traffic class of RoCE packets |
//! | `sl=3` | the service level of InfiniBand or RoCE packets |
//! | `pkey=0x8001` | the partition of InfiniBand, where it is not that of the data connection's interface, or the first |
//! | `mtu=1024` | the longest packet of an adapter; unless given, the longest that gets through |
//! | `register=dynamic` | sends files from where they are, by pinning their pages, instead of reading them into the ring; slower where it was measured |
//! | `direct=auto` | reads and writes files past the page cache (`O_DIRECT`) where that pays, as measured, with many requests in flight, over io_uring or helper threads; `1` always, `threads` with helper threads, `0` never |
//! | `crc=on` | adds a checksum to every segment of `soft` |
//!
//! An administrator sets `device`, `gid`, `tc`, `sl`, `pkey` and `direct`; clients may set the others, sizes up to a
//! bound.
//!
//! The other options are those of the driver `tcp`. Options choose devices of this end only. With
//! one queue pair, `soft` uses the data connection itself; further queue pairs are connections to
//! another port of the accepting end, within its range of ports.
//!
//! [`Driver::limit_memory`] bounds the memory of all rings together; the default is a quarter of the
//! machine's. A channel gets smaller rings than it wants when less is free. A ring that is too short for its
//! path becomes longer while data flows, and one that is not used shorter.
//!
//! Both ends must run this driver. The smaller ring and the smaller number of queue pairs of both
//! offers is used. If the connecting end knows which way data flows ([`gridhaul_stack::Flow`]), the
//! ring of the other direction is short.
//!
//! # Example
//!
//! ```
//! use std::net::{IpAddr, Ipv4Addr};
//!
//! use gridhaul_rdma::Rdma;
//! use gridhaul_stack::{Body, Built, Cancel, Driver, Operation, Received, SocketOptions};
//!
//! // iWARP in user space, which works on every machine.
//! let options = [("provider".to_owned(), "soft".to_owned())];
//! let Built::Transport(transport) = Rdma.build(&options)? else {
//!     return Err("rdma is a transport".into());
//! };
//! let cancel = Cancel::new();
//! let operation = Operation { deadline: None, cancel: &cancel };
//! let sockets = SocketOptions::default();
//! let mut listener = transport.listen(IpAddr::V4(Ipv4Addr::LOCALHOST), &sockets)?;
//! let address = listener.address();
//! std::thread::scope(|scope| {
//!     scope.spawn(|| {
//!         let mut sender = transport.connect(address, &sockets, &operation)?;
//!         sender.establish(&operation)?;
//!         sender.send(b"", Body::Memory(b"hello"), &operation)?;
//!         sender.finish(&operation)?;
//!         Ok::<_, Box<dyn std::error::Error + Send + Sync>>(())
//!     });
//!     let mut receiver = listener.accept(&operation)?;
//!     receiver.establish(&operation)?;
//!     let mut bytes = [0; 64];
//!     let mut count = 0;
//!     while let Received::Bytes(more) = receiver.receive(&mut bytes[count..], &operation)? {
//!         count += more.get();
//!     }
//!     assert_eq!(&bytes[..count], b"hello");
//!     Ok::<_, Box<dyn std::error::Error>>(())
//! })?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod channel;
mod clock;
mod engine;
mod files;
#[cfg(any(test, fuzzing))]
pub mod fuzzing;
mod gauges;
mod handshake;
mod iwarp;
mod memory;
mod numa;
mod open;
mod outgoing;
mod pacing;
mod probe;
#[doc(hidden)]
pub mod provider;
mod settings;
#[cfg(any(test, feature = "sim"))]
pub mod sim;
mod verbs;

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use gridhaul_direct::DirectUse;
use gridhaul_stack::options::OptionDoc;
use gridhaul_stack::{
    AcceptError, Built, Channel, ConnectError, Driver, Finding, Gauge, ListenError, Listener,
    Operation, Party, Side, SocketOptions, StackError, Transport,
};
use gridhaul_tcp::TcpListener;

use crate::channel::RdmaChannel;
/// The version of the protocol between the two ends of a channel; both need the same.
pub use crate::handshake::VERSION as PROTOCOL_VERSION;
pub use crate::memory::MemoryLoad;
use crate::memory::Pool;
use crate::provider::Provider;
use crate::settings::Settings;

/// The driver `rdma`; its options are in the table above.
#[derive(Debug, Clone, Copy, Default)]
pub struct Rdma;

impl Driver for Rdma {
    fn name(&self) -> &'static str {
        "rdma"
    }

    fn options(&self) -> &'static [OptionDoc] {
        &settings::OPTIONS
    }

    fn build(&self, options: &[(String, String)]) -> Result<Built, StackError> {
        let settings = Settings::parse(&self.read_options(options)?)?;
        Ok(Built::Transport(Arc::new(RdmaTransport {
            settings: Arc::new(settings),
        })))
    }

    /// Bounds the memory of all rings of the process. Rings in use stay as they are.
    fn limit_memory(&self, bytes: u64) {
        Pool::of_process().set_limit(bytes);
    }

    fn gauges(&self) -> Vec<Gauge> {
        gauges::gauges(&memory_load())
    }

    fn has_devices(&self) -> bool {
        probe::has_devices()
    }

    fn check_devices(&self) -> Vec<Finding> {
        probe::probe()
    }

    fn examine_devices(&self) -> Vec<Finding> {
        verbs::examine()
    }
}

/// The driver `rdma` over a given provider only.
#[doc(hidden)]
#[derive(Debug)]
pub struct RdmaBy {
    provider: Arc<dyn Provider>,
}

impl RdmaBy {
    /// The driver with this provider.
    pub fn new(provider: Arc<dyn Provider>) -> Self {
        Self { provider }
    }
}

impl Driver for RdmaBy {
    fn name(&self) -> &'static str {
        Rdma.name()
    }

    fn options(&self) -> &'static [OptionDoc] {
        Rdma.options()
    }

    fn build(&self, options: &[(String, String)]) -> Result<Built, StackError> {
        let mut settings = Settings::parse(&self.read_options(options)?)?;
        settings.provided = Some(Arc::clone(&self.provider));
        Ok(Built::Transport(Arc::new(RdmaTransport {
            settings: Arc::new(settings),
        })))
    }
}

/// The memory that the rings of the process use, and its bound.
pub fn memory_load() -> MemoryLoad {
    Pool::of_process().load()
}

#[derive(Debug)]
struct RdmaTransport {
    settings: Arc<Settings>,
}

impl Transport for RdmaTransport {
    fn listen(
        &self,
        local: IpAddr,
        options: &SocketOptions,
    ) -> Result<Box<dyn Listener>, ListenError> {
        Ok(Box::new(RdmaListener {
            listener: TcpListener::open(&self.settings.tcp, local, options)?,
            settings: Arc::clone(&self.settings),
            options: *options,
        }))
    }

    fn connect(
        &self,
        peer: SocketAddr,
        options: &SocketOptions,
        operation: &Operation<'_>,
    ) -> Result<Box<dyn Channel>, ConnectError> {
        let connection = gridhaul_tcp::connect(&self.settings.tcp, peer, options, operation)?;
        let settings = Arc::clone(&self.settings);
        let channel = RdmaChannel::new(connection, Side::Connector, settings, *options);
        Ok(Box::new(channel))
    }

    fn wants_direct(&self) -> bool {
        self.settings.aligns_files()
    }

    fn bypasses_cache(&self) -> bool {
        matches!(self.settings.direct, Some(DirectUse::Always(_)))
    }

    /// All rings of the process are in one pool.
    fn serving(&self, party: Party) -> Option<Arc<dyn Transport>> {
        let mut settings = Settings::clone(&self.settings);
        settings.party = Some(party);
        Some(Arc::new(Self {
            settings: Arc::new(settings),
        }))
    }
}

#[derive(Debug)]
struct RdmaListener {
    listener: TcpListener,
    settings: Arc<Settings>,
    options: SocketOptions,
}

impl Listener for RdmaListener {
    fn address(&self) -> SocketAddr {
        self.listener.address()
    }

    fn accept(&mut self, operation: &Operation<'_>) -> Result<Box<dyn Channel>, AcceptError> {
        let connection = self.listener.accept_channel(operation)?;
        let settings = Arc::clone(&self.settings);
        let channel = RdmaChannel::new(connection, Side::Acceptor, settings, self.options);
        Ok(Box::new(channel))
    }
}
