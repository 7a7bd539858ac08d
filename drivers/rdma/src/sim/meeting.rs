//! The fabric as a provider of the driver, for channels that threads use.
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
const MAX_SEATS: u32 = 0xff_ffff;

/// The driver `rdma` over simulated paths of this kind, within this process.
pub fn driver(settings: FabricSettings) -> RdmaBy {
    RdmaBy::new(Arc::new(Simulation {
        settings,
        hall: Arc::default(),
    }))
}

/// The provider.
#[derive(Debug)]
struct Simulation {
    settings: FabricSettings,
    hall: Arc<Hall>,
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
        let seat = Seat::take(&self.hall, wanted.local)?;
        let mut settings = self.settings.clone();
        settings.seed = settings.seed.wrapping_add(u64::from(seat.number));
        let fabric = SharedFabric::in_real_time(settings);
        let [own, free] = fabric.connect(usize::from(wanted.queue_pairs))?;
        self.hall.lock().free.insert(seat.number, free);
        Ok(Box::new(Guest { seat, end: own }))
    }
}

/// One end of a channel; the peer finds it by its seat until it is connected.
#[derive(Debug)]
struct Guest {
    seat: Seat,
    end: SimEndpoint,
}

impl Fabric for Guest {
    fn record(&self) -> FabricRecord {
        let gid = match self.seat.local {
            IpAddr::V4(address) => address.to_ipv6_mapped(),
            IpAddr::V6(address) => address,
        };
        let limits = self.end.limits();
        let queue_pair = QueuePairRecord {
            number: self.seat.number,
            first_packet: 0,
        };
        FabricRecord {
            port: PortRecord {
                gid: gid.octets(),
                lid: 0,
                mtu: MTU,
                reads: u8::try_from(limits.reads).unwrap_or(u8::MAX),
            },
            queue_pairs: vec![queue_pair; limits.queue_pairs],
        }
    }

    /// The fabric itself reports the peer's end; the data connection is not needed for that.
    fn connect(&mut self, peer: &FabricRecord, _data_connection: OwnedFd) -> io::Result<()> {
        let theirs = peer.queue_pairs.first().map_or(0, |first| first.number);
        if theirs > self.seat.number {
            return Ok(());
        }
        let free = self.seat.hall.lock().free.remove(&theirs);
        let free = free.filter(|free| {
            let ours = self.end.limits().queue_pairs;
            free.limits().queue_pairs == ours && peer.queue_pairs.len() == ours
        });
        let free = free.ok_or_else(|| io::Error::other("there is no such endpoint"))?;
        self.end.move_to(free);
        Ok(())
    }
}

impl Endpoint for Guest {
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

    fn repeats(&self) -> Option<u64> {
        self.end.repeats()
    }

    fn misses(&self) -> Option<u64> {
        self.end.misses()
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

/// Where an endpoint is found.
#[derive(Debug)]
struct Seat {
    hall: Arc<Hall>,
    /// Later ones have higher numbers.
    number: u32,
    /// The address of its data connection.
    local: IpAddr,
}

impl Seat {
    fn take(hall: &Arc<Hall>, local: IpAddr) -> io::Result<Self> {
        let mut guests = hall.lock();
        if guests.count == MAX_SEATS {
            return Err(io::Error::other("there are no numbers left"));
        }
        guests.count += 1;
        Ok(Self {
            number: guests.count,
            hall: Arc::clone(hall),
            local,
        })
    }
}

/// If no peer has come.
impl Drop for Seat {
    fn drop(&mut self) {
        self.hall.lock().free.remove(&self.number);
    }
}

/// The seats of all channels of a provider.
#[derive(Debug, Default)]
struct Hall(Mutex<Guests>);

#[derive(Debug, Default)]
struct Guests {
    /// Endpoints so far.
    count: u32,
    /// The fabrics' other ends of endpoints that are not connected, by number.
    free: HashMap<u32, SimEndpoint>,
}

impl Hall {
    fn lock(&self) -> MutexGuard<'_, Guests> {
        // A test that failed elsewhere must show its own reason.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
