//! Copies one file after the other, with sessions that are kept.

use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use gridhaul_protocol::command::TransferMode;
use gridhaul_protocol::path::PathArgument;
use gridhaul_storage::ChecksumAlgorithm;
use gridhaul_transfer::{Demands, Handling, NodeSession, UploadName};
use tokio::sync::{Mutex, mpsc};
use tokio::time::sleep;

use super::super::arguments::SyncArgument;
use super::super::report::{Copied, Watch};
use super::error::CopyError;
use super::job::{Job, Place};
use super::journal::{Key, Recorder};
use super::present::Present;
use super::shared::Shared;
use super::version::Version;
use crate::location::{Server, Url};
use crate::session::Session;
use crate::transfer::{
    Direction, FileCopy, ThirdPartyCopy, Transferred, checksum_of_file, checksum_of_server,
    third_party, two_party,
};

/// The pause before the first retry; each further one is twice as long.
const FIRST_PAUSE: Duration = Duration::from_secs(1);

/// The longest pause.
const LONGEST_PAUSE: Duration = Duration::from_secs(60);

/// A smaller file is begun again by a resumed copy.
const WORTHWHILE: u64 = 4 << 20;

/// A transfer that took longer may have had time for a change of its source.
const QUICK: Duration = Duration::from_secs(2);

/// The files that wait for a worker.
pub(super) type Queue = Arc<Mutex<mpsc::Receiver<Job>>>;

/// A file of this machine.
struct Local<'a> {
    path: &'a Path,
    beneath: &'a Path,
    files: Arc<dyn NodeSession>,
}

/// Copies one file after the other.
pub(super) struct Worker {
    shared: Arc<Shared>,
    source: Option<Session>,
    destination: Option<Session>,
    /// The files beneath a root, and the data channels of this worker.
    files: Option<(Arc<Path>, Arc<dyn NodeSession>)>,
}

impl Worker {
    pub(super) fn new(shared: Arc<Shared>) -> Self {
        Self {
            shared,
            source: None,
            destination: None,
            files: None,
        }
    }

    /// Copies files until there are no more.
    pub(super) async fn run(mut self, queue: Queue) {
        loop {
            let job = queue.lock().await.recv().await;
            let Some(job) = job else {
                break;
            };
            self.copy(&job).await;
        }
        let sessions = [self.source.take(), self.destination.take()];
        for session in sessions.into_iter().flatten() {
            self.shared.give_back(session);
        }
    }

