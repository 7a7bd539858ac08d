//! One transfer from its beginning to its end, on the threads of the node or where the session is.
//!
//! A client that copies small files one after the other waits for each of them. To wake a worker for a file,
//! and the session when it is done, takes longer than all the rest. So the session's own thread opens the
//! file, and moves it if nothing has to wait for the peer: a file that goes out with one call, or one that
//! has come by the time the thread would begin to sleep. Everything else goes on with a worker.

use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use gridhaul_protocol::command::TransferMode;
use gridhaul_protocol::ranges::RangeSet;
use gridhaul_stack::Operation;

use super::session::{Context, Opened, Slot, give_back};
use super::{DataChannel, DataChannels};
use crate::checksums::Arrival;
use crate::error::CancelReason;
use crate::error::TransferError;
use crate::node::{Plan, Progress, RunningTransfer, SyncPolicy, Task};
use crate::receive::READ_AHEAD_BYTES;
use crate::running::Running;
use crate::sync::lock;

/// How long the session's thread waits for a small file to come: as long as a peer on the same network
/// needs.
const PATIENCE: Duration = Duration::from_micros(500);

/// After a peer was slower, so many files go to workers at once.
const SLOW_FILES: u32 = 16;

/// Whether the peer of a session sends its small files quickly.
#[derive(Debug, Default)]
pub(super) struct Pace {
    /// Files that are left to workers.
    slow_files: AtomicU32,
}

/// A transfer with all that it works with.
pub(super) struct Job {
    pub(super) context: Context,
    pub(super) plan: Plan,
    pub(super) channels: DataChannels,
    pub(super) slot: Arc<Mutex<Slot>>,
    pub(super) pace: Arc<Pace>,
}

impl Job {
    /// Whether a transfer with this plan, on these channels, may be over before it has waited for anything.
    pub(super) fn may_be_quick(plan: &Plan, channels: &DataChannels, pace: &Pace) -> bool {
        let is_small = match &plan.task {
            // How long it is will be seen when it is open.
            Task::SendFile { restart, .. } => restart.is_empty(),
            Task::ReceiveFile {
                restart, promised, ..
            } => {
                restart.is_empty()
                    && promised.is_some_and(|bytes| bytes <= READ_AHEAD_BYTES as u64)
                    && pace.is_quick()
            }
            Task::SendLines(_) => false,
        };
        is_small
            && plan.mode == TransferMode::Extended
            && plan.handling.sync == SyncPolicy::None
            && !plan.handling.ordered
            && !Arrival::needs_thread(&plan.handling.checksums)
            && channels.only_kept().is_some()
    }

    /// Does all of it on a thread of the node.
    pub(super) fn run_beside(self) {
        self.spawn(|job| {
            let opened = job.open();
            job.go_on(opened);
        });
    }

    /// Begins on this thread, and returns what waits for its time: a file that is open to receive.
    pub(super) fn begin_here(self) -> Option<Held> {
        match self.open() {
            Err(error) => self.go_on(Err(error)),
            Ok(opened) if self.goes_out_at_once(&opened) => self.go_on(Ok(opened)),
            Ok(opened @ Opened::Receive(_)) if self.has_free_worker() => {
                self.context.running.start(true);
                return Some(Held { job: self, opened });
            }
            Ok(opened) => self.spawn(|job| job.go_on(Ok(opened))),
        }
        None
    }

    fn goes_out_at_once(&self, opened: &Opened) -> bool {
        let Opened::Send(part) = opened else {
            return false;
        };
        let bytes = part.small_bytes(self.context.shared.buffers.buffer_bytes());
        let room = |bytes| {
            let only = self.channels.only_kept();
            only.is_some_and(|kept| kept.channel.takes_at_once(bytes))
        };
        bytes.is_some_and(room) && self.has_free_worker()
    }

