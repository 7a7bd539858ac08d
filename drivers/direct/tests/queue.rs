//! Both engines over real files.

use std::fs::{File, OpenOptions};
use std::os::fd::AsFd as _;
use std::os::unix::fs::{FileExt as _, OpenOptionsExt as _};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::ptr::NonNull;
use std::sync::Arc;

use gridhaul_direct::test_files::pattern;
use gridhaul_direct::{
    Call, Engine, EngineChoice, Files, LastingMemory, PieceQueue, Request, Target, Way,
};
use proptest::prelude::*;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::OFlags;

const CHOICES: [EngineChoice; 2] = [EngineChoice::Best, EngineChoice::Threads];

const FILE_BYTES: usize = 300_000;

fn request(call: Call, offset: usize, start: usize, length: usize) -> Request {
    Request {
        call,
        way: Way::Direct,
        offset: offset as u64,
        start,
        length,
    }
}

/// Requests of one slot after the other: a read or a write, the offset in the file, the offset in the piece, the length.
fn requests() -> impl Strategy<Value = Vec<(bool, usize, usize, usize)>> {
    let one = (
        any::<bool>(),
        0..FILE_BYTES + 5000,
        0..5000_usize,
        0..5000_usize,
    );
    proptest::collection::vec(one, 1..60)
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(40) })]

    /// With any requests in flight at the same time, each one moves what one call would. Requests in flight do not overlap in the
    /// file: each slot has its own part.
    #[test]
    fn requests_move_what_single_calls_move(requests in requests(), slots in 1_usize..8, threads: bool) {
        const PIECE_BYTES: usize = 10_000;
        let choice = CHOICES[usize::from(threads)];
        let file = tempfile::tempfile().unwrap();
        let mut model = pattern(FILE_BYTES);
        file.write_all_at(&model, 0).unwrap();
        let mut memory = vec![0_u8; slots * PIECE_BYTES];
        let mut expected = memory.clone();
        let pieces = memory.chunks_mut(PIECE_BYTES).collect();
        let part_bytes = FILE_BYTES / slots;
        let mut engine = Engine::open(choice);
        let outcome = engine.with_pieces(file.as_fd(), pieces, |queue| {
            let mut in_flight: Vec<Option<(Request, usize)>> = vec![None; slots];
            let finish = |queue: &mut dyn PieceQueue, slot: usize, flight: &mut Option<(Request, usize)>| {
                if let Some((_, length)) = flight.take() {
                    assert_eq!(queue.complete(slot), Ok(length));
                }
            };
            for (number, (is_read, offset, start, length)) in requests.into_iter().enumerate() {
                let slot = number % slots;
                finish(queue, slot, &mut in_flight[slot]);
                let offset = slot * part_bytes + offset % part_bytes;
                let length = length.min((slot + 1) * part_bytes - offset);
                let here = slot * PIECE_BYTES + start;
                let call = if is_read { Call::Read } else { Call::Write };
                if is_read {
                    expected[here..here + length].copy_from_slice(&model[offset..offset + length]);
                } else {
                    queue.memory(slot)[start..start + length].fill(0x55);
                    expected[here..here + length].fill(0x55);
                    model[offset..offset + length].fill(0x55);
                }
                let request = request(call, offset, start, length);
                queue.submit(slot, request);
                in_flight[slot] = Some((request, length));
            }
            for (slot, flight) in in_flight.iter_mut().enumerate().rev() {
                finish(queue, slot, flight);
            }
        });
        outcome.unwrap();
        prop_assert!(memory == expected);
        let mut content = vec![0; model.len()];
        file.read_exact_at(&mut content, 0).unwrap();
        prop_assert!(content == model);
    }
}

#[test]
fn the_descriptor_is_readable_after_a_request() {
    let file = tempfile::tempfile().unwrap();
    file.write_all_at(b"content", 0).unwrap();
    for choice in CHOICES {
        let (mut one, mut other) = ([0; 4], [0; 4]);
        let pieces: Vec<&mut [u8]> = vec![&mut one, &mut other];
        let outcome = Engine::open(choice).with_pieces(file.as_fd(), pieces, |queue| {
            for round in 0..100 {
                let slot = round % 2;
                assert_eq!(queue.result(slot), None);
                queue.submit(slot, request(Call::Read, 1, 0, 4));
                let result = loop {
                    let descriptor = queue.descriptor().unwrap();
                    let mut ready = [PollFd::from_borrowed_fd(descriptor, PollFlags::IN)];
                    let limit = Timespec::try_from(std::time::Duration::from_secs(20)).unwrap();
                    let count = rustix::io::retry_on_intr(|| poll(&mut ready, Some(&limit)));
                    assert_eq!(count, Ok(1), "{choice:?}: nothing completes in 20 s");
                    queue.poll();
                    if let Some(result) = queue.result(slot) {
                        break result;
                    }
                };
                assert_eq!(result, Ok(4));
                assert_eq!(queue.memory(slot), b"onte");
            }
        });
        outcome.unwrap();
    }
}

