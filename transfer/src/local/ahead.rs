//! Has the files that a session will send next read from the disk while others are sent.
//!
//! Clients that pipeline say early what they want to fetch, and a disk that has several files to read is quicker than one
//! that is asked for each when the one before is gone. Nothing is kept of these files but their pages in the
//! kernel's memory: each is opened anew when its turn comes, so whatever happens to its name until then,
//! the read-ahead has no effect on the result. Files that are in memory gain nothing, so looking begins with a file that is
//! not, and ends after some that are.

use std::collections::VecDeque;
use std::io::IoSliceMut;
use std::os::fd::AsFd as _;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};

use gridhaul_storage::{OpenedFile, Storage};
use rustix::fs::Advice;
use rustix::io::{Errno, ReadWriteFlags};

use crate::sync::lock;
use crate::workers::Threads;

/// Files that are read ahead of the one that is sent, at most.
pub const LOOK_AHEAD_FILES: usize = 8;

/// How much of each is read, in bytes: what comes later the kernel reads ahead of the worker.
const AHEAD_BYTES: u64 = 4 * 1024 * 1024;

/// After a file that was not in memory, so many that are do not end the looking.
const WARM_FILES: u32 = 16;

/// What one session looks ahead for.
#[derive(Debug, Default)]
pub(crate) struct LookAhead {
    /// Files to look at until there is one that is not in memory.
    left: AtomicU32,
    queue: Mutex<Queue>,
}

#[derive(Debug, Default)]
struct Queue {
    waiting: VecDeque<PathBuf>,
    /// The last ones that were asked for, which are not asked for again.
    known: VecDeque<PathBuf>,
    /// A thread is at work.
    is_served: bool,
}

impl LookAhead {
    /// Whether it is worth while.
    pub(super) fn is_wanted(&self) -> bool {
        self.left.load(Ordering::Relaxed) > 0
    }

    /// A file was opened to be sent.
    pub(crate) fn note(&self, file: &OpenedFile) {
        if !self.is_wanted() && is_cold(file) {
            self.left.store(WARM_FILES, Ordering::Relaxed);
        }
    }

    /// Has `paths` read on a thread of the node, unless they were asked for lately.
    pub(super) fn begin(
        self: &Arc<Self>,
        paths: Vec<PathBuf>,
        storage: &Arc<dyn Storage>,
        threads: &Threads,
    ) {
        let mut queue = lock(&self.queue);
        for path in paths {
            queue.add(path);
        }
        if queue.waiting.is_empty() || queue.is_served {
            return;
        }
        queue.is_served = true;
        drop(queue);
        let (ahead, storage) = (self.clone(), storage.clone());
        let serve = Box::new(move || ahead.serve(&*storage));
        if threads.run(serve).is_err() {
            // Without a thread it takes longer, and that is all.
            *lock(&self.queue) = Queue::default();
        }
    }

    fn serve(&self, storage: &dyn Storage) {
        while let Some(path) = lock(&self.queue).next() {
            // Why it cannot be opened, the client hears when its turn comes.
            if let Ok(file) = storage.open_read(&path) {
                self.read(&file);
            }
        }
    }

    fn read(&self, file: &OpenedFile) {
        if is_cold(file) {
            self.left.store(WARM_FILES, Ordering::Relaxed);
            let length = file.size_at_open().min(AHEAD_BYTES);
            // It is a hint.
            let _ = rustix::fs::fadvise(file, 0, length.try_into().ok(), Advice::WillNeed);
        } else {
            let less = |left: u32| left.checked_sub(1);
            let _ = self
                .left
                .fetch_update(Ordering::Relaxed, Ordering::Relaxed, less);
        }
    }
}

impl Queue {
    fn add(&mut self, path: PathBuf) {
        if self.known.contains(&path) {
            return;
        }
        if self.known.len() >= 2 * LOOK_AHEAD_FILES {
            self.known.pop_front();
        }
        if self.waiting.len() >= LOOK_AHEAD_FILES {
            // Its turn may have come already.
            self.waiting.pop_front();
        }
        self.known.push_back(path.clone());
        self.waiting.push_back(path);
    }

    /// The next one; the thread ends without.
    fn next(&mut self) -> Option<PathBuf> {
        let path = self.waiting.pop_front();
        self.is_served = path.is_some();
        path
    }
}

/// Whether the first bytes of a file must be read from the disk, which the kernel then begins to do. File systems
/// that cannot tell have everything in memory, or on another machine.
fn is_cold(file: &OpenedFile) -> bool {
    let mut byte = [0];
    // preadv2(2): with RWF_NOWAIT, EAGAIN if the data is not there at once.
    let read = rustix::io::preadv2(
        file.as_fd(),
        &mut [IoSliceMut::new(&mut byte)],
        0,
        ReadWriteFlags::NOWAIT,
    );
    read == Err(Errno::AGAIN)
}

