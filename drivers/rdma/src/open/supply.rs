//! Further rings from the pool, prepared by a thread of their own.
//!
//! Populating and pinning gigabytes takes a while. The engine asks, goes on, and takes the ring when it is
//! there. There is at most one such thread for each direction of a channel.

use std::io;
use std::num::NonZeroU64;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, TryRecvError, sync_channel};
use std::thread;

use super::ring_length::MostGrown;
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
    mode: Mode,
    shaping: Shaping,
    /// The longest ring.
    most: MostGrown,
    locality: Option<Arc<Locality>>,
    /// Threads stop preparing rings when this is dropped.
    is_open: Arc<()>,
    /// By direction: `None` if nothing was asked for.
    asked: [Option<Asked>; 2],
}

/// A ring that was asked for, until it is prepared.
type Asked = Receiver<io::Result<Prepared>>;

/// Memory, registered where that takes long.
type Prepared = (Arc<Memory>, Option<Registered>);

/// Rings of at least this length are multiples of it, so that huge pages fit.
const HUGE_BYTES: u64 = 2 << 20;

/// No shorter ring is used.
const LEAST_BYTES: u64 = 64 << 10;

impl RingSupply {
    /// Rings of up to this length for the channel with this share, beside its adapter.
    pub(super) fn new(
        (share, locality): (Arc<Share>, Option<Arc<Locality>>),
        mode: Mode,
        shaping: Shaping,
        most: MostGrown,
    ) -> Self {
        Self {
            share,
            mode,
            shaping,
            most,
            locality,
            is_open: Arc::new(()),
            asked: [None, None],
        }
    }

    /// Reserves memory, and starts the thread that prepares it. Returns the length of the ring in bytes, or `None` if there is no
    /// memory or no thread.
    fn prepare(
        &self,
        endpoint: &dyn Endpoint,
        access: Access,
        wanted: Wanted,
    ) -> Option<(u64, Asked)> {
        let lengths = lengths(wanted, self.most.bytes)?;
        let part = self.share.further(lengths, wanted.present)?;
        let bytes = rounded_down(part.bytes());
        let locality = self.locality.clone();
        let registrar = endpoint.registrar();
        let channel = Arc::downgrade(&self.is_open);
        let (answer, prepared) = sync_channel(1);
        let work = move || {
            let is_wanted = || channel.strong_count() > 0;
            let (locality, registrar) = (locality.as_deref(), registrar.as_deref());
            let ring = prepare((part, bytes), access, locality, registrar, &is_wanted);
            // The channel may have ended, and the ring goes back.
            let _ = answer.send(ring);
        };
        let thread = thread::Builder::new().name("rdma-ring".to_owned());
        thread.spawn(work).ok()?;
        Some((bytes, prepared))
    }
}

/// The least and the most bytes to reserve for a ring of up to `most` bytes; `None` if that is too short.
///
/// A ring is as long as the huge pages in what was reserved. A shorter ring than the present one has to stay below half of it
/// ([`Share::further`]), so its length is rounded down.
fn lengths(wanted: Wanted, most: u64) -> Option<[u64; 2]> {
    if wanted.bytes <= wanted.present / 2 {
        let bytes = rounded_down(wanted.bytes.min(most));
        return (bytes >= LEAST_BYTES).then_some([bytes; 2]);
    }
    let longest = rounded_up(wanted.bytes).min(rounded_down(most));
    let least = rounded_up(wanted.least.max(LEAST_BYTES));
    (least <= longest).then_some([least, longest])
}

