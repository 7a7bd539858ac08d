//! Copies one file after the other, with sessions that are kept.

mod doubtful;
mod found;
mod getting;
mod pipelined;
mod receiving;
mod relayed;
mod retries;
mod sums;
mod transfers;

use std::collections::VecDeque;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use gridhaul_storage::ChecksumAlgorithm;
use gridhaul_transfer::{Admission, NodeSession};
use tokio::time::sleep;

use self::doubtful::Doubted;
use self::pipelined::{Length, Pause};
use self::retries::Retries;
use super::super::arguments::SyncArgument;
use super::error::CopyError;
use super::job::{Begun, Job, Place};
use super::jobs::Queue;
use super::journal::{Key, Recorder};
use super::partial;
use super::present::{Present, WORTHWHILE, small};
use super::shared::Shared;
use super::version::Version;
use crate::location::{Server, Url};
use crate::session::Session;
use crate::transfer::{Transferred, checksum_of_file, checksum_of_server};

/// The pause before the first retry; each further one is twice as long.
pub(in crate::program::copy) const FIRST_PAUSE: Duration = Duration::from_secs(1);

/// The longest pause.
pub(in crate::program::copy) const LONGEST_PAUSE: Duration = Duration::from_secs(60);

/// Copies one file after the other.
pub(super) struct Worker {
    shared: Arc<Shared>,
    source: Option<Session>,
    destination: Option<Session>,
    /// The files beneath a root, the hosts that may open data channels, and the data channels of this worker.
    files: Option<(Arc<Path>, Admission, Arc<dyn NodeSession>)>,
    /// Files of a pipeline that has ended before they were complete.
    taken: VecDeque<Taken>,
    /// When there are no pipelines.
    pause: Pause,
    /// The files ahead in pipelines.
    length: Length,
    /// The last file that a pipeline has completed at a server. What was changed there before it is older than files in doubt ([`Doubted`]).
    last_stored: Option<Url>,
}

/// A file that was taken from the queue.
struct Taken {
    job: Job,
    /// It is copied by itself.
    is_alone: bool,
    /// What the destination may have under its name.
    doubt: Option<Doubted>,
}

impl Taken {
    fn new(job: Job) -> Self {
        Self {
            job,
            is_alone: false,
            doubt: None,
        }
    }
}

impl Worker {
    pub(super) fn new(shared: Arc<Shared>) -> Self {
        Self {
            shared,
            source: None,
            destination: None,
            files: None,
            taken: VecDeque::new(),
            pause: Pause::new(),
            length: Length::new(),
            last_stored: None,
        }
    }

    /// Copies files until there are no more.
    pub(super) async fn run(mut self, queue: Queue) {
        loop {
            let next = match self.taken.pop_front() {
                Some(taken) => Some(taken),
                None => queue.take().await.map(Taken::new),
            };
            let Some(next) = next else {
                break;
            };
            if let Some(next) = self.pipelined(next, &queue).await {
                self.copy(&next).await;
            }
        }
        let sessions = [self.source.take(), self.destination.take()];
        for session in sessions.into_iter().flatten() {
            self.shared.give_back(session);
        }
    }

    /// Copies a file, and reports it.
    async fn copy(&mut self, taken: &Taken) {
        let shared = Arc::clone(&self.shared);
        let job = &taken.job;
        let names = (job.source.words(), job.destination.words());
        if shared.arguments.dry_run {
            if let Some(plan) = &shared.arguments.plan {
                let places = [&job.source, &job.destination].map(Place::url);
                plan.write([&places[0], &places[1]], &job.known.planned());
            }
            shared.report.would_copy(&names.0, &names.1);
            return;
        }
        if is_known(&shared, job) {
            shared.report.unchanged();
            return;
        }
        let has_moved = Arc::<AtomicBool>::default();
        let copied = match shared.gives_up() {
            None if may_have_content(&shared, job) && self.has_same_content(job).await => {
                if recorded(&shared, job).is_some() {
                    record(&shared, job, shared.wanted_sum());
                }
                shared.report.unchanged();
                return;
            }
            None => {
                begins(&shared, job);
                let begun = Box::pin(self.begun(job, &has_moved)).await;
                let names = (names.0.as_str(), names.1.as_str());
                let copied = self.with_retries(job, names, &has_moved).await;
                if let Some(begun) = &begun {
                    Box::pin(partial::ends(&shared, begun, copied.as_ref().err())).await;
                }
                copied
            }
            Some(reason) => Err(reason),
        };
        match copied {
            Ok(done) => succeeded(&shared, job, (&names.0, &names.1), &done),
            Err(error) => {
                if error.is_about_room() {
                    self.free_room(job, &has_moved).await;
                } else if error.is_transient(true) {
                    shared.note(false);
                }
                let doubt = self.words_of_doubt(taken).await;
                shared.failed((&names.0, &names.1), &error, doubt);
            }
        }
    }

