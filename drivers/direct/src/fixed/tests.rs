//! Registered memory, with a table that has a limit as the kernel has one.

use std::sync::Arc;

use proptest::prelude::*;
use rustix::io::Errno;

use super::*;

/// Refuses to hold more than so many bytes, as the kernel does (`RLIMIT_MEMLOCK`).
#[derive(Debug, Default)]
struct Limited {
    most: usize,
    /// A kernel whose tables cannot be changed.
    is_old: bool,
    places: Vec<Option<Range<usize>>>,
    /// What each further buffer takes.
    takes: Duration,
    /// Clearing and closing fail so many times.
    interruptions: usize,
}

impl Limited {
    fn new(most: usize) -> Self {
        Self {
            most,
            ..Self::default()
        }
    }

    fn old(most: usize) -> Self {
        Self {
            is_old: true,
            ..Self::new(most)
        }
    }

    /// The buffers that it has.
    fn buffers(&self) -> Vec<Range<usize>> {
        self.places.iter().flatten().cloned().collect()
    }

    fn hold(&mut self, place: usize, buffer: &Range<usize>) -> io::Result<Duration> {
        assert!(!buffer.is_empty() && buffer.len() <= 1 << 30, "EFAULT");
        let held: usize = self.buffers().iter().map(Range::len).sum();
        if held + buffer.len() > self.most {
            return Err(Errno::NOMEM.into());
        }
        let before = self.places[place].replace(buffer.clone());
        assert_eq!(before, None, "its memory would not be pinned any more");
        Ok(self.takes)
    }

    fn interrupt(&mut self) -> io::Result<()> {
        let Some(left) = self.interruptions.checked_sub(1) else {
            return Ok(());
        };
        self.interruptions = left;
        Err(Errno::INTR.into())
    }
}

impl BufferTable for Limited {
    fn open(&mut self, places: usize) -> io::Result<()> {
        assert!(self.places.is_empty(), "EBUSY");
        if self.is_old {
            return Err(Errno::FAULT.into());
        }
        self.places = vec![None; places];
        Ok(())
    }

    unsafe fn fill(&mut self, place: usize, buffer: &Range<usize>) -> io::Result<Duration> {
        assert!(!self.is_old, "EINVAL");
        self.hold(place, buffer)
    }

    fn clear(&mut self, place: usize) -> io::Result<()> {
        assert!(!self.is_old, "EINVAL");
        self.interrupt()?;
        let before = self.places[place].take();
        assert!(before.is_some(), "it is cleared twice");
        Ok(())
    }

    unsafe fn open_whole(&mut self, buffer: &Range<usize>) -> io::Result<()> {
        assert!(self.places.is_empty(), "EBUSY");
        self.places = vec![None];
        let held = self.hold(0, buffer).map(drop);
        if held.is_err() {
            self.places.clear();
        }
        held
    }

