//! When memory that is given up is free, and which thread unmaps it.

use std::num::{NonZeroU64, NonZeroUsize};
use std::sync::{Arc, Mutex, OnceLock};
use std::thread;

use super::{ACCEPTOR, MIB, both, take, take_rings_at_once};
use crate::memory::bounds::Holder;
use crate::memory::lengths::Lengths;
use crate::memory::pool::{Pool, Waiter};
use crate::memory::recycled::{Cleared, Used};
use crate::memory::release::tests::Gate;

/// A pool of 16 MiB that has room for one MiB beside idle mappings.
fn pool_with_idle_mappings() -> Arc<Pool> {
    let pool = Pool::new(16 * MIB, u64::MAX);
    let length = NonZeroUsize::new(1 << 20).unwrap();
    for _ in 0..15 {
        let pages = Cleared::map(length, &|| true).unwrap().into_pages();
        pool.lock().idle.add(Used::new(pages, 0));
    }
    pool
}

/// More than a quarter of the bound is not kept for other channels.
#[test]
fn long_memory_counts_until_it_is_unmapped() {
    const LONG: u64 = 64 * MIB;
    let pool = Pool::new(3 * LONG, u64::MAX);
    let wanted = Lengths {
        outgoing: NonZeroU64::new(LONG).unwrap(),
        ..both(64 << 10)
    };
    let share = take_rings_at_once(&pool, ACCEPTOR, wanted).unwrap();
    assert_eq!(share.rings().outgoing.get(), LONG);
    let channel = share.map(0, &|| true).unwrap();
    assert!(channel.1.iter().all(|ring| ring.counts()));
    let opens = Gate::close();
    drop(channel);
    let load = pool.load();
    assert_eq!((load.used_bytes, load.channels), (LONG, 1));
    drop(opens);
    while pool.load().used_bytes > 0 {
        thread::yield_now();
    }
    assert!(pool.load().idle_bytes < LONG);
}

/// As when a rail is left out: the registrations with its adapter are among what the thread releases.
#[test]
fn memory_counts_for_a_device_until_it_is_deregistered_there() {
    let pool = Pool::new(64 * MIB, 64 * MIB);
    let holder = Holder {
        pins: 2,
        ..ACCEPTOR
    };
    let (share, rings) = take(&pool, holder, MIB).unwrap().map(0, &|| true).unwrap();
    let pinned = || pool.load().pinned_bytes;
    let opens = Gate::close();
    share.unpin_when_released(1);
    assert_eq!(pinned(), 4 * MIB, "twice for each ring");
    drop(opens);
    while pinned() > 2 * MIB {
        thread::yield_now();
    }
    // A channel that ends first gives back everything.
    let opens = Gate::close();
    share.unpin_when_released(1);
    drop((share, rings));
    assert_eq!(pinned(), 0);
    drop(opens);
}

#[test]
fn memory_that_a_device_does_not_let_go_counts_on() {
    let pool = Pool::new(64 * MIB, 64 * MIB);
    let holder = Holder {
        pins: 2,
        ..ACCEPTOR
    };
    let (share, [one, other]) = take(&pool, holder, MIB).unwrap().map(0, &|| true).unwrap();
    one.keep_pinned();
    share.unpin(1);
    assert_eq!(pool.load().pinned_bytes, 4 * MIB);
    drop((share, one, other));
    let load = pool.load();
    assert_eq!((load.pinned_bytes, load.used_bytes), (2 * MIB, MIB));
}

/// The thread that asks for a further ring has a stream to move.
#[test]
fn who_maps_a_further_ring_unmaps_what_makes_room_for_it() {
    let pool = pool_with_idle_mappings();
    let channel = take(&pool, ACCEPTOR, 64 << 10).unwrap();
    let (share, _rings) = channel.map(0, &|| true).unwrap();
    let part = share.further([2 * MIB, 64 * MIB], 0).unwrap();
    let bytes = part.bytes();
    assert!(!part.evicted.is_empty());
    let load = pool.load();
    assert!(load.used_bytes + load.idle_bytes <= load.limit_bytes);
    let ring = part.map(bytes, &|| true).unwrap();
    assert_eq!(ring.length() as u64, bytes);
}

/// The thread that gives back memory closes other channels as well.
#[test]
fn a_channel_that_has_waited_unmaps_what_makes_room_for_it() {
    let pool = pool_with_idle_mappings();
    let waiter = Arc::new(Waiter {
        holder: ACCEPTOR,
        wanted: both(100 * MIB),
        granted: OnceLock::new(),
        evicted: Mutex::default(),
        thread: thread::current(),
    });
    let mut state = pool.lock();
    state.waiting.push_back(Arc::clone(&waiter));
    state.serve();
    assert!(state.idle.take_evicted().is_empty());
    drop(state);
    assert!(!waiter.evicted.lock().unwrap().is_empty());
    assert!(waiter.take().is_some());
    assert!(waiter.evicted.lock().unwrap().is_empty());
    pool.leave(&waiter);
    assert_eq!(pool.load().used_bytes, 0);
}
