//! Small files of one direction in a row, with commands that are sent ahead.
//!
//! A pipeline has only what succeeds: a file that fails is copied again by itself, with all that belongs to failures.

use std::collections::VecDeque;
use std::fs;
use std::path::Path;
use std::sync::Arc;

use gridhaul_protocol::command::TransferMode;
use gridhaul_protocol::feature::SimpleFeature;
use gridhaul_protocol::path::PathArgument;
use gridhaul_protocol::ranges::RangeSet;
use gridhaul_transfer::{Admission, Demands, Handling, UploadName};

use super::super::super::arguments::SyncArgument;
use super::super::job::{Job, Place};
use super::super::shared::Shared;
use super::super::version::Version;
use super::{Queue, Taken, WORTHWHILE, Worker, is_known, open, succeeded};
use crate::location::{Server, Url};
use crate::session::{Session, TransferSettings};
use crate::transfer::{
    Direction, FileCopy, Piped, Supply, TransferFailure, Transferred, is_out_of_step, pipeline,
};

/// After so many pipelines without a complete file, files are copied one by one.
const FRUITLESS: usize = 3;

/// What the files of a pipeline have in common.
struct Common {
    direction: Direction,
    server: Server,
    root: Arc<Path>,
    settings: TransferSettings,
}

/// A file whose copy has begun.
struct Begun {
    job: Job,
    /// That of an uploaded file.
    version: Version,
}

/// The files that a worker copies in a pipeline.
struct Batch<'a> {
    shared: &'a Shared,
    common: Common,
    queue: &'a Queue,
    /// Of an earlier pipeline.
    taken: &'a mut VecDeque<Taken>,
    begun: VecDeque<Begun>,
    /// A file that does not go with the others.
    other: Option<Taken>,
    /// Files that have changed meanwhile.
    changed: Vec<Job>,
    complete: usize,
}

impl Worker {
    /// Copies a file with those that follow in a pipeline. Gives it back if that is not possible.
    pub(super) async fn pipelined(&mut self, next: Taken, queue: &Queue) -> Option<Taken> {
        let shared = Arc::clone(&self.shared);
        let may = !next.is_alone
            && !next.job.is_only
            && self.fruitless < FRUITLESS
            && !is_known(&shared, &next.job);
        let Some((direction, url, root)) = way(&next.job).filter(|_| may && allows(&shared)) else {
            return Some(next);
        };
        let (server, root) = (url.server.clone(), Arc::clone(root));
        let most = shared.pipeline(&server);
        // What fails here fails again by itself, and is reported then.
        if most < 2
            || open(self.session(direction), &shared, &server)
                .await
                .is_err()
        {
            return Some(next);
        }
        let Some(mut session) = self.session(direction).take() else {
            return Some(next);
        };
        let piped = self
            .pipe(next, (direction, root), &mut session, (queue, most))
            .await;
        *self.session(direction) = Some(session);
        piped
    }

    async fn pipe(
        &mut self,
        next: Taken,
        (direction, root): (Direction, Arc<Path>),
        session: &mut Session,
        (queue, most): (&Queue, usize),
    ) -> Option<Taken> {
        let shared = Arc::clone(&self.shared);
        let Some(common) = Common::of(&shared, session, direction, root) else {
            return Some(next);
        };
        let hosts = match direction {
            Direction::Put => Admission::none(),
            _ => session.admits(common.settings.protection),
        };
        let Ok(files) = self.files(&common.root, hosts) else {
            return Some(next);
        };
        let mut batch = Batch {
            shared: &shared,
            common,
            queue,
            taken: &mut self.taken,
            begun: VecDeque::new(),
            other: None,
            changed: Vec::new(),
            complete: 0,
        };
        let Some(first) = batch.begin(next) else {
            return batch.other;
        };
        let ended = pipeline(session, &files, first, most, &mut batch).await;
        let complete = batch.complete;
        match &ended {
            Err(failure @ TransferFailure::Unsettled(_)) => batch.abandon(failure),
            ended => batch.leave(ended.is_err()),
        }
        match &ended {
            Ok(()) => self.fruitless = 0,
            Err(_) if complete > 0 => self.fruitless = 0,
            Err(_) => self.fruitless += 1,
        }
        if let Err(failure) = ended
            && (is_out_of_step(&failure) || matches!(failure, TransferFailure::Stalled(_)))
        {
            shared.note_unordered(session.server());
        }
        None
    }

    fn session(&mut self, direction: Direction) -> &mut Option<Session> {
        match direction {
            Direction::Put => &mut self.destination,
            Direction::Get | Direction::List => &mut self.source,
        }
    }
}

/// Whether the options of the user allow pipelines.
fn allows(shared: &Shared) -> bool {
    let arguments = &shared.arguments;
    // Checksums of a server are commands of their own, whose results decide about a file.
    !arguments.dry_run
        && arguments.checksum.is_none()
        && arguments.checksum_of_servers.is_none()
        && arguments.sync != Some(SyncArgument::Checksum)
        && arguments.part().is_none()
}

/// Which way a file goes, at which server, and the root of the local files.
fn way(job: &Job) -> Option<(Direction, &Url, &Arc<Path>)> {
    match (&job.source, &job.destination) {
        (Place::Remote(url), Place::Local { root, .. }) => Some((Direction::Get, url, root)),
        (Place::Local { root, .. }, Place::Remote(url)) => Some((Direction::Put, url, root)),
        _ => None,
    }
}