#[cfg(test)]
mod tests {
    use std::fs::{self, File};
    use std::path::Path;
    use std::time::{Duration, Instant};

    use gridhaul_storage::{PosixOptions, PosixStorage};
    use tempfile::TempDir;

    use super::*;

    struct Fixture {
        directory: TempDir,
        storage: Arc<dyn Storage>,
        ahead: Arc<LookAhead>,
        threads: Threads,
    }

    impl Fixture {
        fn new() -> Self {
            let directory = TempDir::new().expect("a directory");
            let storage = PosixStorage::open(directory.path(), PosixOptions::default());
            Self {
                storage: Arc::new(storage.expect("it is there")),
                directory,
                ahead: Arc::default(),
                threads: Threads::default(),
            }
        }

        fn open(&self, name: &str) -> OpenedFile {
            self.storage
                .open_read(Path::new(name))
                .expect("it is there")
        }

        /// Makes a file whose bytes are on the disk only, where there is a disk.
        fn make_cold(&self, name: &str) {
            let path = self.directory.path().join(name);
            fs::write(&path, vec![1; 100_000]).expect("room");
            let file = File::open(&path).expect("it is there");
            file.sync_all().expect("written");
            let _ = rustix::fs::fadvise(&file, 0, None, Advice::DontNeed);
        }

        fn has_disk(&self) -> bool {
            // To look has the kernel begin to read.
            let has = self.comes_true_of_a_cold_file(|name| is_cold(&self.open(name)));
            if !has {
                eprintln!("skipped: temporary files are always in memory here");
            }
            has
        }

        /// Whether `what` comes true of one of some files that were made cold: the kernel keeps pages of one that is busy
        /// elsewhere, posix_fadvise(2).
        fn comes_true_of_a_cold_file(&self, what: impl Fn(&str) -> bool) -> bool {
            (0..100).any(|number| {
                let name = format!("cold-{number}");
                self.make_cold(&name);
                what(&name)
            })
        }

        fn begin(&self, names: &[&str]) {
            let paths = names.iter().map(PathBuf::from).collect();
            self.ahead.begin(paths, &self.storage, &self.threads);
        }

        fn wait_until(&self, done: impl Fn() -> bool) {
            let begun = Instant::now();
            while !done() {
                assert!(
                    begun.elapsed() < Duration::from_secs(60),
                    "it never happens"
                );
                std::thread::yield_now();
            }
        }

        fn wait_until_idle(&self) {
            self.wait_until(|| !lock(&self.ahead.queue).is_served);
        }
    }

    #[test]
    fn a_file_on_the_disk_begins_it() {
        let fixture = Fixture::new();
        if !fixture.has_disk() {
            return;
        }
        assert!(!fixture.ahead.is_wanted());
        assert!(fixture.comes_true_of_a_cold_file(|name| {
            fixture.ahead.note(&fixture.open(name));
            fixture.ahead.is_wanted()
        }));
    }

    #[test]
    fn files_on_the_disk_are_read_and_those_that_are_missing_passed_over() {
        let fixture = Fixture::new();
        if !fixture.has_disk() {
            return;
        }
        assert!(fixture.comes_true_of_a_cold_file(|name| {
            fixture.ahead.left.store(1, Ordering::Relaxed);
            fixture.begin(&["missing", name]);
            fixture.wait_until_idle();
            let was_cold = fixture.ahead.left.load(Ordering::Relaxed) == WARM_FILES;
            if was_cold {
                fixture.wait_until(|| !is_cold(&fixture.open(name)));
            }
            was_cold
        }));
    }

    #[test]
    fn files_in_memory_end_it() {
        let fixture = Fixture::new();
        fixture.ahead.left.store(WARM_FILES, Ordering::Relaxed);
        for number in 0..WARM_FILES {
            assert!(fixture.ahead.is_wanted());
            let name = number.to_string();
            fs::write(fixture.directory.path().join(&name), "x").expect("room");
            // Who asks twice is served once.
            fixture.begin(&[&name, &name]);
            fixture.wait_until_idle();
        }
        assert!(!fixture.ahead.is_wanted());
        fixture.ahead.note(&fixture.open("0"));
        assert!(!fixture.ahead.is_wanted());
    }

    #[test]
    fn what_waits_is_bounded() {
        let mut queue = Queue::default();
        for number in 0..100 {
            queue.add(PathBuf::from(number.to_string()));
        }
        assert_eq!(queue.known.len(), 2 * LOOK_AHEAD_FILES);
        let first = 100 - LOOK_AHEAD_FILES;
        for number in first..100 {
            assert_eq!(queue.next(), Some(PathBuf::from(number.to_string())));
        }
        assert_eq!(queue.next(), None);
    }
}