/// The memory may be used for something else afterwards.
#[test]
fn no_request_outlives_a_user_that_panics() {
    let file = tempfile::tempfile().unwrap();
    file.write_all_at(&pattern(8 << 20), 0).unwrap();
    for choice in CHOICES {
        for _ in 0..20 {
            let mut memory = vec![0; 8 << 20];
            let pieces = memory.chunks_mut(1 << 20).collect();
            let mut engine = Engine::open(choice);
            let failed = catch_unwind(AssertUnwindSafe(|| {
                engine.with_pieces(file.as_fd(), pieces, |queue| {
                    for slot in 0..8 {
                        queue.submit(slot, request(Call::Read, slot << 20, 0, 1 << 20));
                    }
                    std::panic::resume_unwind(Box::new("the user fails"));
                })
            }));
            assert!(failed.is_err());
            // Each request has completed or was given up, and none writes later.
            let content = pattern(8 << 20);
            for (read, expected) in memory.chunks(1 << 20).zip(content.chunks(1 << 20)) {
                assert!(read == expected || read.iter().all(|byte| *byte == 0));
            }
            memory.fill(0xee);
            assert!(memory.iter().all(|byte| *byte == 0xee));
        }
    }
}

#[test]
fn errors_are_those_of_the_calls() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("file");
    std::fs::write(&path, pattern(10_000)).unwrap();
    let read_only = File::open(&path).unwrap();
    for choice in CHOICES {
        let mut memory = vec![0; 4096];
        let pieces: Vec<&mut [u8]> = vec![&mut memory];
        let outcome = Engine::open(choice).with_pieces(read_only.as_fd(), pieces, |queue| {
            queue.submit(0, request(Call::Write, 0, 0, 4096));
            assert_eq!(queue.complete(0), Err(rustix::io::Errno::BADF));
            queue.submit(0, request(Call::Read, 9000, 0, 4096));
            assert_eq!(queue.complete(0), Ok(1000), "up to the end of the file");
            queue.submit(0, request(Call::Read, 10_000, 0, 4096));
            assert_eq!(queue.complete(0), Ok(0));
            assert_eq!(queue.complete(0), Ok(0), "no request is in flight");
        });
        outcome.unwrap();
    }
}

/// Whole blocks at aligned addresses, in a file that is open with `O_DIRECT`.
#[test]
fn whole_blocks_go_past_the_page_cache() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("file");
    std::fs::write(&path, pattern(64 << 10)).unwrap();
    let Some(direct) = open_direct(&path) else {
        return;
    };
    let block = gridhaul_direct::block_bytes(direct.as_fd()).expect("direct I/O");
    assert!(block.is_power_of_two() && block >= 4096);
    for choice in CHOICES {
        let mut memory = vec![0; 64 << 10];
        let skipped = memory.as_ptr().align_offset(block);
        let pieces: Vec<&mut [u8]> = vec![&mut memory[skipped..]];
        let outcome = Engine::open(choice).with_pieces(direct.as_fd(), pieces, |queue| {
            queue.submit(0, request(Call::Read, block, 0, 2 * block));
            assert_eq!(queue.complete(0), Ok(2 * block));
            let expected = &pattern(64 << 10)[block..3 * block];
            assert!(&queue.memory(0)[..2 * block] == expected);
        });
        outcome.unwrap();
    }
}

fn open_direct(path: &Path) -> Option<File> {
    let flags = i32::try_from(OFlags::DIRECT.bits()).unwrap();
    let opened = OpenOptions::new().read(true).custom_flags(flags).open(path);
    if let Err(error) = &opened {
        eprintln!("{}: no direct I/O: {error}", path.display());
    }
    opened.ok()
}

/// Pages that requests and the test use through pointers only.
#[derive(Debug)]
struct Pages(NonNull<u8>);

const PAGES_BYTES: usize = 64 << 10;

// SAFETY: all access is through pointers, by one thread of a test at a time.
unsafe impl Send for Pages {}
// SAFETY: as above.
unsafe impl Sync for Pages {}

impl Pages {
    fn new() -> Arc<Self> {
        // SAFETY: the layout has bytes.
        let start = unsafe { std::alloc::alloc_zeroed(Self::layout()) };
        Arc::new(Self(NonNull::new(start).unwrap()))
    }

    fn layout() -> std::alloc::Layout {
        std::alloc::Layout::from_size_align(PAGES_BYTES, 4096).unwrap()
    }

    fn content(&self) -> Vec<u8> {
        let mut content = vec![0; PAGES_BYTES];
        // SAFETY: both are that long, and no request is in flight.
        unsafe { content.as_mut_ptr().copy_from(self.0.as_ptr(), PAGES_BYTES) };
        content
    }
}

impl Drop for Pages {
    fn drop(&mut self) {
        // SAFETY: it was allocated with this layout.
        unsafe { std::alloc::dealloc(self.0.as_ptr(), Self::layout()) };
    }
}

