//! Further rings from the pool, prepared by a thread of their own.
//!
//! Populating and pinning gigabytes takes a while. The engine asks, goes on, and takes the ring when it is
//! there. There is at most one such thread for each direction of a channel.

use std::io;
use std::num::NonZeroU64;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, TryRecvError, sync_channel};
use std::thread;

use super::shape::Shaping;
use crate::engine::{Shape, Supplied, Supply, Wanted, Way};
use crate::handshake::Mode;
use crate::memory::{Memory, Part, Share};
use crate::numa::Locality;
use crate::provider::{Access, Endpoint, Registered, Registrar};

/// The rings of one channel.
#[derive(Debug)]
pub(super) struct RingSupply {
    share: Arc<Share>,
    shaping: Shaping,
    /// The longest ring in bytes.
    most: u64,
    locality: Option<Arc<Locality>>,
    /// Threads stop preparing rings when this is dropped.
    is_open: Arc<()>,
    /// By direction: `None` if nothing was asked for.
    asked: [Option<Asked>; 2],
}

/// A ring that was asked for.
#[derive(Debug)]
enum Asked {
    Refused,
    Preparing(Receiver<io::Result<Prepared>>),
}

/// Memory, registered where that takes long.
type Prepared = (Arc<Memory>, Option<Registered>);

/// Rings of at least this length are multiples of it, so that huge pages fit.
const HUGE_BYTES: u64 = 2 << 20;

/// No shorter ring is used.
const LEAST_BYTES: u64 = 64 << 10;

impl RingSupply {
    /// Rings of up to `most` bytes for the channel with this share.
    pub(super) fn new(
        share: Arc<Share>,
        shaping: Shaping,
        most: u64,
        locality: Option<Arc<Locality>>,
    ) -> Self {
        Self {
            share,
            shaping,
            most,
            locality,
            is_open: Arc::new(()),
            asked: [None, None],
        }
    }

    /// Reserves memory, and starts the thread that prepares it. `None` if either is not there.
    fn prepare(
        &self,
        endpoint: &dyn Endpoint,
        access: Access,
        wanted: Wanted,
    ) -> Option<Receiver<io::Result<Prepared>>> {
        let most = rounded(wanted.bytes.min(self.most));
        let least = wanted.least.max(LEAST_BYTES);
        if most < least {
            return None;
        }
        let part = self.share.further([least, most], wanted.present)?;
        let locality = self.locality.clone();
        let registrar = endpoint.registrar();
        let channel = Arc::downgrade(&self.is_open);
        let (answer, prepared) = sync_channel(1);
        let work = move || {
            let is_wanted = || channel.strong_count() > 0;
            let (locality, registrar) = (locality.as_deref(), registrar.as_deref());
            let ring = prepare(part, access, locality, registrar, &is_wanted);
            // The channel may have ended, and the ring goes back.
            let _ = answer.send(ring);
        };
        let thread = thread::Builder::new().name("rdma-ring".to_owned());
        thread.spawn(work).ok()?;
        Some(prepared)
    }
}

/// Maps and registers the memory of a ring.
fn prepare(
    part: Part,
    access: Access,
    locality: Option<&Locality>,
    registrar: Option<&dyn Registrar>,
    is_wanted: &(dyn Fn() -> bool + Sync),
) -> io::Result<Prepared> {
    let bytes = match part.bytes() {
        long if long >= HUGE_BYTES => long - long % HUGE_BYTES,
        short => short,
    };
    let memory = match locality {
        Some(locality) => {
            let memory = locality.with_thread_bound(|| part.map(bytes, is_wanted))?;
            locality.place(&memory);
            memory
        }
        None => part.map(bytes, is_wanted)?,
    };
    let registered = registrar.map(|registrar| registrar.register(&memory, access));
    Ok((memory, registered.transpose()?))
}

fn rounded(bytes: u64) -> u64 {
    match bytes >= HUGE_BYTES {
        true => bytes.next_multiple_of(HUGE_BYTES),
        false => bytes,
    }
}

fn access(way: Way) -> Access {
    let [outgoing, incoming] = Mode::Put.access();
    match way {
        Way::Outgoing => outgoing,
        Way::Incoming => incoming,
    }
}

/// Registers with the endpoint, unless the thread has done so.
fn take_over(
    endpoint: &mut dyn Endpoint,
    way: Way,
    (memory, registered): Prepared,
) -> io::Result<Supplied> {
    let region = match registered {
        Some(registered) => endpoint.adopt(registered)?,
        None => endpoint.register(&memory, access(way))?,
    };
    let bytes = NonZeroU64::new(memory.length() as u64).ok_or(io::ErrorKind::InvalidInput)?;
    Ok(Supplied {
        bytes,
        region,
        memory: Some(memory),
    })
}

impl Supply for RingSupply {
    fn ask(&mut self, endpoint: &mut dyn Endpoint, way: Way, wanted: Wanted) {
        let preparing = self.prepare(endpoint, access(way), wanted);
        let asked = preparing.map_or(Asked::Refused, Asked::Preparing);
        self.asked[way as usize] = Some(asked);
    }

    fn answer(&mut self, endpoint: &mut dyn Endpoint, way: Way) -> Option<Option<Supplied>> {
        let asked = &mut self.asked[way as usize];
        let prepared = match asked {
            Some(Asked::Preparing(prepared)) => match prepared.try_recv() {
                Err(TryRecvError::Empty) => return None,
                Ok(prepared) => prepared.ok(),
                Err(TryRecvError::Disconnected) => None,
            },
            Some(Asked::Refused) | None => None,
        };
        *asked = None;
        let supplied = prepared.map(|prepared| take_over(endpoint, way, prepared));
        Some(supplied.and_then(Result::ok))
    }

    fn is_contended(&self) -> bool {
        self.share.is_contended()
    }

    fn least_bytes(&self) -> u64 {
        LEAST_BYTES
    }

    fn shape(&self, window: NonZeroU64, ring: NonZeroU64) -> Shape {
        self.shaping.shape(window, ring)
    }
}
