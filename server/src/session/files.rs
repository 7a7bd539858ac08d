//! Work on files that is not a transfer. It blocks, so it runs on threads for file work ([`crate::threads`]), one piece at
//! a time for each session.

use std::sync::Arc;
use std::time::Duration;

use gridhaul_protocol::path::{PathArgument, RemotePath};
use gridhaul_protocol::reply::Reply;
use gridhaul_stack::Cancel;
use gridhaul_storage::{Storage, StorageError};
use gridhaul_transfer::NodeSession;
use rustix::io::Errno;
use tokio::sync::Notify;
use tokio::time::Instant;

use super::call::Call;
use super::end::End;
use crate::shutdown::Phase;

/// What a piece of work may use.
pub(super) struct Files {
    pub(super) node: Arc<dyn NodeSession>,
    pub(super) storage: Arc<dyn Storage>,
    /// Thrown when the client sends `ABOR`, or is gone.
    pub(super) cancel: Cancel,
}

/// Preliminary replies to a client that waits.
pub(super) struct Progress {
    interval: Duration,
    reply: Box<dyn Fn() -> Reply + Send + Sync>,
}

impl Progress {
    pub(super) fn every(
        interval: Duration,
        reply: impl Fn() -> Reply + Send + Sync + 'static,
    ) -> Self {
        Self {
            interval,
            reply: Box::new(reply),
        }
    }
}

impl Call<'_> {
    /// Carries out a command on a path, or on the current directory.
    pub(super) async fn on_path(
        &mut self,
        argument: Option<&PathArgument>,
        work: impl FnOnce(&Files, &RemotePath) -> Result<Reply, StorageError> + Send + 'static,
    ) -> Result<Reply, End> {
        let done = match self.user.path(argument) {
            Ok(path) => self.work(move |files| work(files, &path)).await?,
            Err(error) => Err(error),
        };
        Ok(done.unwrap_or_else(|error| self.fail(&error)))
    }

    /// Runs work on files while the control channel is read.
    pub(super) async fn work<T: Send + 'static>(
        &mut self,
        work: impl FnOnce(&Files) -> Result<T, StorageError> + Send + 'static,
    ) -> Result<Result<T, StorageError>, End> {
        let now = std::future::ready(());
        self.work_after(now, None, |files, ()| work(files)).await
    }

    /// The same for work that starts after `ready`, and may take so long that the client wants to see progress.
    pub(super) async fn work_after<P: Send + 'static, T: Send + 'static>(
        &mut self,
        ready: impl Future<Output = P>,
        progress: Option<Progress>,
        work: impl FnOnce(&Files, P) -> Result<T, StorageError> + Send + 'static,
    ) -> Result<Result<T, StorageError>, End> {
        let done = self.run(ready, progress, work).await?;
        if let Err(error) = &done {
            self.context.failure = Some(error.into());
        }
        Ok(done)
    }

    async fn run<P: Send + 'static, T: Send + 'static>(
        &mut self,
        ready: impl Future<Output = P>,
        progress: Option<Progress>,
        work: impl FnOnce(&Files, P) -> Result<T, StorageError> + Send + 'static,
    ) -> Result<Result<T, StorageError>, End> {
        let cancel = Cancel::new();
        let node = Arc::clone(&self.user.node);
        let files = Files {
            storage: node.storage(),
            node,
            cancel: cancel.clone(),
        };
        let given_up = Notify::new();
        let threads = &self.context.shared.threads;
        let source = &self.user.source;
        let admitted = async { (ready.await, threads.file_thread(source).await) };
        let job = async {
            let (grant, thread) = tokio::select! {
                admitted = admitted => admitted,
                // It has not begun.
                () = given_up.notified() => return Err(StorageError::new("read", Errno::CANCELED)),
            };
            let done = thread.run(move || work(&files, grant)).await;
            // The session continues after a panic.
            done.unwrap_or_else(|| Err(StorageError::new("thread", Errno::IO)))
        };
        let mut job = std::pin::pin!(job);
        let give_up = || {
            cancel.cancel();
            given_up.notify_one();
        };
        let mut due = progress
            .as_ref()
            .map(|progress| Instant::now() + progress.interval);
        loop {
            tokio::select! {
                biased;
                done = &mut job => return Ok(done),
                received = self.control.receive(), if self.control.has_room() => {
                    let control = &self.control;
                    if received.is_err() || control.is_closed_by_client() || control.abort_waits() {
                        give_up();
                    }
                    received?;
                }
                Some(progress) = next(progress.as_ref(), due) => {
                    due = Some(Instant::now() + progress.interval);
                    self.context.send(self.control, &(progress.reply)());
                    self.control.flush().await?;
                }
                () = self.context.phase.reached(Phase::Cancelling), if !cancel.is_cancelled() => give_up(),
            }
        }
    }
}

/// Waits until progress is due.
async fn next(progress: Option<&Progress>, due: Option<Instant>) -> Option<&Progress> {
    tokio::time::sleep_until(due?).await;
    progress
}
