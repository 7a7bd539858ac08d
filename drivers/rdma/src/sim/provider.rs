//! The fabric as a provider of the driver, for channels with blocking calls.
//!
//! It runs in real time, so a seed alone does not determine a run. It tests everything above the
//! engine: the handshake, blocking calls, and transforms. Each channel has a path of its own.

use std::collections::HashMap;
use std::io;
use std::net::IpAddr;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use gridhaul_stack::Detail;

use super::endpoint::{SharedFabric, SimEndpoint};
use super::settings::FabricSettings;
use crate::RdmaBy;
use crate::memory::Memory;
use crate::provider::{
    Access, AdapterPort, Completion, Endpoint, Fabric, FabricRecord, Limits, PortRecord, PostError,
    Provider, QueuePairRecord, Region, Request, Wanted,
};

/// Sent to the other end, which ignores it: 4096 bytes.
const MTU: u8 = 5;

/// Queue pair numbers have 24 bits.
const MAX_ENTRIES: u32 = 0xff_ffff;

/// The driver `rdma` over simulated paths of this kind, within this process.
pub fn driver(settings: FabricSettings) -> RdmaBy {
    RdmaBy::new(Arc::new(Simulation {
        settings,
        directory: Arc::default(),
    }))
}

/// The provider.
#[derive(Debug)]
struct Simulation {
    settings: FabricSettings,
    directory: Arc<Directory>,
}

impl Provider for Simulation {
    fn name(&self) -> &'static str {
        "sim"
    }

    fn needs_adapter(&self) -> bool {
        false
    }

    /// An endpoint comes with a fabric and its other end. When two are connected, the later one
    /// moves to the fabric of the first.
    fn endpoint(&self, _port: Option<&AdapterPort>, wanted: Wanted) -> io::Result<Box<dyn Fabric>> {
        let entry = Entry::take(&self.directory, wanted.local)?;
        let mut settings = self.settings.clone();
        settings.seed = settings.seed.wrapping_add(u64::from(entry.number));
        let fabric = SharedFabric::in_real_time(settings);
        let [own, free] = fabric.connect(usize::from(wanted.queue_pairs))?;
        self.directory.lock().free.insert(entry.number, free);
        Ok(Box::new(SimFabric { entry, end: own }))
    }
}

/// One end of a channel; the peer finds it by its entry while it is not connected.
#[derive(Debug)]
struct SimFabric {
    entry: Entry,
    end: SimEndpoint,
}

impl Fabric for SimFabric {
    fn record(&self) -> FabricRecord {
        let gid = match self.entry.local {
            IpAddr::V4(address) => address.to_ipv6_mapped(),
            IpAddr::V6(address) => address,
        };
        let limits = self.end.limits();
        let queue_pair = QueuePairRecord {
            number: self.entry.number,
            first_packet: 0,
        };
        FabricRecord {
            ports: vec![PortRecord {
                gid: gid.octets(),
                lid: 0,
                mtu: MTU,
                reads: u8::try_from(limits.reads).unwrap_or(u8::MAX),
                partition: 0xffff,
            }],
            queue_pairs: vec![queue_pair; limits.queue_pairs],
        }
    }

    /// The fabric itself reports the end of the peer, so the data connection is not used.
    fn connect(&mut self, peer: &FabricRecord, _data_connection: OwnedFd) -> io::Result<()> {
        let theirs = peer.queue_pairs.first().map_or(0, |first| first.number);
        if theirs > self.entry.number {
            return Ok(());
        }
        let free = self.entry.directory.lock().free.remove(&theirs);
        let free = free.filter(|free| {
            let ours = self.end.limits().queue_pairs;
            free.limits().queue_pairs == ours && peer.queue_pairs.len() == ours
        });
        let free = free.ok_or_else(|| io::Error::other("there is no such endpoint"))?;
        self.end.move_to(free);
        Ok(())
    }
}

impl Endpoint for SimFabric {
    fn limits(&self) -> Limits {
        self.end.limits()
    }

    fn details(&self) -> Vec<Detail> {
        self.end.details()
    }

    fn register(&mut self, memory: &Arc<Memory>, access: Access) -> io::Result<Region> {
        self.end.register(memory, access)
    }

    fn deregister(&mut self, region: usize) {
        self.end.deregister(region);
    }

    fn post(&mut self, queue_pair: usize, request: Request) -> Result<(), PostError> {
        self.end.post(queue_pair, request)
    }

    fn poll(&mut self, completions: &mut Vec<Completion>) {
        self.end.poll(completions);
    }

    fn repeats(&self, rail: usize) -> Option<u64> {
        self.end.repeats(rail)
    }

    fn misses(&self, rail: usize) -> Option<u64> {
        self.end.misses(rail)
    }

    fn descriptor(&self) -> BorrowedFd<'_> {
        self.end.descriptor()
    }

    fn close(&mut self, queue_pair: usize) -> bool {
        self.end.close(queue_pair)
    }

    fn end(&mut self) {
        self.end.end();
    }

    fn abort(&mut self) {
        self.end.abort();
    }
}

/// The entry of an endpoint in the directory.
#[derive(Debug)]
struct Entry {
    directory: Arc<Directory>,
    /// Later ones have higher numbers.
    number: u32,
    /// The address of its data connection.
    local: IpAddr,
}

impl Entry {
    fn take(directory: &Arc<Directory>, local: IpAddr) -> io::Result<Self> {
        let mut entries = directory.lock();
        if entries.count == MAX_ENTRIES {
            return Err(io::Error::other("there are no numbers left"));
        }
        entries.count += 1;
        Ok(Self {
            number: entries.count,
            directory: Arc::clone(directory),
            local,
        })
    }
}

/// Removes the entry of an endpoint that was never connected.
impl Drop for Entry {
    fn drop(&mut self) {
        self.directory.lock().free.remove(&self.number);
    }
}

/// The seats of all channels of a provider.
#[derive(Debug, Default)]
struct Directory(Mutex<Entries>);

#[derive(Debug, Default)]
struct Entries {
    /// Endpoints so far.
    count: u32,
    /// The fabrics' other ends of endpoints that are not connected, by number.
    free: HashMap<u32, SimEndpoint>,
}

impl Directory {
    fn lock(&self) -> MutexGuard<'_, Entries> {
        // If a test fails elsewhere, that failure is reported and not a poisoned lock.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
