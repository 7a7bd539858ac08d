//! The lines of one directory of any size.
//!
//! A directory is read and sorted in runs: people and programs expect sorted names, but sorting a million of them would
//! not run in constant memory. Reading the metadata of every entry takes most of the time. So helper threads work on a
//! large directory: they read names one after another, and metadata in parallel. Runs stay in order, and few of them wait
//! to be sent. A helper ends when enough runs wait, so that a listing with a slow reader holds no thread; fetching the
//! next run starts helpers again. A directory is read ahead only with a share of the runs that may wait in the whole
//! server. Otherwise the reader's thread makes one run after another.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Receiver, SyncSender};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;

use gridhaul_shares::Grant;
use gridhaul_storage::{DirectoryRun, DirectoryStream, StorageError};
use rustix::io::Errno;

use super::lines::{DirectoryLines, Pieces};
use crate::threads::Listers;

/// How many entries are sorted together. A directory with fewer needs no helpers.
const RUN_ENTRIES: usize = 4096;

/// The most runs that wait to be sent, or are being made. Each has some hundred kilobytes of lines.
const WAITING_RUNS: usize = 6;

/// The most threads that help with one directory. More than two pay off if metadata comes over a network.
const HELPERS: usize = 4;

/// The lines of a directory, one run after another.
pub(crate) struct Runs {
    lines: Arc<DirectoryLines>,
    listers: Listers,
    state: State,
}

enum State {
    Alone(Box<dyn DirectoryStream>),
    Helped {
        shared: Arc<Shared>,
        /// The share for the lines that wait, also while no thread helps.
        _lines: Grant,
    },
    Ended,
}

type Made = Result<Pieces, StorageError>;

/// A run that a helper makes.
type Waiting = Receiver<Made>;

/// A directory that several threads read.
struct Shared {
    source: Mutex<Source>,
    /// The reader has gone and needs no more runs.
    given_up: AtomicBool,
}

struct Source {
    /// `None` at the end.
    stream: Option<Box<dyn DirectoryStream>>,
    /// Runs in their order.
    runs: VecDeque<Waiting>,
    helpers: usize,
}

impl Runs {
    pub(crate) fn new(
        stream: Box<dyn DirectoryStream>,
        lines: DirectoryLines,
        listers: Listers,
    ) -> Self {
        Self {
            lines: Arc::new(lines),
            listers,
            state: State::Alone(stream),
        }
    }

    /// The next run, which may have no lines. `None` at the end.
    pub(crate) fn next_run(&mut self) -> Option<Made> {
        let made = match &mut self.state {
            State::Alone(stream) => match stream.next_run(RUN_ENTRIES) {
                Ok(Some(mut run)) => {
                    if run.count() >= RUN_ENTRIES {
                        self.share();
                    }
                    Some(self.lines.of(&mut *run))
                }
                Ok(None) => None,
                Err(error) => Some(Err(error)),
            },
            State::Helped { shared, .. } => {
                let shared = Arc::clone(shared);
                self.next_helped(&shared)
            }
            State::Ended => None,
        };
        if !matches!(made, Some(Ok(_))) {
            self.state = State::Ended;
        }
        made
    }

    /// Starts helpers for the rest of the directory, if the server has a share for lines that wait.
    fn share(&mut self) {
        let Some(lines) = self.listers.helper() else {
            return;
        };
        let State::Alone(stream) = std::mem::replace(&mut self.state, State::Ended) else {
            return;
        };
        let source = Source {
            stream: Some(stream),
            runs: VecDeque::new(),
            helpers: 0,
        };
        let shared = Arc::new(Shared {
            source: Mutex::new(source),
            given_up: AtomicBool::new(false),
        });
        self.call_helpers(&shared);
        self.state = State::Helped {
            shared,
            _lines: lines,
        };
    }

