//! Rings that a channel gets while it runs.

use super::{ACCEPTOR, MIB, take};
use crate::memory::Pool;

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