    /// Copies a file, and reports it.
    async fn copy(&mut self, job: &Job) {
        let shared = Arc::clone(&self.shared);
        let names = (job.source.words(), job.destination.words());
        if shared.arguments.dry_run {
            shared.report.would_copy(&names.0, &names.1);
            return;
        }
        let key = Key::of(job);
        if let Some(key) = key
            && shared.journal.has(key)
            && job.destination.may_have(job.known)
        {
            shared.report.unchanged();
            return;
        }
        let copied = match shared.gives_up() {
            None if shared.arguments.sync == Some(SyncArgument::Checksum)
                && self.has_same_content(job).await =>
            {
                shared.report.unchanged();
                return;
            }
            None => self.with_retries(job, (&names.0, &names.1)).await,
            Some(failures) => Err(CopyError::GivenUp(failures)),
        };
        match copied {
            Ok(done) => {
                shared.note(true);
                if let Some(key) = key {
                    shared.journal.record_complete(key);
                }
                shared.report.copied(&Copied {
                    source: &names.0,
                    destination: &names.1,
                    bytes: done.bytes,
                    took: done.took,
                    channels: done.channels,
                    checksum: done.checksum.as_deref(),
                });
            }
            Err(error) => {
                if error.is_transient(true) {
                    shared.note(false);
                }
                let names = Some((names.0.as_str(), names.1.as_str()));
                shared.report.failed(names, &error.to_string());
            }
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
        // All servers have it.
        let algorithm = shared.arguments.checksum.unwrap_or(ChecksumAlgorithm::Md5);
        match place {
            Place::Local { root, beneath, .. } => {
                let files = self.files(root).ok()?;
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

    async fn with_retries(
        &mut self,
        job: &Job,
        names: (&str, &str),
    ) -> Result<Transferred, CopyError> {
        let shared = Arc::clone(&self.shared);
        let part = shared.arguments.part();
        let key = Key::of(job).filter(|_| job.known.size >= Some(WORTHWHILE) && part.is_none());
        let mut present = match key {
            Some(key) => Present::of_earlier(job, shared.journal.partial(key)),
            None => Present::default(),
        };
        let mut left = shared.arguments.retry;
        let mut pause = FIRST_PAUSE;
        loop {
            let mut watch = shared.report.watch(names.0, names.1);
            if let Some(key) = key {
                let recorder = Recorder::new(&shared.journal, key, present.ranges(), job.known);
                watch.tell_stored(Box::new(move |stored| recorder.record(stored)));
            }
            let error = match self.attempt(job, &mut present, &mut watch).await {
                Ok(done) => return Ok(done),
                Err(error) => error,
            };
            if !error.is_transient(watch.has_moved()) {
                return Err(error);
            }
            // A part is begun again: its markers do not count from the beginning of the file.
            if part.is_none() && present.gains(watch.stored()) {
                // The transfer gets on, however often its connections break.
                (left, pause) = (shared.arguments.retry.max(left), FIRST_PAUSE);
            }
            match error.is_about_content() || part.is_some() {
                true => present = Present::default(),
                false => present.is_continued(),
            }
            if left == 0 {
                return Err(error);
            }
            left -= 1;
            shared.report.retries(names, &error.to_string(), pause);
            // The connections may be what has failed.
            (self.source, self.destination, self.files) = (None, None, None);
            sleep(pause).await;
            pause = LONGEST_PAUSE.min(pause * 2);
        }
    }

    async fn attempt(
        &mut self,
        job: &Job,
        present: &mut Present,
        watch: &mut Watch<'_>,
    ) -> Result<Transferred, CopyError> {
        match (&job.source, &job.destination) {
            (Place::Local { .. }, Place::Local { .. }) => Err(CopyError::Local),
            (
                Place::Remote(from),
                Place::Local {
                    path,
                    root,
                    beneath,
                },
            ) => {
                let files = self.files(root)?;
                let to = Local {
                    path,
                    beneath,
                    files,
                };
                self.get(from, &to, job.known, present, watch).await
            }
            (
                Place::Local {
                    path,
                    root,
                    beneath,
                },
                Place::Remote(to),
            ) => {
                let files = self.files(root)?;
                let from = Local {
                    path,
                    beneath,
                    files,
                };
                self.put(&from, to, job.known, present, watch).await
            }
            (Place::Remote(from), Place::Remote(to)) => {
                self.between(from, to, job.known, present, watch).await
            }
        }
    }

    async fn get(
        &mut self,
        from: &Url,
        to: &Local<'_>,
        known: Version,
        present: &mut Present,
        watch: &mut Watch<'_>,
    ) -> Result<Transferred, CopyError> {
        let shared = Arc::clone(&self.shared);
        let remote = from.argument()?;
        let session = open(&mut self.source, &shared, &from.server).await?;
        let version = Version::of_source(session, &remote, known).await?;
        let settings = shared.settings(&[&*session], true);
        if settings.mode == TransferMode::Stream {
            present.note_stream(&*to.files, to.beneath);
        }
        // A device or a pipe cannot be replaced.
        let is_special =
            fs::metadata(to.path).is_ok_and(|found| !found.is_file() && !found.is_dir());
        if is_special && shared.arguments.checksum.is_some() {
            return Err(CopyError::Special(to.path.display().to_string()));
        }
        let copy = FileCopy {
            direction: Direction::Get,
            local: to.beneath.to_owned(),
            remote: remote.clone(),
            part: shared.arguments.part(),
            size: shared.bytes_of(version),
            present: present.of(version, settings.mode),
            settings,
            stack: shared.arguments.data.stack_here(),
            handling: Handling {
                // No program sees a part of a file under its name, unless the user asks for that.
                upload: match is_special || shared.arguments.part().is_some() {
                    true => UploadName::Final,
                    false => UploadName::Temporary,
                },
                demands: Demands {
                    modified: version.modified.filter(|_| shared.arguments.keeps_times()),
                    ..Demands::default()
                },
                ..Handling::default()
            },
            verify: shared.arguments.checksum,
            stall: shared.arguments.data.stall_timeout,
        };
        let done = two_party(session, &to.files, &copy, watch).await?;
        if done.took > QUICK && version.differs_from(&Version::of_facts(session, &remote).await?) {
            return Err(CopyError::Changed);
        }
        Ok(done)
    }

    async fn put(
        &mut self,
        from: &Local<'_>,
        to: &Url,
        known: Version,
        present: &mut Present,
        watch: &mut Watch<'_>,
    ) -> Result<Transferred, CopyError> {
        let shared = Arc::clone(&self.shared);
        let remote = to.argument()?;
        let version = Version::of_file(from.path)?;
        if version.differs_from(&known) {
            // The journal is about the version that was found.
            watch.tell_nothing();
        }
        let session = open(&mut self.destination, &shared, &to.server).await?;
        let settings = shared.settings(&[&*session], false);
        let copy = FileCopy {
            direction: Direction::Put,
            local: from.beneath.to_owned(),
            remote: remote.clone(),
            part: shared.arguments.part(),
            size: shared.bytes_of(version),
            present: present.of(version, settings.mode),
            settings,
            stack: shared.arguments.data.stack_here(),
            handling: Handling::default(),
            verify: shared.arguments.checksum,
            stall: shared.arguments.data.stall_timeout,
        };
        let done = two_party(session, &from.files, &copy, watch).await?;
        if version.differs_from(&Version::of_file(from.path)?) {
            return Err(CopyError::Changed);
        }
        self.keep_time(&remote, version).await?;
        Ok(done)
    }

    async fn between(
        &mut self,
        from: &Url,
        to: &Url,
        known: Version,
        present: &mut Present,
        watch: &mut Watch<'_>,
    ) -> Result<Transferred, CopyError> {
        if from == to {
            return Err(CopyError::Same);
        }
        let shared = Arc::clone(&self.shared);
        let (source_path, destination_path) = (from.argument()?, to.argument()?);
        let source = open(&mut self.source, &shared, &from.server).await?;
        let destination = open(&mut self.destination, &shared, &to.server).await?;
        let version = Version::of_source(source, &source_path, known).await?;
        let settings = shared.settings(&[&*source, &*destination], false);
        let copy = ThirdPartyCopy {
            source: source_path,
            destination: destination_path,
            part: shared.arguments.part(),
            size: shared.bytes_of(version),
            present: present.of(version, settings.mode),
            settings,
            verify: shared.arguments.checksum,
            stall: shared.arguments.data.stall_timeout,
        };
        let done = third_party(source, destination, &copy, watch).await?;
        if done.took > QUICK
            && version.differs_from(&Version::of_facts(source, &copy.source).await?)
        {
            return Err(CopyError::Changed);
        }
        self.keep_time(&copy.destination, version).await?;
        Ok(done)
    }

    /// Gives the copy on a server the time of its source, if that is wanted.
    async fn keep_time(&mut self, path: &PathArgument, version: Version) -> Result<(), CopyError> {
        let modified = version
            .modified
            .filter(|_| self.shared.arguments.keeps_times());
        if let (Some(modified), Some(session)) = (modified, &mut self.destination) {
            let set = session.set_modified(path, modified).await;
            set.map_err(CopyError::Destination)?;
        }
        Ok(())
    }

    fn files(&mut self, root: &Arc<Path>) -> Result<Arc<dyn NodeSession>, CopyError> {
        if let Some((known, files)) = &self.files
            && known == root
        {
            return Ok(Arc::clone(files));
        }
        let files = self.shared.files(root)?;
        self.files = Some((Arc::clone(root), Arc::clone(&files)));
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
            shared.session(server).await?
        }
    };
    Ok(place.insert(session))
}
