//! Work on files that is not a transfer: it blocks, so it runs on threads for that ([`crate::threads`]), one piece
//! at a time for each session.

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

use super::control::Control;
use super::{End, Session, User, replies};
use crate::shutdown::Phase;

/// What a piece of work may use.
pub(super) struct Files {
    pub(super) node: Arc<dyn NodeSession>,
    pub(super) storage: Arc<dyn Storage>,
    /// Thrown when the client says ABOR, or is gone.
    pub(super) cancel: Cancel,
}

/// What a client hears from time to time while it waits.
pub(super) struct News {
    interval: Duration,
    tell: Box<dyn Fn() -> Reply + Send + Sync>,
}

impl News {
    pub(super) fn every(
        interval: Duration,
        tell: impl Fn() -> Reply + Send + Sync + 'static,
    ) -> Self {
        Self {
            interval,
            tell: Box::new(tell),
        }
    }
}

impl Session {
    /// Carries out a command on a path, without argument on the current directory.
    pub(super) async fn on_path(
        &mut self,
        control: &mut Control,
        user: &User,
        argument: Option<&PathArgument>,
        work: impl FnOnce(&Files, &RemotePath) -> Result<Reply, StorageError> + Send + 'static,
    ) -> Result<Reply, End> {
        Ok(match user.path(argument) {
            Ok(path) => self
                .work(control, user, move |files| work(files, &path))
                .await?
                .unwrap_or_else(|error| replies::storage_error(&error)),
            Err(error) => replies::storage_error(&error),
        })
    }

    /// Does a piece of work on files while the control channel is read.
    pub(super) async fn work<T: Send + 'static>(
        &mut self,
        control: &mut Control,
        user: &User,
        work: impl FnOnce(&Files) -> Result<T, StorageError> + Send + 'static,
    ) -> Result<Result<T, StorageError>, End> {
        let now = std::future::ready(());
        self.work_in_turn(control, user, now, None, |files, ()| work(files))
            .await
    }

    /// The same for work that has to wait for its turn, and takes so long that the client wants to hear
    /// of it.
    pub(super) async fn work_in_turn<P: Send + 'static, T: Send + 'static>(
        &mut self,
        control: &mut Control,
        user: &User,
        turn: impl Future<Output = P>,
        news: Option<News>,
        work: impl FnOnce(&Files, P) -> Result<T, StorageError> + Send + 'static,
    ) -> Result<Result<T, StorageError>, End> {
        let cancel = Cancel::new();
        let node = Arc::clone(&user.node);
        let files = Files {
            storage: node.storage(),
            node,
            cancel: cancel.clone(),
        };
        let given_up = Notify::new();
        let (threads, source) = (&self.shared.threads, &user.source);
        let ready = async { (turn.await, threads.file_thread(source).await) };
        let job = async {
            let (turn, thread) = tokio::select! {
                ready = ready => ready,
                // It has not begun.
                () = given_up.notified() => return Err(StorageError::new("read", Errno::CANCELED)),
            };
            let done = thread.run(move || work(&files, turn)).await;
            // The session goes on after a panic.
            done.unwrap_or_else(|| Err(StorageError::new("thread", Errno::IO)))
        };
        let mut job = std::pin::pin!(job);
        let give_up = || {
            cancel.cancel();
            given_up.notify_one();
        };
        let mut due = news.as_ref().map(|news| Instant::now() + news.interval);
        loop {
            tokio::select! {
                biased;
                done = &mut job => return Ok(done),
                received = control.receive(), if control.has_room() => {
                    if received.is_err() || control.is_closed_by_client() || control.abort_waits() {
                        give_up();
                    }
                    received?;
                }
                Some(news) = next(news.as_ref(), due) => {
                    due = Some(Instant::now() + news.interval);
                    self.send(control, &(news.tell)());
                    control.flush().await?;
                }
                () = self.phase.reached(Phase::Cancelling), if !cancel.is_cancelled() => give_up(),
            }
        }
    }
}

/// Waits until there is something to tell.
async fn next(news: Option<&News>, due: Option<Instant>) -> Option<&News> {
    tokio::time::sleep_until(due?).await;
    news
}
