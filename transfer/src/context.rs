//! The environment of a transfer: the resources of the node, the session's files, and the transfer's state.

use std::sync::Arc;
use std::time::{Duration, Instant};

use gridhaul_stack::{ChannelError, Operation};
use gridhaul_storage::{Checksums, Storage};

use crate::buffers::{Buffer, BufferPool};
use crate::error::TransferError;
use crate::look_ahead::LookAhead;
use crate::node::{Event, NodeAccount};
use crate::running::Running;
use crate::throttle::Throttle;
use crate::uploads::Uploads;
use crate::workers::{Threads, WorkerGroup, WorkerLimit, WorkerPermit};

/// The limited resources that all transfers of a node share.
#[derive(Debug)]
pub(crate) struct Resources {
    pub(crate) senders: WorkerLimit,
    pub(crate) receivers: WorkerLimit,
    pub(crate) threads: Arc<Threads>,
    pub(crate) buffers: Arc<BufferPool>,
    /// The uploads under temporary names that are running.
    pub(crate) uploads: Arc<Uploads>,
    /// Computes and remembers the checksums of files.
    pub(crate) checksums: Checksums,
    /// The time limit for a data connection, or for an announced EOD.
    pub(crate) data_timeout: Duration,
}

/// The environment of one transfer; a clone refers to the same transfer.
#[derive(Debug, Clone)]
pub(crate) struct Context {
    pub(crate) resources: Arc<Resources>,
    pub(crate) account: NodeAccount,
    pub(crate) storage: Arc<dyn Storage>,
    pub(crate) look_ahead: Arc<LookAhead>,
    pub(crate) running: Arc<Running>,
    /// The limits of bandwidth, if there are any.
    pub(crate) throttle: Option<Arc<Throttle>>,
}

impl Context {
    /// Takes the permit for up to `count` workers; reports [`Event::Queued`] if it has to wait.
    pub(crate) fn permit(
        &self,
        limit: &WorkerLimit,
        count: usize,
    ) -> Result<WorkerPermit, ChannelError> {
        let queued = |ahead| self.running.report(Event::Queued { ahead });
        limit.take(&self.account.source, count, &self.running.cancel, &queued)
    }

    /// Takes a buffer; waits until one is free.
    pub(crate) fn buffer(&self) -> Result<Buffer, TransferError> {
        let buffers = &self.resources.buffers;
        buffers.take(&self.account.source, &self.running.cancel)
    }

    /// Pays for bytes that a worker is about to send, or has received; waits until they fit into the limits of bandwidth.
    pub(crate) fn pay(&self, bytes: u64) -> Result<(), TransferError> {
        match &self.throttle {
            Some(throttle) => throttle.pay(&self.running, bytes),
            None => Ok(()),
        }
    }

    /// How many of `most` bytes a worker may move before it pays.
    pub(crate) fn piece_bytes(&self, most: u64) -> u64 {
        let throttle = self.throttle.as_ref();
        throttle.map_or(most, |throttle| throttle.piece_bytes().min(most))
    }

    /// A group for further workers of the transfer.
    pub(crate) fn workers(&self) -> WorkerGroup {
        WorkerGroup::new(&self.resources.threads, &self.running)
    }

    /// A call that must finish within the data timeout: connection setup, or a small file sent at once.
    pub(crate) fn timed_operation(&self) -> Operation<'_> {
        Operation {
            deadline: Some(Instant::now() + self.resources.data_timeout),
            cancel: &self.running.cancel,
        }
    }
}
