//! One transfer from start to end, on the threads of the node or partly on that of the session.
//!
//! A client that copies small files one after the other waits for each of them. Waking a worker for a file,
//! and the session at its end, takes longer than the transfer itself. So the session's own thread opens the
//! file, and moves the data if it does not have to wait for the peer: a file that is sent with one call, or one that
//! arrives before the thread would go to sleep. All other transfers continue on a worker.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::{Duration, Instant};

use gridhaul_protocol::command::TransferMode;
use gridhaul_stack::Operation;

use super::channel_slot::ChannelSlot;
use super::opened::Opened;
use super::pace::Pace;
use crate::channels::{DataChannel, DataChannels, READ_AHEAD_BYTES};
use crate::checksums::Arrival;
use crate::context::Context;
use crate::error::TransferError;
use crate::node::{Plan, SyncPolicy, Task, UploadName};

/// How long the session's thread waits for a small file: enough for a peer on the same network.
const TIME_LIMIT: Duration = Duration::from_micros(500);

/// A transfer with everything that it needs.
pub(super) struct Job {
    pub(super) context: Context,
    pub(super) plan: Plan,
    pub(super) channels: DataChannels,
    pub(super) slot: Arc<ChannelSlot>,
    pub(super) pace: Arc<Pace>,
}

impl Job {
    /// Whether a transfer with this plan, on these channels, may finish without waiting for the peer.
    pub(super) fn may_be_quick(plan: &Plan, channels: &DataChannels, pace: &Pace) -> bool {
        let is_small = match &plan.task {
            // The size is unknown before the file is open.
            Task::SendFile { restart, .. } => restart.is_empty(),
            Task::ReceiveFile {
                restart, promised, ..
            } => {
                restart.is_empty()
                    && promised.is_some_and(|bytes| bytes <= READ_AHEAD_BYTES as u64)
                    && pace.is_quick()
            }
            Task::SendLines(_) | Task::ReceiveBytes(_) => false,
        };
        is_small
            && plan.mode == TransferMode::Extended
            // The end of a file of several nodes depends on the others.
            && plan.share.is_none()
            && plan.handling.sync == SyncPolicy::None
            // The thread of a session does not wait for bandwidth.
            && plan.handling.bandwidth.is_empty()
            // Such an upload may have to wait for another one of the same name, or for consent.
            && (plan.handling.upload == UploadName::Final || is_sent(plan) || is_consented(plan))
            && !plan.handling.ordered
            && !Arrival::needs_thread(&plan.handling.checksums)
            && channels.only_kept().is_some()
    }

    /// Runs the whole transfer on a worker.
    pub(super) fn run_on_worker(self) {
        self.spawn(|job| {
            let opened = job.open();
            job.finish(opened);
        });
    }

    /// Starts the transfer on the calling thread. Returns a file that is open for receiving and waits for the
    /// start reply.
    pub(super) fn begin_here(self) -> Option<Held> {
        match self.open() {
            Err(error) => self.finish(Err(error)),
            Ok(opened) if self.fits_socket_buffer(&opened) => self.finish(Ok(opened)),
            Ok(opened @ Opened::Receive(_))
                if self.plan.share.is_none() && self.has_free_worker() =>
            {
                self.context.running.report_start(true);
                return Some(Held { job: self, opened });
            }
            Ok(opened) => self.spawn(|job| job.finish(Ok(opened))),
        }
        None
    }

    /// Whether the channel accepts the whole file without blocking.
    fn fits_socket_buffer(&self, opened: &Opened) -> bool {
        let Opened::Send(part) = opened else {
            return false;
        };
        let bytes = part.small_bytes(self.context.resources.buffers.buffer_bytes());
        let has_room = |bytes| {
            let only = self.channels.only_kept();
            only.is_some_and(|kept| kept.channel.takes_at_once(bytes))
        };
        bytes.is_some_and(has_room) && self.has_free_worker()
    }

    /// Whether a permit is available; the session's thread must not wait for one.
    fn has_free_worker(&self) -> bool {
        let resources = &self.context.resources;
        let limit = match self.plan.task {
            Task::ReceiveFile { .. } | Task::ReceiveBytes(_) => &resources.receivers,
            _ => &resources.senders,
        };
        limit.take_free(&self.context.account.source, 1).count() == 1
    }

    fn open(&self) -> Result<Opened, TransferError> {
        catch_panic(|| Opened::open(&self.context, &self.plan, &self.channels))
    }

    /// Moves the data, and ends the transfer.
    fn finish(mut self, opened: Result<Opened, TransferError>) {
        let moved = opened.and_then(|opened| {
            catch_panic(|| opened.transfer(&self.context, &self.plan, &mut self.channels))
        });
        let running = &self.context.running;
        if let Err(error) = moved {
            running.fail(error);
        }
        self.slot.give_back(self.plan.mode, self.channels, running);
        running.finish();
    }

    /// Continues on a worker.
    fn spawn(self, work: impl FnOnce(Self) + Send + 'static) {
        let resources = self.context.resources.clone();
        let (running, slot) = (self.context.running.clone(), self.slot.clone());
        if let Err(error) = resources.threads.run(move || work(self)) {
            slot.clear();
            running.fail(error);
            running.finish();
        }
    }
}

fn is_sent(plan: &Plan) -> bool {
    matches!(plan.task, Task::SendFile { .. })
}

/// Whether the session has agreed to a received file already, as only a client does.
fn is_consented(plan: &Plan) -> bool {
    let consent = plan.handling.demands.consent.as_ref();
    consent.is_some_and(|consent| consent.is_answered())
}

/// Turns a panic into an error of the transfer.
fn catch_panic<T>(work: impl FnOnce() -> Result<T, TransferError>) -> Result<T, TransferError> {
    catch_unwind(AssertUnwindSafe(work)).unwrap_or_else(|_| Err(TransferError::panicked()))
}

/// A transfer whose file is open for receiving, and whose peer waits for the start reply.
pub(super) struct Held {
    job: Job,
    opened: Opened,
}

impl Held {
    /// Whether the peer has sent some of the file, without waiting for the start reply.
    pub(super) fn has_begun_to_arrive(&self) -> bool {
        let only = self.job.channels.only_kept();
        only.is_some_and(|kept| kept.reader.has_input(&*kept.channel))
    }

    /// Receives the file on the calling thread if it arrives quickly, else on a worker.
    pub(super) fn resume_here(mut self) {
        let running = self.job.context.running.clone();
        let operation = Operation {
            deadline: Some(Instant::now() + TIME_LIMIT),
            cancel: &running.cancel,
        };
        let only = self.job.channels.only_kept_mut();
        let has_arrived = only.is_some_and(|DataChannel { channel, reader }| {
            reader.receive_whole(&mut **channel, &operation)
        });
        self.job.pace.note(has_arrived);
        if has_arrived {
            self.job.finish(Ok(self.opened));
        } else {
            self.resume_on_worker();
        }
    }

    /// Receives the file on a worker.
    pub(super) fn resume_on_worker(self) {
        let Self { job, opened } = self;
        job.spawn(|job| job.finish(Ok(opened)));
    }
}