    fn close_whole(&mut self) -> io::Result<()> {
        assert!(!self.places.is_empty(), "ENXIO");
        self.interrupt()?;
        self.places.clear();
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

/// Where a long memory of the tests begins.
const START: usize = 1 << 40;

/// Two pieces and a short one.
const LONG: usize = 2 * PIECE_BYTES + 100;

#[test]
fn requests_use_the_buffer_that_has_all_of_their_bytes() {
    let (mut table, mut fixed) = (Limited::new(usize::MAX), FixedBuffers::default());
    for (start, length) in [(100, 10), (110, 15)] {
        fixed.prepare(&mut table, &memory(start, length).0, u64::MAX);
    }
    let second = u16::try_from(MAX_PIECES).unwrap();
    assert_eq!(index(&fixed, 100, 10), Some(0));
    assert_eq!(index(&fixed, 119, 1), Some(second));
    assert_eq!(index(&fixed, 120, 5), Some(second));
    for (start, length) in [(99, 1), (105, 10), (120, 6), (126, 0), (100, usize::MAX)] {
        assert_eq!(index(&fixed, start, length), None, "{start} {length}");
    }
}

/// The thread of a channel waits for one piece, not for a long ring.
#[test]
fn long_memory_is_registered_by_one_piece_at_a_time() {
    let (mut table, mut fixed) = (Limited::new(usize::MAX), FixedBuffers::default());
    let (long, _owner) = memory(START, LONG);
    let pieces = [0, 1, 2].map(|number| START + number * PIECE_BYTES);
    for count in 0..5 {
        for (number, &start) in pieces.iter().enumerate() {
            let expected = (number < count).then(|| u16::try_from(number).unwrap());
            assert_eq!(index(&fixed, start, 100), expected, "{count} {number}");
        }
        assert_eq!(table.buffers().len(), count.min(3));
        fixed.prepare(&mut table, &long, LONG as u64);
    }
    let ends = [pieces[1], pieces[2], START + LONG];
    for (place, (start, end)) in pieces.into_iter().zip(ends).enumerate() {
        assert_eq!(table.places[place], Some(start..end));
    }
    for start in [pieces[1] - 50, pieces[2] - 1, START + LONG - 99] {
        assert_eq!(index(&fixed, start, 100), None, "it crosses an end");
    }
    assert_eq!(index(&fixed, pieces[1] - 100, 100), Some(0));
}

/// The limit has room for two of three pieces.
#[test]
fn pieces_of_a_memory_stay_registered_when_the_next_one_is_refused() {
    let (mut table, mut fixed) = (Limited::new(2 * PIECE_BYTES), FixedBuffers::default());
    let (long, owner) = memory(START, LONG);
    for _ in 0..5 {
        fixed.prepare(&mut table, &long, LONG as u64);
    }
    assert_eq!(index(&fixed, START + PIECE_BYTES, 100), Some(1));
    assert_eq!(index(&fixed, START + 2 * PIECE_BYTES, 100), None);
    assert_eq!(fixed.way(), "direct (io_uring, memory registered in part)");
    drop((long, owner));
    fixed.release(&mut table);
    assert_eq!(table.buffers(), []);
    assert_eq!(fixed.way(), "direct (io_uring, memory not registered)");
}

/// Kernels compare huge pages with all pages before them, so that each piece would take longer than the one before.
#[test]
fn a_piece_that_takes_long_is_the_last_one() {
    let (mut table, mut fixed) = (Limited::new(usize::MAX), FixedBuffers::default());
    let (long, _owner) = memory(START, LONG);
    table.takes = LONGEST_REGISTRATION;
    fixed.prepare(&mut table, &long, LONG as u64);
    table.takes = 2 * LONGEST_REGISTRATION;
    for _ in 0..3 {
        fixed.prepare(&mut table, &long, LONG as u64);
    }
    assert_eq!(table.buffers().len(), 2);
    assert_eq!(index(&fixed, START + PIECE_BYTES, 100), Some(1));
}

#[test]
fn longer_memory_than_the_table_has_places_for_is_registered_up_to_there() {
    let (mut table, mut fixed) = (Limited::new(usize::MAX), FixedBuffers::default());
    let (long, _owner) = memory(START, (MAX_PIECES + 1) * PIECE_BYTES);
    let (short, _short_owner) = memory(1000, 100);
    for _ in 0..MAX_PIECES + 3 {
        fixed.prepare(&mut table, &long, u64::MAX);
        fixed.prepare(&mut table, &short, 0);
    }
    assert_eq!(table.buffers().len(), MAX_PIECES + 1);
    assert_eq!(index(&fixed, START + MAX_PIECES * PIECE_BYTES, 1), None);
    assert_eq!(table.places[MAX_PIECES], Some(1000..1100));
}

/// The limit has room for one of two rings.
#[test]
fn memory_that_is_refused_does_not_cost_the_registration_before_it() {
    for mut table in [Limited::new(150), Limited::old(150)] {
        let mut fixed = FixedBuffers::default();
        let ((one, _), (other, other_owner)) = (memory(1000, 100), memory(2000, 100));
        fixed.prepare(&mut table, &one, 1000);
        assert_eq!(index(&fixed, 1000, 100), Some(0));
        for _ in 0..3 {
            fixed.prepare(&mut table, &other, 1000);
            assert_eq!(index(&fixed, 1000, 100), Some(0));
            assert_eq!(index(&fixed, 2000, 100), None);
            assert!(table.buffers().iter().eq([&(1000..1100)]));
        }
        // The test has one owner, and one is in `other`.
        assert_eq!(Arc::strong_count(&other_owner), 2, "it is held in vain");
    }
}

/// Before Linux 5.13, one memory is registered at a time, and at once.
#[test]
fn old_kernels_register_one_short_memory() {
    let (mut table, mut fixed) = (Limited::old(usize::MAX), FixedBuffers::default());
    let ((long, _), (short, owner)) = (
        memory(START, LONGEST_WHOLE + 1),
        memory(START, LONGEST_WHOLE),
    );
    fixed.prepare(&mut table, &long, u64::MAX);
    assert_eq!(table.buffers(), []);
    assert_eq!(fixed.way(), "direct (io_uring)");
    fixed.prepare(&mut table, &short, 0);
    assert_eq!(index(&fixed, START, LONGEST_WHOLE), Some(0));
    drop((short, owner));
    let (next, _owner) = memory(1000, 100);
    fixed.prepare(&mut table, &next, 0);
    assert_eq!(index(&fixed, 1000, 100), None);
    fixed.release(&mut table);
    fixed.prepare(&mut table, &next, 0);
    assert_eq!(index(&fixed, 1000, 100), Some(0));
}

/// A ring takes the place of the oldest one.
#[test]
fn memory_is_held_while_the_table_has_it() {
    let (mut fixed, mut table) = (FixedBuffers::default(), Limited::new(usize::MAX));
    let ((one, owner), (second, _)) = (memory(1000, 100), memory(3000, 100));
    fixed.prepare(&mut table, &one, 1000);
    fixed.prepare(&mut table, &second, 1000);
    drop(one);
    table.interruptions = 1;
    let (other, _) = memory(2000, 100);
    fixed.prepare(&mut table, &other, 1000);
    assert_eq!(table.buffers(), [1000..1100, 3000..3100]);
    assert_eq!(Arc::strong_count(&owner), 2);
    assert_eq!(index(&fixed, 1000, 100), Some(0));
    assert_eq!(index(&fixed, 2000, 100), None);
    fixed.prepare(&mut table, &other, 1000);
    assert_eq!(Arc::strong_count(&owner), 1);
    assert_eq!(table.buffers(), [2000..2100, 3000..3100]);
    assert_eq!(index(&fixed, 2000, 100), Some(0));
}

#[test]
fn memory_that_its_user_has_left_is_given_up() {
    let (mut fixed, mut table) = (FixedBuffers::default(), Limited::new(usize::MAX));
    let ((kept, kept_owner), (left, left_owner)) = (memory(1000, 100), memory(START, LONG));
    fixed.prepare(&mut table, &kept, 1000);
    for _ in 0..2 {
        fixed.prepare(&mut table, &left, LONG as u64);
    }
    let last = Arc::downgrade(&left_owner);
    drop(left);
    fixed.release(&mut table);
    assert_eq!(table.buffers().len(), 3, "its owner has it");
    drop(left_owner);
    table.interruptions = 1;
    fixed.release(&mut table);
    assert_eq!(last.strong_count(), 1, "the kernel has it");
    fixed.release(&mut table);
    assert!(table.buffers().iter().eq([&(1000..1100)]));
    assert_eq!(last.strong_count(), 0);
    assert_eq!(index(&fixed, 1000, 100), Some(0));
    assert_eq!(index(&fixed, START, 100), None);
    drop((kept, kept_owner));
    fixed.release(&mut table);
    assert!(table.buffers().is_empty() && fixed.memories.is_empty());
}

proptest! {
    /// With any refusals, the table of the kernel is what requests name, and all memory in it is held.
    #[test]
    fn requests_name_what_is_in_the_table(
        is_old: bool,
        most in 0..10 * PIECE_BYTES,
        uses in proptest::collection::vec((0..5_usize, 0..4 * PIECE_BYTES, 0..8_u32), 0..30),
    ) {
        let lengths = [10, PIECE_BYTES, PIECE_BYTES + 1, LONG, 5 * PIECE_BYTES];
        let memories: Vec<_> = lengths.into_iter().enumerate().map(|(at, length)| {
            memory((at + 1) * START, length)
        }).collect();
        let (mut fixed, mut table) = (FixedBuffers::default(), Limited { is_old, ..Limited::new(most) });
        for (number, bytes, interruption) in uses {
            table.interruptions = usize::from(interruption == 0);
            fixed.prepare(&mut table, &memories[number].0, bytes as u64);
            for (place, buffer) in table.places.iter().enumerate() {
                if let Some(buffer) = buffer {
                    let named = index(&fixed, buffer.start, buffer.len());
                    prop_assert_eq!(named, u16::try_from(place).ok());
                }
            }
            let held = fixed.memories.iter().map(|memory| memory.pieces).sum::<usize>();
            prop_assert_eq!(held, table.buffers().len());
            for (memory, owner) in &memories {
                let all = memory.addresses();
                let is_there = table.buffers().iter().any(|buffer| all.contains(&buffer.start));
                prop_assert_eq!(Arc::strong_count(owner), 2 + usize::from(is_there));
            }
        }
    }
}
