//! Reads ahead the files that a session will send next.
//!
//! Clients that pipeline name several files early, and a disk is faster with several files to read than with one request
//! at a time. Only the page cache keeps anything of these files: each is opened again for its transfer, so the read-ahead
//! has no effect on the result, even if the name stands for another file by then. Files in the page cache gain nothing,
//! so looking ahead begins with a file that is not in the cache, and ends after several that are.

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

/// The maximum number of files that are read ahead.
pub const LOOK_AHEAD_FILES: usize = 8;

/// How much of each file is read, in bytes: the kernel's own read-ahead covers the rest.
const AHEAD_BYTES: u64 = 4 * 1024 * 1024;

/// After a file that was not cached, looking ahead ends with this many cached ones.
const WARM_FILES: u32 = 16;

/// The read-ahead of one session.
#[derive(Debug, Default)]
pub(crate) struct LookAhead {
    /// How many more cached files end the looking ahead; 0 while it is off.
    remaining: AtomicU32,
    queue: Mutex<Queue>,
}

#[derive(Debug, Default)]
struct Queue {
    waiting: VecDeque<PathBuf>,
    /// The latest requested files, which are not read again.
    known: VecDeque<PathBuf>,
    /// A thread serves the queue.
    is_served: bool,
}

impl LookAhead {
    /// Whether reading ahead is likely to help.
    pub(crate) fn is_wanted(&self) -> bool {
        self.remaining.load(Ordering::Relaxed) > 0
    }

    /// Records that a file was opened for sending; one that is not cached turns looking ahead on.
    pub(crate) fn note(&self, file: &OpenedFile) {
        if !self.is_wanted() && is_cold(file) {
            self.remaining.store(WARM_FILES, Ordering::Relaxed);
        }
    }

    /// Reads `paths` on a thread of the node, except those requested recently.
    pub(crate) fn begin(
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
        if threads.run(move || ahead.serve(&*storage)).is_err() {
            // Without a thread the files are not read ahead, which only costs time.
            *lock(&self.queue) = Queue::default();
        }
    }

    fn serve(&self, storage: &dyn Storage) {
        while let Some(path) = lock(&self.queue).next() {
            // An error is reported by the transfer that needs the file.
            if let Ok(file) = storage.open_read(&path) {
                self.read(&file);
            }
        }
    }

    fn read(&self, file: &OpenedFile) {
        if is_cold(file) {
            self.remaining.store(WARM_FILES, Ordering::Relaxed);
            let length = file.size_at_open().min(AHEAD_BYTES);
            // A hint: failure has no effect on the transfer.
            let _ = rustix::fs::fadvise(file, 0, length.try_into().ok(), Advice::WillNeed);
        } else {
            let less = |left: u32| left.checked_sub(1);
            let _ = self
                .remaining
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
            // The oldest file may be under way already.
            self.waiting.pop_front();
        }
        self.known.push_back(path.clone());
        self.waiting.push_back(path);
    }

    /// The next file to read; `None` ends the thread.
    fn next(&mut self) -> Option<PathBuf> {
        let path = self.waiting.pop_front();
        self.is_served = path.is_some();
        path
    }
}

/// Whether the first bytes of a file are not in the page cache; if so, the kernel begins to read them. File systems
/// without this call keep their files in memory or on another machine.
fn is_cold(file: &OpenedFile) -> bool {
    let mut byte = [0];
    // preadv2(2): with RWF_NOWAIT, EAGAIN if the data is not immediately available.
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

        /// Makes a file that is not in the page cache, where temporary files are on a disk.
        fn make_cold(&self, name: &str) {
            let path = self.directory.path().join(name);
            fs::write(&path, vec![1; 100_000]).expect("room");
            let file = File::open(&path).expect("it is there");
            file.sync_all().expect("written");
            let _ = rustix::fs::fadvise(&file, 0, None, Advice::DontNeed);
        }

        fn has_disk(&self) -> bool {
            // The check itself starts a read, so each check needs another file.
            let has = self.holds_for_a_cold_file(|name| is_cold(&self.open(name)));
            if !has {
                gridhaul_skip::skipped("temporary files are always in memory here");
            }
            has
        }

        /// Whether `what` holds for one of several cold files: the kernel may keep pages that are in use, see
        /// posix_fadvise(2).
        fn holds_for_a_cold_file(&self, what: impl Fn(&str) -> bool) -> bool {
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
                    "it does not happen"
                );
                std::thread::yield_now();
            }
        }

        fn wait_until_idle(&self) {
            self.wait_until(|| !lock(&self.ahead.queue).is_served);
        }
    }

    #[test]
    fn an_uncached_file_turns_looking_ahead_on() {
        let fixture = Fixture::new();
        if !fixture.has_disk() {
            return;
        }
        assert!(!fixture.ahead.is_wanted());
        assert!(fixture.holds_for_a_cold_file(|name| {
            fixture.ahead.note(&fixture.open(name));
            fixture.ahead.is_wanted()
        }));
    }

    #[test]
    fn uncached_files_are_read_and_missing_ones_skipped() {
        let fixture = Fixture::new();
        if !fixture.has_disk() {
            return;
        }
        assert!(fixture.holds_for_a_cold_file(|name| {
            fixture.ahead.remaining.store(1, Ordering::Relaxed);
            fixture.begin(&["missing", name]);
            fixture.wait_until_idle();
            let was_cold = fixture.ahead.remaining.load(Ordering::Relaxed) == WARM_FILES;
            if was_cold {
                fixture.wait_until(|| !is_cold(&fixture.open(name)));
            }
            was_cold
        }));
    }

    #[test]
    fn cached_files_turn_looking_ahead_off() {
        let fixture = Fixture::new();
        fixture.ahead.remaining.store(WARM_FILES, Ordering::Relaxed);
        for number in 0..WARM_FILES {
            assert!(fixture.ahead.is_wanted());
            let name = number.to_string();
            fs::write(fixture.directory.path().join(&name), "x").expect("room");
            // A file that is named twice is read once.
            fixture.begin(&[&name, &name]);
            fixture.wait_until_idle();
        }
        assert!(!fixture.ahead.is_wanted());
        fixture.ahead.note(&fixture.open("0"));
        assert!(!fixture.ahead.is_wanted());
    }

    #[test]
    fn the_queue_is_bounded() {
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