    /// Removes what a server has kept of a small file, because it has no room left: no restart continues it. Without a byte of this copy it
    /// may be that of another one. Here the transfer has done that ([`Handling::frees_room`](gridhaul_transfer::Handling::frees_room)).
    async fn free_room(&mut self, job: &Job, has_moved: &AtomicBool) {
        let (Place::Remote(url), Some(_)) = (&job.destination, small(job.known)) else {
            return;
        };
        let shared = Arc::clone(&self.shared);
        // With --no-partial it was removed before.
        if !has_moved.load(Ordering::Relaxed) || !shared.arguments.keeps_partial() {
            return;
        }
        if let (Ok(path), Ok(session)) = (
            url.argument(),
            open(&mut self.destination, &shared, &url.server).await,
        ) {
            // The error of the copy is what is reported.
            let _ = session.remove_unfinished(&path).await;
        }
    }

    /// Whether the destination has the content of the source. Not if that cannot be found out.
    async fn has_same_content(&mut self, job: &Job) -> bool {
        let source = self.sum(&job.source, true).await;
        let destination = self.sum(&job.destination, false).await;
        match (source, destination) {
            (Some(source), Some(destination)) => source.eq_ignore_ascii_case(&destination),
            _ => false,
        }
    }

    async fn sum(&mut self, place: &Place, is_source: bool) -> Option<String> {
        let shared = Arc::clone(&self.shared);
        let algorithm = shared.wanted_sum()?;
        match place {
            Place::Local { root, beneath, .. } => {
                let files = self.files(root, Admission::none()).ok()?;
                checksum_of_file(&files, algorithm, beneath, None)
                    .await
                    .ok()
            }
            Place::Remote(url) => {
                let path = url.argument().ok()?;
                let place = match is_source {
                    true => &mut self.source,
                    false => &mut self.destination,
                };
                let session = open(place, &shared, &url.server).await.ok()?;
                checksum_of_server(session, algorithm, &path, None)
                    .await
                    .ok()
            }
        }
    }

    /// A file begins whose unfinished copy is removed if it is given up. `None`: it stays.
    async fn begun(&mut self, job: &Job, has_moved: &Arc<AtomicBool>) -> Option<Arc<Begun>> {
        let shared = Arc::clone(&self.shared);
        if shared.arguments.keeps_partial() {
            return None;
        }
        let may_have_had = match &job.destination {
            Place::Local { .. } => true,
            Place::Remote(url) => {
                let session = open(&mut self.destination, &shared, &url.server).await;
                match (session, url.argument()) {
                    (Ok(session), Ok(path)) => !matches!(session.is_absent(&path).await, Ok(true)),
                    _ => true,
                }
            }
        };
        let begun = Arc::new(Begun {
            destination: job.destination.clone(),
            size: job.known.size,
            may_have_had,
            has_moved: Arc::clone(has_moved),
        });
        shared.begun().push(Arc::clone(&begun));
        Some(begun)
    }

