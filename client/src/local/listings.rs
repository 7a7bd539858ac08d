//! The room that listings have on this machine.
//!
//! A server chooses how long its listings are, and how many directories are beneath each other. Their files are often in memory (tmpfs),
//! so all of them that are open at a time share one amount of bytes.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// The room for all listings that are open at a time.
#[derive(Debug)]
pub(crate) struct ListingRoom {
    /// In bytes.
    all: u64,
    free: AtomicU64,
}

/// The part of the room that one listing has. It is free again when it is dropped.
#[derive(Debug)]
pub(crate) struct ListingShare {
    room: Arc<ListingRoom>,
    bytes: u64,
}

impl ListingRoom {
    /// So many bytes.
    pub(crate) fn new(bytes: u64) -> Arc<Self> {
        Arc::new(Self {
            all: bytes,
            free: AtomicU64::new(bytes),
        })
    }

    /// All of it, in bytes.
    pub(crate) fn all(&self) -> u64 {
        self.all
    }

    /// Room for a listing of unknown length: half of what is free, because others may begin before it has ended.
    pub(crate) fn share(self: &Arc<Self>) -> ListingShare {
        let mut bytes = 0;
        let take = |free: u64| {
            bytes = free.div_ceil(2);
            Some(free - bytes)
        };
        // It always changes.
        let _ = self
            .free
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, take);
        ListingShare {
            room: Arc::clone(self),
            bytes,
        }
    }
}

impl ListingShare {
    /// The most bytes of the listing.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// The listing has so many bytes; the others are free again.
    pub(crate) fn shrink(&mut self, bytes: u64) {
        let spare = self.bytes.saturating_sub(bytes);
        self.bytes -= spare;
        self.room.free.fetch_add(spare, Ordering::Relaxed);
    }
}

impl Drop for ListingShare {
    fn drop(&mut self) {
        self.room.free.fetch_add(self.bytes, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn listings_never_have_more_than_all(
            all in 0..1_u64 << 40,
            steps in prop::collection::vec((any::<bool>(), any::<u64>()), 0..60),
        ) {
            let room = ListingRoom::new(all);
            let mut shares: Vec<ListingShare> = Vec::new();
            for (is_opened, number) in steps {
                match is_opened {
                    true => {
                        let mut share = room.share();
                        let had = share.bytes();
                        let used = number % had.saturating_add(1);
                        share.shrink(used);
                        prop_assert_eq!(share.bytes(), used);
                        shares.push(share);
                    }
                    false => drop(shares.pop()),
                }
                let used: u64 = shares.iter().map(ListingShare::bytes).sum();
                prop_assert!(used <= all);
                // A listing that ends without a file of its own.
                let next = room.share();
                prop_assert_eq!(next.bytes(), (all - used).div_ceil(2));
            }
            drop(shares);
            prop_assert_eq!(room.share().bytes(), all.div_ceil(2));
        }
    }
}