impl Common {
    /// `None` if transfers with this server are not in MODE E.
    fn of(
        shared: &Shared,
        session: &Session,
        direction: Direction,
        root: Arc<Path>,
    ) -> Option<Self> {
        // An uploaded file gets its time after it was confirmed: a time that is set ahead would be that of the file before, if the
        // upload fails.
        let sets_times = shared.arguments.keeps_times() && session.has(SimpleFeature::Mfmt);
        if sets_times && direction == Direction::Put {
            return None;
        }
        let settings = match direction {
            Direction::Put => {
                let settings = shared.settings(&[session]);
                (settings.mode == TransferMode::Extended).then_some(settings)
            }
            _ => shared.settings_of_blocks(session),
        };
        Some(Self {
            direction,
            server: session.server().clone(),
            root,
            settings: settings?,
        })
    }
}

impl Batch<'_> {
    /// The copy of a file. One that does not go with the others stays.
    fn begin(&mut self, taken: Taken) -> Option<Piped> {
        match self.piped(&taken.job) {
            Some((piped, version)) if !taken.is_alone => {
                let job = taken.job;
                self.begun.push_back(Begun { job, version });
                Some(piped)
            }
            _ => {
                self.other = Some(taken);
                None
            }
        }
    }

    fn piped(&self, job: &Job) -> Option<(Piped, Version)> {
        let (direction, url, root) = way(job)?;
        let common = &self.common;
        if direction != common.direction || url.server != common.server || *root != common.root {
            return None;
        }
        let remote = url.argument().ok()?;
        match (&job.source, &job.destination) {
            (Place::Local { path, beneath, .. }, _) => {
                let version = Version::of_file(path).ok()?;
                let copy = self.copy(beneath, remote, version, self.shared.handling())?;
                Some((Piped { copy }, version))
            }
            (_, Place::Local { path, beneath, .. }) => {
                // A device or a pipe cannot be replaced.
                let is_file = fs::metadata(path).map_or(true, |found| found.is_file());
                let version = job.known;
                let modified = version.modified;
                let handling = Handling {
                    upload: UploadName::Temporary,
                    demands: Demands {
                        modified: modified.filter(|_| self.shared.arguments.keeps_times()),
                        ..Demands::default()
                    },
                    ..self.shared.handling()
                };
                let copy = self.copy(beneath, remote, version, handling);
                let copy = copy.filter(|_| is_file)?;
                Some((Piped { copy }, version))
            }
            _ => None,
        }
    }

    /// `None` if the file is not small, or of unknown size.
    fn copy(
        &self,
        local: &Path,
        remote: PathArgument,
        version: Version,
        handling: Handling,
    ) -> Option<FileCopy> {
        let settings = self.common.settings.clone();
        Some(FileCopy {
            direction: self.common.direction,
            local: local.to_owned(),
            remote,
            part: None,
            // An earlier attempt of a larger one may have left something to continue.
            size: Some(version.size.filter(|size| *size < WORTHWHILE)?),
            present: RangeSet::new(),
            stack: self.shared.stack_here(&settings),
            settings,
            handling,
            verify: None,
            first_connection: None,
            stream: None,
            stall: self.shared.arguments.data.channels.stall_timeout,
        })
    }

    /// What is not complete has failed: the server may still carry out its commands, and would replace what is copied there meanwhile.
    fn abandon(mut self, failure: &TransferFailure) {
        let begun = std::mem::take(&mut self.begun);
        for Begun { job, .. } in begun {
            let names = (job.source.words(), job.destination.words());
            let words = failure.to_string();
            self.shared
                .report
                .failed(Some((&names.0, &names.1)), &words);
        }
        self.leave(false);
    }

    /// Gives back what is not complete. After an error, the oldest file is the one that has failed.
    fn leave(self, has_failed: bool) {
        let mut back: Vec<Taken> = Vec::new();
        for (index, begun) in self.begun.into_iter().enumerate() {
            back.push(Taken {
                job: begun.job,
                is_alone: has_failed && index == 0,
            });
        }
        back.extend(self.changed.into_iter().map(|job| Taken {
            job,
            is_alone: true,
        }));
        back.extend(self.other);
        for taken in back.into_iter().rev() {
            self.taken.push_front(taken);
        }
    }

    /// The next file of the queue, if one waits now.
    fn take(&mut self) -> Option<Taken> {
        self.taken.pop_front().or_else(|| {
            // Who has the lock waits for a file: there is none.
            let mut queue = self.queue.try_lock().ok()?;
            queue.try_recv().ok().map(Taken::new)
        })
    }
}

impl Supply for Batch<'_> {
    fn next(&mut self) -> Option<Piped> {
        while self.other.is_none() && self.shared.gives_up().is_none() {
            let taken = self.take()?;
            if is_known(self.shared, &taken.job) {
                self.shared.report.unchanged();
                continue;
            }
            return self.begin(taken);
        }
        None
    }

    fn complete(&mut self, done: Transferred) {
        let Some(Begun { job, version }) = self.begun.pop_front() else {
            return;
        };
        if let Place::Local { path, .. } = &job.source
            && Version::of_file(path).is_ok_and(|now| version.differs_from(&now))
        {
            self.changed.push(job);
            return;
        }
        self.complete += 1;
        let names = (job.source.words(), job.destination.words());
        succeeded(self.shared, &job, (&names.0, &names.1), &done);
    }
}