    async fn with_retries(
        &mut self,
        job: &Job,
        names: (&str, &str),
        has_moved: &Arc<AtomicBool>,
    ) -> Result<Transferred, CopyError> {
        let shared = Arc::clone(&self.shared);
        let part = shared.arguments.part();
        let mut key = Key::of(job).filter(|_| job.known.size >= Some(WORTHWHILE) && part.is_none());
        let mut job = job.clone();
        let mut present = match key {
            Some(key) => Present::of_earlier(&job, shared.journal.partial(key)),
            None => Present::default(),
        };
        let had = present.ranges().covered();
        let mut retries = Retries::new(shared.arguments.retry, job.known.size, had);
        loop {
            let mut watch = shared.report.watch(names.0, names.1, job.known.size);
            watch.notes_begin(Arc::clone(has_moved));
            if let Some(key) = key {
                watch.records(Box::new(Recorder::new(&shared.journal, key, job.known)));
            }
            let error = match self.attempt(&job, &mut present, &mut watch).await {
                Ok(done) => return Ok(done),
                Err(error) => error,
            };
            if error.is_in_use() {
                // What is there now is not of this copy.
                has_moved.store(false, Ordering::Relaxed);
            }
            if !error.is_transient(watch.has_moved()) {
                return Err(error);
            }
            let is_never_sent = retries.is_never_sent(error.unsent());
            let begins_again = error.is_about_content() || is_never_sent;
            // What is begun again is no progress: a file that grows without end would be copied for ever. Neither is that of a part,
            // whose markers do not count from the beginning of the file.
            if begins_again || part.is_some() {
                present = Present::default();
            } else {
                present.gain(watch.stored());
                retries.note(present.ranges().covered());
                present.is_continued(watch.may_have_moved());
            }
            if begins_again && let Some(key) = key {
                shared.journal.record_nothing(key);
            }
            if error.is_about_content() {
                // The source may have changed since it was found: what it is now is asked for, and is not what the journal knows.
                (job.known, key) = (Version::default(), None);
            }
            let Some(pause) = retries.next() else {
                return Err(error);
            };
            shared.report.retries(names, &error.to_string(), pause);
            // The connections may be what has failed.
            (self.source, self.destination, self.files) = (None, None, None);
            if !error.is_about_content() {
                shared.forget_idle([&job.source, &job.destination]);
            }
            sleep(pause).await;
        }
    }

    fn files(
        &mut self,
        root: &Arc<Path>,
        hosts: Admission,
    ) -> Result<Arc<dyn NodeSession>, CopyError> {
        if let Some((known, admitted, files)) = &self.files
            && (known, admitted) == (root, &hosts)
        {
            return Ok(Arc::clone(files));
        }
        let files = self.shared.files(root, hosts.clone())?;
        self.files = Some((Arc::clone(root), hosts, Arc::clone(&files)));
        Ok(files)
    }
}

/// The session with a server: the one that there is, or another one in its place.
async fn open<'a>(
    place: &'a mut Option<Session>,
    shared: &Shared,
    server: &Server,
) -> Result<&'a mut Session, CopyError> {
    let session = match place.take() {
        Some(session) if session.server() == server && session.is_usable() => session,
        other => {
            if let Some(other) = other {
                shared.give_back(other);
            }
            // A login has a large future, and transfers have several calls of this function.
            Box::pin(shared.session(server)).await?
        }
    };
    Ok(place.insert(session))
}

/// Whether an earlier run has copied this version of the file, and has verified it as the user wants now.
fn is_known(shared: &Shared, job: &Job) -> bool {
    let wanted = shared.wanted_sum();
    recorded(shared, job).is_some_and(|sum| wanted.is_none() || sum == wanted)
}

/// The checksum by which an earlier run has verified this version of the file. The outer `None`: it has not copied it.
fn recorded(shared: &Shared, job: &Job) -> Option<Option<ChecksumAlgorithm>> {
    if !shared.journal.has_complete() {
        return None;
    }
    let sum = shared.journal.complete(Key::of(job)?)?;
    job.destination.may_have(job.known).then_some(sum)
}

/// Whether the contents of both ends are compared before the file is copied: the user wants that, or an earlier run has copied a large
/// file without the checksum that is wanted now. A small one is copied again.
fn may_have_content(shared: &Shared, job: &Job) -> bool {
    shared.arguments.sync == Some(SyncArgument::Checksum)
        || shared.arguments.checksum.is_some()
            && job.known.size >= Some(WORTHWHILE)
            && recorded(shared, job).is_some()
}

/// A file is copied. That an earlier run has completed it counts no more: from now on the destination may have a part of it.
fn begins(shared: &Shared, job: &Job) {
    if let Some(key) = Key::of(job)
        && shared.journal.complete(key).is_some()
    {
        shared.journal.record_nothing(key);
    }
}

fn record(shared: &Shared, job: &Job, sum: Option<ChecksumAlgorithm>) {
    if let Some(key) = Key::of(job) {
        shared.journal.record_complete(key, sum);
        shared.tell_of_journal();
    }
}

/// Notes and reports a copied file.
fn succeeded(shared: &Shared, job: &Job, names: (&str, &str), done: &Transferred) {
    shared.note(true);
    shared.note_stored(done.bytes);
    let sum = shared.arguments.checksum;
    record(shared, job, sum.filter(|_| done.checksum.is_some()));
    shared.report.copied(names, done);
}