    /// The next run: from a helper, or made here if no helper has one.
    fn next_helped(&self, shared: &Arc<Shared>) -> Option<Made> {
        let mut source = shared.lock();
        if let Some(first) = source.runs.pop_front() {
            drop(source);
            self.call_helpers(shared);
            // A helper that panicked has written its message to standard error.
            let made = first.recv();
            return Some(made.unwrap_or_else(|_| Err(StorageError::new("thread", Errno::IO))));
        }
        let run = source.next_run();
        drop(source);
        run.map(|run| run.and_then(|mut run| self.lines.of(&mut *run)))
    }

    /// Starts as many helpers as are allowed and useful.
    fn call_helpers(&self, shared: &Arc<Shared>) {
        // The holder of the lock reads names. It is a helper, or will start helpers.
        let Ok(mut source) = shared.source.try_lock() else {
            return;
        };
        while source.has_work() && source.helpers < HELPERS && self.start_helper(shared) {
            source.helpers += 1;
        }
    }

    /// Whether one more helper was started.
    fn start_helper(&self, shared: &Arc<Shared>) -> bool {
        let Some(grant) = self.listers.helper() else {
            return false;
        };
        let (lines, shared) = (Arc::clone(&self.lines), Arc::clone(shared));
        let help = move || {
            let _grant = grant;
            while let Some((mut run, made)) = shared.begin_run() {
                // The channel has room for one run. Sending fails only if the listing was given up.
                drop(made.send(lines.of(&mut *run)));
            }
        };
        let thread = thread::Builder::new().name("lister".to_owned());
        thread.spawn(help).is_ok()
    }
}

impl Drop for Runs {
    fn drop(&mut self) {
        if let State::Helped { shared, .. } = &self.state {
            shared.given_up.store(true, Ordering::Relaxed);
        }
    }
}

impl Source {
    fn has_work(&self) -> bool {
        self.stream.is_some() && self.runs.len() < WAITING_RUNS
    }

    fn next_run(&mut self) -> Option<Result<Box<dyn DirectoryRun>, StorageError>> {
        let run = self.stream.as_mut()?.next_run(RUN_ENTRIES).transpose();
        if !matches!(run, Some(Ok(_))) {
            self.stream = None;
        }
        run
    }
}