/// Maps and registers the memory of a ring of so many bytes.
fn prepare(
    (part, bytes): (Part, u64),
    access: Access,
    locality: Option<&Locality>,
    registrar: Option<&dyn Registrar>,
    is_wanted: &(dyn Fn() -> bool + Sync),
) -> io::Result<Prepared> {
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

fn rounded_up(bytes: u64) -> u64 {
    match bytes >= HUGE_BYTES {
        true => bytes.next_multiple_of(HUGE_BYTES),
        false => bytes,
    }
}

fn rounded_down(bytes: u64) -> u64 {
    match bytes >= HUGE_BYTES {
        true => bytes - bytes % HUGE_BYTES,
        false => bytes,
    }
}

/// Registers with the endpoint, unless the thread has done so.
fn take_over(
    endpoint: &mut dyn Endpoint,
    access: Access,
    (memory, registered): Prepared,
) -> io::Result<Supplied> {
    let region = match registered {
        Some(registered) => endpoint.adopt(registered)?,
        None => endpoint.register(&memory, access)?,
    };
    let bytes = NonZeroU64::new(memory.length() as u64).ok_or(io::ErrorKind::InvalidInput)?;
    Ok(Supplied {
        bytes,
        region,
        memory: Some(memory),
    })
}

impl Supply for RingSupply {
    fn ask(&mut self, endpoint: &mut dyn Endpoint, way: Way, wanted: Wanted) -> Option<NonZeroU64> {
        let asked = self.prepare(endpoint, way.of(self.mode.access()), wanted);
        let (bytes, asked) = asked.unzip();
        self.asked[way as usize] = asked;
        bytes.and_then(NonZeroU64::new)
    }

    fn answer(&mut self, endpoint: &mut dyn Endpoint, way: Way) -> Option<Option<Supplied>> {
        let asked = &mut self.asked[way as usize];
        let prepared = match asked.as_ref()?.try_recv() {
            Err(TryRecvError::Empty) => return None,
            Ok(prepared) => prepared.ok(),
            Err(TryRecvError::Disconnected) => None,
        };
        *asked = None;
        let supplied =
            prepared.map(|prepared| take_over(endpoint, way.of(self.mode.access()), prepared));
        Some(supplied.and_then(Result::ok))
    }

    fn knows_path(&self) -> bool {
        self.most.knows_path
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

#[cfg(test)]
mod tests {
    use gridhaul_stack::{Cancel, Operation, Side};

    use super::*;
    use crate::iwarp::SoftEndpoint;
    use crate::memory::{Holder, Lengths, Pool};
    use crate::numa::tests::{expect_policy, first};

    const MIB: u64 = 1 << 20;

    /// A channel that may have rings of up to `most` bytes, in a pool of 15 MiB, half of which is reserved for others.
    fn channel(most: u64) -> (RingSupply, SoftEndpoint) {
        let cancel = Cancel::new();
        let operation = Operation {
            deadline: None,
            cancel: &cancel,
        };
        let holder = Holder {
            side: Side::Acceptor,
            pins: 0,
            party: None,
        };
        let first = Lengths::both(NonZeroU64::new(64 << 10).unwrap());
        let pool = Pool::new(15 * MIB, u64::MAX);
        let share = pool.take(holder, first, &operation).unwrap();
        let (share, _) = share.map(0, &|| true).unwrap();
        let shaping = Shaping {
            message: 256 << 10,
            fits_message: true,
            most_message: 1 << 30,
            queue_pairs: 1,
            requests: 1024,
            pieces: 64,
            immediate: false,
        };
        let most = MostGrown {
            bytes: most,
            knows_path: false,
        };
        let supply = RingSupply::new((share, None), Mode::Put, shaping, most);
        (supply, SoftEndpoint::new(1024, 16).unwrap())
    }

    /// The length of the ring that it gets, which it gives back.
    fn ring((supply, endpoint): &mut (RingSupply, SoftEndpoint), wanted: Wanted) -> Option<u64> {
        let reserved = supply.ask(endpoint, Way::Incoming, wanted)?;
        loop {
            if let Some(answer) = supply.answer(endpoint, Way::Incoming) {
                let ring = answer?;
                assert_eq!(ring.bytes, reserved);
                endpoint.deregister(ring.region.id);
                return Some(ring.bytes.get());
            }
            thread::yield_now();
        }
    }

    #[test]
    fn a_ring_is_on_the_node_of_the_adapter() {
        let (mut supply, mut endpoint) = channel(64 * MIB);
        supply.locality = Some(Arc::new(first()));
        let wanted = Wanted {
            bytes: MIB,
            least: MIB,
            present: 64 << 10,
        };
        assert!(supply.ask(&mut endpoint, Way::Incoming, wanted).is_some());
        let ring = loop {
            if let Some(answer) = supply.answer(&mut endpoint, Way::Incoming) {
                break answer.expect("a ring");
            }
            thread::yield_now();
        };
        expect_policy(&ring.memory.expect("a ring has memory"), "prefer:0");
        endpoint.deregister(ring.region.id);
    }

    #[test]
    fn a_ring_is_never_shorter_than_asked_for() {
        let mut channel = channel(64 * MIB);
        let (mut granted, mut refused) = (0, 0);
        for least in (MIB..9 * MIB).step_by(300_001) {
            let wanted = Wanted {
                bytes: 64 * MIB,
                least,
                present: 64 << 10,
            };
            match ring(&mut channel, wanted) {
                Some(bytes) => {
                    assert!(bytes >= least, "{bytes} instead of {least}");
                    assert!(bytes.is_multiple_of(HUGE_BYTES), "{bytes}");
                    granted += 1;
                }
                None => refused += 1,
            }
        }
        assert!(granted > 10 && refused > 3, "{granted} and {refused}");
    }

    #[test]
    fn a_ring_is_no_longer_than_the_channel_may_have() {
        let mut channel = channel(5 * MIB + 1000);
        let wanted = |bytes, least| Wanted {
            bytes,
            least,
            present: 64 << 10,
        };
        assert_eq!(ring(&mut channel, wanted(64 * MIB, MIB)), Some(4 * MIB));
        assert_eq!(ring(&mut channel, wanted(64 * MIB, 5 * MIB)), None);
    }

    /// A ring of an odd number of huge pages is replaced by one of less than half, also if nothing is left for longer ones.
    #[test]
    fn a_shorter_ring_takes_what_is_reserved_for_others() {
        let mut channel = channel(64 * MIB);
        let all = channel.0.share.further([MIB, 64 * MIB], 0).unwrap();
        let wanted = |bytes, present| Wanted {
            bytes,
            least: bytes,
            present,
        };
        assert_eq!(ring(&mut channel, wanted(3 * MIB, 6 * MIB)), Some(2 * MIB));
        assert_eq!(ring(&mut channel, wanted(3 * MIB, 5 * MIB)), None);
        let odd = (64 << 10) + 1;
        let bytes = ring(&mut channel, wanted(odd, 2 * odd)).unwrap();
        assert!((odd..odd + (64 << 10)).contains(&bytes), "{bytes}");
        drop(all);
    }
}
