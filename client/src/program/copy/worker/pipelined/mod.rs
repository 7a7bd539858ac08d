//! Small files that go the same way, in a row, with commands that are sent ahead.
//!
//! A pipeline has only what succeeds: a file that fails is copied again by itself, with all that belongs to failures.
//!
//! ```text
//!   batch     the files of a pipeline
//!   length    how many of them are ahead
//!   pause     when there are none, because they were of no use
//!   here      what those between this machine and a server have in common
//!   between   what those between two servers have in common
//! ```

mod batch;
mod between;
mod here;
mod length;
mod pause;

use std::path::Path;
use std::sync::Arc;

use gridhaul_protocol::feature::SimpleFeature;
use gridhaul_transfer::Admission;

use self::batch::Batch;
use self::between::Between;
use self::here::Here;
pub(super) use self::length::Length;
pub(super) use self::pause::Pause;
use super::super::super::arguments::SyncArgument;
use super::super::jobs::Queue;
use super::super::shared::Shared;
use super::{Taken, Worker, is_known, open};
use crate::location::{Server, Url};
use crate::session::Session;
use crate::transfer::{Direction, TransferFailure, is_out_of_step, pipeline, pipeline_between};

impl Worker {
    /// Copies a file with those that follow in a pipeline. Gives it back if that is not possible.
    pub(super) async fn pipelined(&mut self, next: Taken, queue: &Queue) -> Option<Taken> {
        let shared = Arc::clone(&self.shared);
        let may = !next.is_alone
            && !next.job.is_only
            && !is_known(&shared, &next.job)
            && allows(&shared)
            && shared.gives_up().is_none()
            && !self.pause.has_file();
        if !may {
            return Some(next);
        }
        if let Some((direction, url, root)) = here::way(&next.job) {
            let (server, root) = (url.server.clone(), Arc::clone(root));
            return self.pipe_here(next, (direction, server, root), queue).await;
        }
        match between::way(&next.job) {
            Some((from, to)) => {
                let servers = [from, to].map(|url: &Url| url.server.clone());
                self.pipe_between(next, servers, queue).await
            }
            None => Some(next),
        }
    }

    async fn pipe_here(
        &mut self,
        next: Taken,
        (direction, server, root): (Direction, Server, Arc<Path>),
        queue: &Queue,
    ) -> Option<Taken> {
        let shared = Arc::clone(&self.shared);
        let most = shared.pipeline(&server);
        let place = match direction {
            Direction::Put => &mut self.destination,
            Direction::Get | Direction::List => &mut self.source,
        };
        let Some(mut session) = take(place, &shared, (&server, most)).await else {
            return Some(next);
        };
        let way = Here::of(&shared, &session, direction, Arc::clone(&root));
        let hosts = match (direction, &way) {
            (Direction::Get, Some(way)) => session.admits(way.settings.protection),
            _ => Admission::none(),
        };
        let files = self.files(&root, hosts);
        let left = match (way, files) {
            (Some(way), Ok(files)) => {
                let mut batch = self.batch(&shared, way, queue, most);
                match batch.begin(next) {
                    None => batch.other,
                    Some(first) => {
                        let ended = pipeline(&mut session, &files, first, &mut batch).await;
                        let complete = batch.complete;
                        batch.end(&ended);
                        self.count(complete, ended, &[&server]);
                        None
                    }
                }
            }
            _ => Some(next),
        };
        match direction {
            Direction::Put => self.destination = Some(session),
            Direction::Get | Direction::List => self.source = Some(session),
        }
        self.remove_doubtful().await;
        left
    }

    async fn pipe_between(
        &mut self,
        next: Taken,
        servers: [Server; 2],
        queue: &Queue,
    ) -> Option<Taken> {
        let shared = Arc::clone(&self.shared);
        let [from, to] = &servers;
        let most = shared.pipeline(from).min(shared.pipeline(to));
        let Some(mut source) = take(&mut self.source, &shared, (from, most)).await else {
            return Some(next);
        };
        let Some(mut destination) = take(&mut self.destination, &shared, (to, most)).await else {
            self.source = Some(source);
            return Some(next);
        };
        let left = match Between::of(&shared, &source, &destination) {
            Some(way) => {
                let mut batch = self.batch(&shared, way, queue, most);
                match batch.begin(next) {
                    None => batch.other,
                    Some(first) => {
                        let ends = (&mut source, &mut destination);
                        let ended = pipeline_between(ends.0, ends.1, first, &mut batch).await;
                        let complete = batch.complete;
                        batch.end(&ended);
                        self.count(complete, ended, &[from, to]);
                        None
                    }
                }
            }
            None => Some(next),
        };
        (self.source, self.destination) = (Some(source), Some(destination));
        self.remove_doubtful().await;
        left
    }

    /// A batch of at most so many files ahead.
    fn batch<'a, W: batch::Way>(
        &'a mut self,
        shared: &'a Shared,
        way: W,
        queue: &'a Queue,
        most: usize,
    ) -> Batch<'a, W> {
        self.length.limit(most);
        let files_ahead = (&mut self.taken, &mut self.length, &mut self.last_stored);
        Batch::new(shared, way, queue, files_ahead)
    }

    /// Notes whether pipelines are of use with these servers.
    fn count(&mut self, complete: usize, ended: Result<(), TransferFailure>, servers: &[&Server]) {
        self.pause.note(ended.is_ok() || complete > 0);
        let Err(failure) = ended else {
            return;
        };
        let cause = match &failure {
            TransferFailure::Unsettled(cause) => cause,
            failure => failure,
        };
        if is_out_of_step(cause) || matches!(cause, TransferFailure::Stalled(_)) {
            for server in servers {
                self.shared.note_unordered(server);
            }
        }
    }
}

/// Takes the session for a pipeline of this length. What fails here fails again with the file itself, and is reported then.
async fn take(
    place: &mut Option<Session>,
    shared: &Shared,
    (server, most): (&Server, usize),
) -> Option<Session> {
    if most < 2 || open(place, shared, server).await.is_err() {
        return None;
    }
    place.take()
}

/// Whether the options of the user allow pipelines.
fn allows(shared: &Shared) -> bool {
    let arguments = &shared.arguments;
    !arguments.dry_run
        && arguments.checksum_of_servers.is_none()
        && arguments.sync != Some(SyncArgument::Checksum)
        && arguments.part().is_none()
}

/// Whether uploads get the times of their sources.
fn sets_times(shared: &Shared, destination: &Session) -> bool {
    if !shared.arguments.keeps_times() {
        return false;
    }
    let has_command = destination.has(SimpleFeature::Mfmt);
    if !has_command {
        shared.note_without_times(destination.server());
    }
    has_command
}