impl Shared {
    /// The next run for a helper, and the channel for its lines. `None` when the helper has to end.
    fn begin_run(&self) -> Option<(Box<dyn DirectoryRun>, SyncSender<Made>)> {
        let mut source = self.lock();
        let run = if self.given_up.load(Ordering::Relaxed) || !source.has_work() {
            None
        } else {
            source.next_run()
        };
        let Some(run) = run else {
            source.helpers -= 1;
            return None;
        };
        let (made, waiting) = mpsc::sync_channel(1);
        source.runs.push_back(waiting);
        match run {
            Ok(run) => Some((run, made)),
            Err(error) => {
                drop(made.send(Err(error)));
                source.helpers -= 1;
                None
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, Source> {
        // After a panic the state is consistent: the directory was read up to some entry.
        self.source.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;
    use std::time::{Duration, Instant};

    use gridhaul_protocol::facts::FactSelection;
    use gridhaul_shares::Source;
    use gridhaul_storage::{Entries, PosixOptions, PosixStorage, Storage as _};
    use tempfile::TempDir;

    use super::super::lines::{Form, Style, Writer};
    use super::*;
    use crate::threads::Threads;

    /// Enough for several helpers.
    const FILES: usize = 10 * RUN_ENTRIES;

    fn large() -> (TempDir, PosixStorage) {
        let directory = TempDir::new().expect("a temporary directory");
        for number in 0..FILES {
            std::fs::write(directory.path().join(number.to_string()), "").expect("written");
        }
        let storage = PosixStorage::open(directory.path(), PosixOptions::default());
        (directory, storage.expect("opened"))
    }

    fn runs(storage: &PosixStorage, form: Form) -> Runs {
        let lines = DirectoryLines {
            writer: Writer::new(Style {
                form,
                facts: FactSelection::NONE,
            }),
            directory: PathBuf::from("/"),
            pattern: None,
        };
        let listers = Threads::new(1).listers(&Source::at([192, 0, 2, 1].into()));
        Runs::new(storage.list("/".as_ref()).expect("listed"), lines, listers)
    }

    fn names(mut pieces: Pieces) -> Vec<String> {
        let mut text = Vec::new();
        while let Some(piece) = pieces.take() {
            text.extend(piece);
        }
        let text = String::from_utf8(text).expect("ASCII");
        text.lines().map(|line| line.trim().to_owned()).collect()
    }

    #[test]
    fn helpers_keep_the_order_of_names() {
        let (_directory, storage) = large();
        let mut alone = Entries::new(storage.list("/".as_ref()).expect("listed"), RUN_ENTRIES);
        let mut expected = Vec::new();
        while let Some(entry) = alone.next_entry().expect("listed") {
            expected.push(entry.name.into_string().expect("ASCII"));
        }
        for form in [Form::Facts, Form::Names] {
            let mut runs = runs(&storage, form);
            let mut listed = Vec::new();
            while let Some(run) = runs.next_run() {
                listed.extend(names(run.expect("listed")));
            }
            assert_eq!(listed.len(), FILES);
            assert_eq!(listed, expected);
        }
    }

    #[test]
    fn a_listing_that_is_not_read_holds_no_thread() {
        const TIME_LIMIT: Duration = Duration::from_secs(20);
        let (_directory, storage) = large();
        let mut runs = runs(&storage, Form::Facts);
        let first = names(runs.next_run().expect("a run").expect("listed")).len();
        let State::Helped { shared, .. } = &runs.state else {
            panic!("it has help");
        };
        let shared = Arc::clone(shared);
        let begun = Instant::now();
        while shared.lock().helpers > 0 {
            assert!(begun.elapsed() < TIME_LIMIT, "helpers wait for the reader");
            thread::yield_now();
        }
        let rest = std::iter::from_fn(|| runs.next_run());
        let listed: usize = rest.map(|run| names(run.expect("listed")).len()).sum();
        assert_eq!(first + listed, FILES);
    }

    #[test]
    fn a_client_with_many_unread_listings_has_few_that_are_read_ahead() {
        let (_directory, storage) = large();
        let first = runs(&storage, Form::Names);
        let listers = first.listers.clone();
        let mut unread: Vec<Runs> = (0..80).map(|_| runs(&storage, Form::Names)).collect();
        for listing in &mut unread {
            listing.listers = listers.clone();
            assert!(matches!(listing.next_run(), Some(Ok(_))));
        }
        let is_helped = |listing: &&Runs| matches!(listing.state, State::Helped { .. });
        let helped = unread.iter().filter(is_helped).count();
        assert!((8..64).contains(&helped), "{helped} of 80");
        // The other listings are complete as well.
        let last = unread.last_mut().expect("eighty");
        let rest = std::iter::from_fn(|| last.next_run());
        let listed: usize = rest.map(|run| names(run.expect("listed")).len()).sum();
        assert!(listed >= FILES - 2 * RUN_ENTRIES, "{listed}");
    }

    #[test]
    fn helpers_leave_when_a_listing_is_given_up() {
        const TIME_LIMIT: Duration = Duration::from_secs(20);
        let (_directory, storage) = large();
        let mut runs = runs(&storage, Form::Facts);
        assert!(matches!(runs.next_run(), Some(Ok(_))));
        assert!(matches!(runs.state, State::Helped { .. }));
        let lines = Arc::downgrade(&runs.lines);
        drop(runs);
        let begun = Instant::now();
        while lines.strong_count() > 0 {
            assert!(
                begun.elapsed() < TIME_LIMIT,
                "helpers work without a reader"
            );
            thread::yield_now();
        }
    }
}
