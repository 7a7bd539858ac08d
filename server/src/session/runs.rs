//! One directory as lines, however large it is.
//!
//! A directory is read and sorted in runs: people and programs expect the order of names, and constant
//! memory forbids to sort a million of them. What takes time is to ask for the facts of every entry, so
//! those who help with a large directory take turns at reading names, and work on the rest beside each
//! other. Runs stay in order, and few of them wait to be sent.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{self, Receiver, SyncSender};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;

use gridhaul_storage::{DirectoryRun, DirectoryStream, StorageError};
use rustix::io::Errno;

use super::lines::{DirectoryLines, Pieces};

/// How many entries are sorted together. A directory with fewer needs no help.
const RUN_ENTRIES: usize = 4096;

/// Runs that wait to be sent; each has some hundred kilobytes of lines.
const WAITING_RUNS: usize = 2;

/// Threads that help with one directory, at most. More than two pay where every question goes over a
/// network.
const HELPERS: usize = 4;

/// Threads that help in the whole process. A directory that finds none free is listed without.
const ALL_HELPERS: usize = 64;

/// The lines of a directory, a run after another.
pub(super) struct Runs {
    lines: Arc<DirectoryLines>,
    state: State,
}

enum State {
    Alone(Box<dyn DirectoryStream>),
    Helped(Receiver<Waiting>),
    Ended,
}

type Made = Result<Pieces, StorageError>;

/// A run that somebody works at.
type Waiting = Receiver<Made>;

/// What is left of a directory, and where its runs are announced in their order.
struct Source {
    stream: Box<dyn DirectoryStream>,
    runs: SyncSender<Waiting>,
}

impl Runs {
    pub(super) fn new(stream: Box<dyn DirectoryStream>, lines: DirectoryLines) -> Self {
        Self {
            lines: Arc::new(lines),
            state: State::Alone(stream),
        }
    }

    /// The next run, which may have no lines; `None` at the end.
    pub(super) fn next_run(&mut self) -> Option<Made> {
        let made = match &mut self.state {
            State::Alone(stream) => match stream.next_run(RUN_ENTRIES) {
                Ok(Some(mut run)) => {
                    if run.count() >= RUN_ENTRIES {
                        self.find_help();
                    }
                    Some(self.lines.of(&mut *run))
                }
                Ok(None) => None,
                Err(error) => Some(Err(error)),
            },
            State::Helped(runs) => runs.recv().ok().map(|run| {
                // A helper that panicked says so on standard error.
                run.recv()
                    .unwrap_or_else(|_| Err(StorageError::new("thread", Errno::IO)))
            }),
            State::Ended => None,
        };
        if !matches!(made, Some(Ok(_))) {
            self.state = State::Ended;
        }
        made
    }

    /// Hands the rest of the directory to helpers, if there are any.
    fn find_help(&mut self) {
        let State::Alone(stream) = std::mem::replace(&mut self.state, State::Ended) else {
            return;
        };
        let (runs, made) = mpsc::sync_channel(WAITING_RUNS);
        let source = Arc::new(Mutex::new(Some(Source { stream, runs })));
        let helpers = (0..HELPERS)
            .take_while(|_| start_helper(&self.lines, &source))
            .count();
        self.state = if helpers > 0 {
            State::Helped(made)
        } else {
            let source = lock(&source).take();
            source.map_or(State::Ended, |source| State::Alone(source.stream))
        };
    }
}

/// Whether there is one more who helps.
fn start_helper(lines: &Arc<DirectoryLines>, source: &Arc<Mutex<Option<Source>>>) -> bool {
    let Some(permit) = Permit::take() else {
        return false;
    };
    let (lines, source) = (Arc::clone(lines), Arc::clone(source));
    let help = move || {
        let _permit = permit;
        while let Some((mut run, made)) = next_run(&source) {
            // Nobody waits any more when the listing was given up.
            if made.send(lines.of(&mut *run)).is_err() {
                return;
            }
        }
    };
    let thread = thread::Builder::new().name("lister".to_owned());
    thread.spawn(help).is_ok()
}

/// A run to work at, and where its lines go; `None` when there is nothing left to do.
fn next_run(source: &Mutex<Option<Source>>) -> Option<(Box<dyn DirectoryRun>, SyncSender<Made>)> {
    let mut place = lock(source);
    let source = place.as_mut()?;
    let run = source.stream.next_run(RUN_ENTRIES).transpose();
    let (made, waiting) = mpsc::sync_channel(1);
    // It waits here until there is room, and so do the others.
    let announced = run.is_some() && source.runs.send(waiting).is_ok();
    match run {
        Some(Ok(run)) if announced => return Some((run, made)),
        // Nobody waits any more when the listing was given up.
        Some(Err(error)) => drop(made.send(Err(error))),
        _ => {}
    }
    *place = None;
    None
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // What a panic left behind is a directory that was read up to some entry.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The right to be one of the threads that help.
struct Permit;

static HELPING: AtomicUsize = AtomicUsize::new(0);

impl Permit {
    fn take() -> Option<Self> {
        let one_more = |helping| (helping < ALL_HELPERS).then_some(helping + 1);
        HELPING
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, one_more)
            .is_ok()
            .then_some(Self)
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        HELPING.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;
    use std::time::{Duration, Instant};

    use gridhaul_protocol::facts::FactSelection;
    use gridhaul_storage::{Entries, PosixOptions, PosixStorage, Storage as _};
    use tempfile::TempDir;

    use super::super::lines::{Form, Style, Writer};
    use super::*;

    /// Enough for helpers to have each other's company.
    const FILES: usize = 6 * RUN_ENTRIES;

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
        Runs::new(storage.list("/".as_ref()).expect("listed"), lines)
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
    fn help_changes_nothing_in_the_order_of_names() {
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
    fn helpers_leave_when_a_listing_is_given_up() {
        const PATIENCE: Duration = Duration::from_secs(20);
        let (_directory, storage) = large();
        let mut runs = runs(&storage, Form::Facts);
        assert!(matches!(runs.next_run(), Some(Ok(_))));
        assert!(matches!(runs.state, State::Helped(_)));
        let lines = Arc::downgrade(&runs.lines);
        drop(runs);
        let begun = Instant::now();
        while lines.strong_count() > 0 {
            assert!(begun.elapsed() < PATIENCE, "helpers work for nobody");
            thread::yield_now();
        }
    }
}