    /// This thread must not stand in the queue for a permit.
    fn has_free_worker(&self) -> bool {
        let shared = &self.context.shared;
        let permits = match self.plan.task {
            Task::ReceiveFile { .. } => &shared.receivers,
            _ => &shared.senders,
        };
        permits.take_free(&self.context.account.source, 1).count() == 1
    }

    /// Opens what the transfer moves.
    fn open(&self) -> Result<Opened, TransferError> {
        caught(|| self.context.open(&self.plan, &self.channels))
    }

    /// Moves what was opened, and ends the transfer.
    fn go_on(mut self, opened: Result<Opened, TransferError>) {
        let moved = opened.and_then(|opened| {
            caught(|| {
                self.context
                    .carry_out(&self.plan, opened, &mut self.channels)
            })
        });
        let running = &self.context.running;
        if let Err(error) = moved {
            running.fail(error);
        }
        give_back(&self.slot, &self.plan, self.channels, running);
        running.finish();
    }

    /// Does a part of it on a thread of the node.
    fn spawn(self, work: impl FnOnce(Self) + Send + 'static) {
        let shared = self.context.shared.clone();
        let (running, slot) = (self.context.running.clone(), self.slot.clone());
        if let Err(error) = shared.threads.run(Box::new(move || work(self))) {
            *lock(&slot) = Slot::Empty;
            running.fail(TransferError::Local(format!("no thread is left: {error}")));
            running.finish();
        }
    }
}

/// A panic ends the transfer, and nothing else.
fn caught<T>(work: impl FnOnce() -> Result<T, TransferError>) -> Result<T, TransferError> {
    catch_unwind(AssertUnwindSafe(work)).unwrap_or_else(|_| Err(TransferError::panicked()))
}

impl Pace {
    fn is_quick(&self) -> bool {
        let next = |left: u32| left.checked_sub(1);
        let counted = self
            .slow_files
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, next);
        counted.is_err()
    }

    fn note(&self, was_quick: bool) {
        if !was_quick {
            self.slow_files.store(SLOW_FILES, Ordering::Relaxed);
        }
    }
}

/// A file that is open to receive what the session's start reply will bring.
pub(super) struct Held {
    job: Job,
    opened: Opened,
}

impl Held {
    /// Receives the file here if it comes soon.
    fn go_on_here(mut self) {
        let running = self.job.context.running.clone();
        let operation = Operation {
            deadline: Some(Instant::now() + PATIENCE),
            cancel: &running.cancel,
        };
        let only = self.job.channels.only_kept_mut();
        let has_come = only.is_some_and(|DataChannel { channel, reader }| {
            reader.receive_whole(&mut **channel, &operation)
        });
        self.job.pace.note(has_come);
        if has_come {
            self.job.go_on(Ok(self.opened));
        } else {
            self.go_on_beside();
        }
    }

    fn go_on_beside(self) {
        let Self { job, opened } = self;
        job.spawn(|job| job.go_on(Ok(opened)));
    }
}

/// A transfer that was begun where the session is.
pub(super) struct BegunHere {
    pub(super) running: Arc<Running>,
    pub(super) held: Mutex<Option<Held>>,
}

impl RunningTransfer for BegunHere {
    fn cancel(&self, reason: CancelReason) {
        self.running.cancel(reason);
        // It was cancelled, and must still be ended on a thread.
        self.go_on_beside();
    }

    fn progress(&self) -> Progress {
        self.running.progress()
    }

    fn take_received(&self) -> RangeSet {
        self.running.take_received()
    }

    fn is_settling(&self) -> bool {
        self.running.is_settling()
    }

    fn is_held(&self) -> bool {
        lock(&self.held).is_some()
    }

    fn go_on_here(&self) {
        let held = lock(&self.held).take();
        if let Some(held) = held {
            held.go_on_here();
        }
    }

    fn go_on_beside(&self) {
        let held = lock(&self.held).take();
        if let Some(held) = held {
            held.go_on_beside();
        }
    }
}

impl fmt::Debug for BegunHere {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BegunHere")
            .field("running", &self.running)
            .finish_non_exhaustive()
    }
}
