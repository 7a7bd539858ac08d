//! Registered memory, with a table that has a limit as the kernel has one.

use std::sync::Arc;

use proptest::prelude::*;
use rustix::io::Errno;

use super::*;

/// Refuses to hold more than so many bytes, as the kernel does (`RLIMIT_MEMLOCK`).
#[derive(Debug)]
struct Limited {
    most: usize,
    buffers: Vec<Range<usize>>,
    /// Unregistering fails so many times.
    interruptions: usize,
}

impl Limited {
    fn new(most: usize) -> Self {
        Self {
            most,
            buffers: Vec::new(),
            interruptions: 0,
        }
    }
}

impl BufferTable for Limited {
    unsafe fn register(&mut self, buffers: &[libc::iovec]) -> io::Result<()> {
        assert!(self.buffers.is_empty(), "EBUSY");
        assert!(!buffers.is_empty(), "EINVAL");
        let buffers = buffers.iter().map(|buffer| {
            let start = buffer.iov_base.addr();
            start..start + buffer.iov_len
        });
        let buffers: Vec<_> = buffers.collect();
        if buffers.iter().map(Range::len).sum::<usize>() > self.most {
            return Err(Errno::NOMEM.into());
        }
        self.buffers = buffers;
        Ok(())
    }

    fn unregister(&mut self) -> io::Result<()> {
        assert!(!self.buffers.is_empty(), "ENXIO");
        if self.interruptions > 0 {
            self.interruptions -= 1;
            return Err(Errno::INTR.into());
        }
        self.buffers.clear();
        Ok(())
    }
}

/// Memory at this address, which is not used, and its owner.
fn memory(start: usize, length: usize) -> (LastingMemory, Arc<()>) {
    let owner = Arc::new(());
    let start = std::ptr::without_provenance_mut(start);
    let memory = LastingMemory::new(start, length, Arc::<()>::clone(&owner));
    (memory, owner)
}

fn index(fixed: &FixedBuffers, start: usize, length: usize) -> Option<u16> {
    fixed.index(std::ptr::without_provenance_mut(start), length)
}

#[test]
fn requests_use_the_buffer_that_has_all_of_their_bytes() {
    let fixed = FixedBuffers {
        buffers: vec![100..110, 110..120, 120..125],
        ..FixedBuffers::default()
    };
    assert_eq!(index(&fixed, 100, 10), Some(0));
    assert_eq!(index(&fixed, 119, 1), Some(1));
    assert_eq!(index(&fixed, 120, 5), Some(2));
    for (start, length) in [(99, 1), (105, 10), (120, 6), (126, 0), (100, usize::MAX)] {
        assert_eq!(index(&fixed, start, length), None, "{start} {length}");
    }
}

/// A long ring would hold up the thread while its pages are pinned.
#[test]
fn long_memory_is_not_registered() {
    let (mut table, mut fixed) = (Limited::new(usize::MAX), FixedBuffers::default());
    for (length, count) in [(LONGEST_MEMORY + 1, 0), (LONGEST_MEMORY, 1)] {
        let (memory, _owner) = memory(1 << 40, length);
        fixed.prepare(&mut table, &memory, u64::MAX);
        assert_eq!(fixed.buffers.len(), count, "{length}");
    }
}

/// The limit has room for one of two rings.
#[test]
fn memory_that_is_refused_does_not_cost_the_registration_before_it() {
    let (mut fixed, mut table) = (FixedBuffers::default(), Limited::new(150));
    let ((one, _), (other, other_owner)) = (memory(1000, 100), memory(2000, 100));
    fixed.prepare(&mut table, &one, 1000);
    assert_eq!(index(&fixed, 1000, 100), Some(0));
    for _ in 0..3 {
        fixed.prepare(&mut table, &other, 1000);
        assert_eq!(index(&fixed, 1000, 100), Some(0));
        assert_eq!(index(&fixed, 2000, 100), None);
        assert!(table.buffers.iter().eq([&(1000..1100)]));
    }
    // The test has one owner, and one is in `other`.
    assert_eq!(Arc::strong_count(&other_owner), 2, "it is held in vain");
}

#[test]
fn memory_is_held_while_the_table_has_it() {
    let (mut fixed, mut table) = (FixedBuffers::default(), Limited::new(usize::MAX));
    let (one, owner) = memory(1000, 100);
    fixed.prepare(&mut table, &one, 1000);
    drop(one);
    table.interruptions = 1;
    let (other, _) = memory(2000, 100);
    fixed.prepare(&mut table, &other, 1000);
    assert!(table.buffers.iter().eq([&(1000..1100)]));
    assert_eq!(Arc::strong_count(&owner), 2);
    assert_eq!(index(&fixed, 1000, 100), Some(0));
    assert_eq!(index(&fixed, 2000, 100), None);
}

#[test]
fn memory_that_its_user_has_left_is_given_up() {
    let (mut fixed, mut table) = (FixedBuffers::default(), Limited::new(usize::MAX));
    let ((kept, kept_owner), (left, left_owner)) = (memory(1000, 100), memory(2000, 100));
    fixed.prepare(&mut table, &kept, 1000);
    fixed.prepare(&mut table, &left, 1000);
    let last = Arc::downgrade(&left_owner);
    drop(left);
    fixed.release(&mut table);
    assert_eq!(table.buffers, [1000..1100, 2000..2100], "its owner has it");
    drop(left_owner);
    table.interruptions = 1;
    fixed.release(&mut table);
    assert_eq!(last.strong_count(), 1, "the kernel has it");
    fixed.release(&mut table);
    assert!(table.buffers.iter().eq([&(1000..1100)]));
    assert_eq!(last.strong_count(), 0);
    assert_eq!(index(&fixed, 1000, 100), Some(0));
    assert_eq!(index(&fixed, 2000, 100), None);
    drop((kept, kept_owner));
    fixed.release(&mut table);
    assert!(table.buffers.is_empty() && fixed.buffers.is_empty());
}

proptest! {
    /// With any refusals, the table of the kernel is what requests name, and all memory in it is held.
    #[test]
    fn requests_name_what_is_in_the_table(
        most in 0..500_usize,
        uses in proptest::collection::vec((0..5_usize, 0..300_u64, 0..8_u32), 0..30),
    ) {
        let memories = [10, 50, 100, 200, 400].map(|length| memory(length * 1000, length));
        let (mut fixed, mut table) = (FixedBuffers::default(), Limited::new(most));
        for (number, bytes, interruption) in uses {
            table.interruptions = usize::from(interruption == 0);
            fixed.prepare(&mut table, &memories[number].0, bytes);
            prop_assert_eq!(&fixed.buffers, &table.buffers);
            for (memory, owner) in &memories {
                let is_there = table.buffers.contains(&memory.addresses());
                prop_assert_eq!(Arc::strong_count(owner), 2 + usize::from(is_there));
            }
        }
    }
}
