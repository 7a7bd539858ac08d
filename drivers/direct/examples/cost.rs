//! What a request costs the thread that submits it: processor time for each of many requests, with 32 in flight, and the bytes that one
//! thread could move with it. The disk may be slow: the time that the thread sleeps does not count, nor what the kernel does for
//! requests on other threads and in interrupts.
//!
//! `cargo run --release -p gridhaul-direct --example cost -- [directory]`, on a file system with direct I/O.

use std::cell::UnsafeCell;
use std::fs::{File, OpenOptions};
use std::os::fd::AsFd as _;
use std::os::unix::fs::{FileExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use gridhaul_direct::{
    Call, Engine, EngineChoice, Files, IoQueue, LastingMemory, MAX_REQUESTS, Request, Target, Way,
};
use gridhaul_stack::measured::cpu_time;
use rustix::fs::{Advice, OFlags, fadvise};

const LENGTHS: [usize; 3] = [64 << 10, 256 << 10, 1 << 20];

const FILE_BYTES: usize = 512 << 20;

const MEMORY_BYTES: usize = MAX_REQUESTS * LENGTHS[2];

const PAGE: usize = 4096;

/// Pages that only requests use.
#[repr(C, align(4096))]
struct Page(UnsafeCell<[u8; PAGE]>);

// SAFETY: nothing but the kernel accesses them.
unsafe impl Sync for Page {}

#[derive(Clone)]
struct Memory {
    pages: Arc<[Page]>,
    is_lasting: bool,
}

// SAFETY: the pages live as long as this, or the owner of the lasting memory, which checks the bounds of requests.
unsafe impl Target for Memory {
    fn pointer(&self, _: usize, request: &Request) -> *mut u8 {
        assert!(
            request.start.is_multiple_of(PAGE) && request.length <= MEMORY_BYTES - request.start
        );
        self.pages[request.start / PAGE].0.get().cast()
    }

    fn lasting(&self) -> Option<LastingMemory> {
        let start = self.pages[0].0.get().cast();
        let owner: Arc<[Page]> = Arc::clone(&self.pages);
        self.is_lasting
            .then(|| LastingMemory::new(start, MEMORY_BYTES, Arc::new(owner)))
    }
}

/// Moves a file once, in requests of `length` bytes.
fn move_file(queue: &mut dyn IoQueue, call: Call, way: Way, length: usize) {
    let slots = queue.slots();
    for number in 0..FILE_BYTES / length {
        let slot = number % slots;
        if number >= slots {
            assert_eq!(queue.complete(slot), Ok(length));
        }
        let request = Request {
            call,
            way,
            offset: (number * length) as u64,
            start: slot * length,
            length,
        };
        queue.submit(slot, request);
    }
    for slot in 0..slots {
        assert_eq!(queue.complete(slot), Ok(length));
    }
}

struct Case {
    name: &'static str,
    choice: EngineChoice,
    way: Way,
    is_lasting: bool,
}

const CASES: [Case; 4] = [
    Case {
        name: "past the page cache, io_uring, registered memory",
        choice: EngineChoice::Best,
        way: Way::Direct,
        is_lasting: true,
    },
    Case {
        name: "past the page cache, io_uring",
        choice: EngineChoice::Best,
        way: Way::Direct,
        is_lasting: false,
    },
    Case {
        name: "past the page cache, threads",
        choice: EngineChoice::Threads,
        way: Way::Direct,
        is_lasting: false,
    },
    Case {
        name: "page cache, threads",
        choice: EngineChoice::Threads,
        way: Way::Cached,
        is_lasting: false,
    },
];

fn measure(file: &File, direct: &File, case: &Case, call: Call, length: usize) {
    let files = Files {
        direct: direct.as_fd(),
        cached: file.as_fd(),
    };
    let pages = (0..MEMORY_BYTES / PAGE).map(|_| Page(UnsafeCell::new([1; PAGE])));
    let memory = Memory {
        pages: pages.collect(),
        is_lasting: case.is_lasting,
    };
    let mut engine = Engine::open(case.choice);
    file.sync_all().expect("it is written");
    fadvise(file, 0, None, Advice::DontNeed).expect("pages of the file are given up");
    let (begin, before) = (Instant::now(), cpu_time());
    engine
        .with_memory(files, memory, MAX_REQUESTS, FILE_BYTES as u64, |queue| {
            move_file(queue, call, case.way, length);
        })
        .expect("an engine");
    let (elapsed, thread) = (begin.elapsed(), cpu_time() - before);
    let helpers = engine.take_helper_time();
    let requests = (FILE_BYTES / length) as f64;
    let each = |time: Duration| time.as_secs_f64() * 1e6 / requests;
    println!(
        "{call:?} {:4} KiB, {:48} {:7.1} µs of the thread, {:7.1} of helpers; {:6.0} MB/s, with one processor {:8.0} MB/s",
        length >> 10,
        case.name,
        each(thread),
        each(helpers),
        FILE_BYTES as f64 / 1e6 / elapsed.as_secs_f64(),
        FILE_BYTES as f64 / 1e6 / (thread + helpers).as_secs_f64(),
    );
}

fn main() {
    let directory = std::env::args_os().nth(1);
    let directory = directory.map_or_else(std::env::temp_dir, PathBuf::from);
    let directory = tempfile::tempdir_in(directory).expect("a directory");
    let path = directory.path().join("file");
    let file = create(&path);
    let flags = i32::try_from(OFlags::DIRECT.bits()).expect("flags");
    let mut options = OpenOptions::new();
    options.read(true).write(true).custom_flags(flags);
    let direct = options.open(&path).expect("a file system with direct I/O");
    for call in [Call::Write, Call::Read] {
        for length in LENGTHS {
            for case in &CASES {
                measure(&file, &direct, case, call, length);
            }
        }
    }
}

/// A file without holes.
fn create(path: &Path) -> File {
    let mut options = OpenOptions::new();
    let file = options.read(true).write(true).create_new(true).open(path);
    let file = file.expect("a new file");
    let bytes = vec![1; LENGTHS[2]];
    for at in (0..FILE_BYTES).step_by(bytes.len()) {
        file.write_all_at(&bytes, at as u64).expect("it is written");
    }
    file
}