struct Shared(Arc<Pages>);

// SAFETY: this, or the owner of the lasting memory, keeps the pages, whose bounds are checked.
unsafe impl Target for Shared {
    fn pointer(&self, _: usize, request: &Request) -> *mut u8 {
        assert!(request.start + request.length <= PAGES_BYTES);
        // SAFETY: it is within the pages.
        unsafe { self.0.0.as_ptr().add(request.start) }
    }

    fn lasting(&self) -> Option<LastingMemory> {
        let owner = Arc::clone(&self.0);
        Some(LastingMemory::new(self.0.0.as_ptr(), PAGES_BYTES, owner))
    }
}

/// Reads the first bytes of a file into the pages, with a request for each quarter.
fn read_quarters(engine: &mut Engine, file: &File, pages: &Arc<Pages>, bytes: u64) {
    const QUARTER: usize = PAGES_BYTES / 4;
    let files = Files {
        direct: file.as_fd(),
        cached: file.as_fd(),
    };
    let outcome = engine.with_memory(files, Shared(Arc::clone(pages)), 4, bytes, |queue| {
        for slot in 0..4 {
            let at = slot * QUARTER;
            queue.submit(slot, request(Call::Read, at, at, QUARTER));
        }
        for slot in 0..4 {
            assert_eq!(queue.complete(slot), Ok(QUARTER));
        }
    });
    outcome.unwrap();
}

/// An engine registers the memory of long transfers, and then holds it until it is dropped.
#[test]
fn registered_memory_has_the_bytes_of_the_file_and_outlives_its_user() {
    let file = tempfile::tempfile().unwrap();
    let content = pattern(PAGES_BYTES);
    file.write_all_at(&content, 0).unwrap();
    for choice in CHOICES {
        let mut engine = Engine::open(choice);
        let is_ring = engine.way() == "direct (io_uring)";
        // A short transfer, which registers nothing, and then more memories than a ring has at a time.
        let short = Pages::new();
        read_quarters(&mut engine, &file, &short, 1000);
        assert_eq!(Arc::strong_count(&short), 1);
        for _ in 0..3 {
            let pages = Pages::new();
            for _ in 0..3 {
                read_quarters(&mut engine, &file, &pages, PAGES_BYTES as u64);
                assert!(pages.content() == content);
            }
            let kept = Arc::downgrade(&pages);
            drop(pages);
            // A limit on locked memory may forbid it (RLIMIT_MEMLOCK).
            let is_kept = kept.upgrade().is_some();
            let is_shown = engine.way() == "direct (io_uring, registered memory)";
            assert_eq!(is_shown, is_kept, "{}", engine.way());
            assert!(is_ring || !is_kept);
            if is_ring && !is_kept {
                eprintln!("the kernel does not register 64 KiB");
            }
        }
        let last = Pages::new();
        read_quarters(&mut engine, &file, &last, PAGES_BYTES as u64);
        drop(engine);
        assert_eq!(Arc::strong_count(&last), 1);
    }
}

/// An engine gives up what its user has left, and keeps what its user still has.
#[test]
fn registered_memory_is_released_when_its_user_has_left_it() {
    let file = tempfile::tempfile().unwrap();
    file.write_all_at(&pattern(PAGES_BYTES), 0).unwrap();
    for choice in CHOICES {
        let (mut engine, used, left) = (Engine::open(choice), Pages::new(), Pages::new());
        for pages in [&used, &left] {
            read_quarters(&mut engine, &file, pages, PAGES_BYTES as u64);
        }
        let registered = Arc::strong_count(&used);
        let last = Arc::downgrade(&left);
        engine.release();
        drop(left);
        engine.release();
        assert_eq!(last.strong_count(), 0);
        assert_eq!(Arc::strong_count(&used), registered);
        read_quarters(&mut engine, &file, &used, PAGES_BYTES as u64);
        assert!(used.content() == pattern(PAGES_BYTES));
    }
}

/// Requests write from registered memory what it holds at that time.
#[test]
fn bytes_are_written_from_registered_memory() {
    let file = tempfile::tempfile().unwrap();
    let source = tempfile::tempfile().unwrap();
    source.write_all_at(&pattern(PAGES_BYTES), 0).unwrap();
    let files = Files {
        direct: file.as_fd(),
        cached: file.as_fd(),
    };
    for choice in CHOICES {
        let (mut engine, pages) = (Engine::open(choice), Pages::new());
        read_quarters(&mut engine, &source, &pages, PAGES_BYTES as u64);
        let outcome = engine.with_memory(files, Shared(Arc::clone(&pages)), 1, 0, |queue| {
            queue.submit(0, request(Call::Write, 3, 5, 1000));
            assert_eq!(queue.complete(0), Ok(1000));
        });
        outcome.unwrap();
        let mut written = vec![0; 1000];
        file.read_exact_at(&mut written, 3).unwrap();
        assert!(written == pattern(PAGES_BYTES)[5..1005]);
    }
}
