//! Rings that a channel gets while it runs.

use std::thread;

use gridhaul_stack::Party;

use super::{ACCEPTOR, MIB, take, take_at_once};
use crate::memory::{Holder, Pool};

/// Neither the bound nor what is left of it is a multiple of a page.
#[test]
fn a_further_ring_is_no_longer_than_what_is_counted() {
    let limit = 16 * MIB + 1234;
    let pool = Pool::new(limit, u64::MAX);
    let channel = take(&pool, ACCEPTOR, 64 << 10).unwrap();
    let (share, rings) = channel.map(0, &|| true).unwrap();
    let before = pool.load().used_bytes;
    let part = share.further([MIB, 64 * MIB], 0).unwrap();
    let counted = part.bytes();
    assert!(counted > 4 * MIB, "{counted}");
    assert_eq!(pool.load().used_bytes, before + counted);
    let ring = part.map(counted, &|| true).unwrap();
    assert_eq!(ring.length() as u64, counted);
    drop((ring, rings, share));
    assert_eq!(pool.load().used_bytes, 0);
}

#[test]
fn memory_counts_for_the_devices_that_still_pin_it() {
    let pool = Pool::new(64 * MIB, 64 * MIB);
    let holder = Holder {
        pins: 3,
        party: Some(Party(1)),
        ..ACCEPTOR
    };
    let mut share = take(&pool, holder, MIB).unwrap();
    assert!(share.set_extra(MIB));
    let (share, rings) = share.map(0, &|| true).unwrap();
    let pinned = || pool.load().pinned_bytes;
    assert_eq!(pinned(), 9 * MIB);
    for (devices, expected) in [(2, 6), (3, 6), (0, 3), (1, 3)] {
        share.unpin(devices);
        assert_eq!(pinned(), expected * MIB, "{devices}");
    }
    drop(rings);
    assert_eq!(pinned(), MIB);
    drop(share);
    assert_eq!((pinned(), pool.load().channels), (0, 0));
    let unpinned = take(&pool, ACCEPTOR, MIB).unwrap();
    unpinned.unpin(2);
    let load = pool.load();
    assert_eq!((load.pinned_bytes, load.used_bytes), (0, 2 * MIB));
}

#[test]
fn a_channel_knows_whether_others_wait_for_memory() {
    let pool = Pool::new(256 << 10, u64::MAX);
    let (share, rings) = take(&pool, ACCEPTOR, 64 << 10)
        .unwrap()
        .map(0, &|| true)
        .unwrap();
    let mut held = Vec::new();
    while let Ok(share) = take_at_once(&pool, ACCEPTOR, MIB) {
        held.push(share);
    }
    assert!(!share.is_contended(), "nothing is left, and none waits");
    thread::scope(|scope| {
        let waiter = scope.spawn(|| take(&pool, ACCEPTOR, MIB));
        while pool.load().waiting == 0 {
            thread::yield_now();
        }
        assert!(share.is_contended());
        assert!(share.further([1, MIB], 0).is_none());
        drop((rings, held));
        let granted = waiter.join().unwrap();
        assert!(granted.is_ok() && !share.is_contended());
    });
}
