//! One session's side of the node in the same process.

use std::net::SocketAddr;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use gridhaul_protocol::command::TransferMode;
use gridhaul_protocol::stack::StackSpec;
use gridhaul_stack::{Cancel, Driver, Stack, StackError};
use gridhaul_storage::{ChecksumAlgorithm, Storage, StorageError, checksum};

use super::{AccountFiles, DataChannels, DataPort, NodeShared};
use crate::node::{
    ConnectRequest, EventSink, ListenFailure, ListenRequest, NodeAccount, NodeSession, Plan,
    RunningTransfer, Task,
};
use crate::running::Running;
use crate::sync::lock;
use crate::{SequenceError, TransferError, receive, send};

/// A session attached to a [`super::LocalNode`].
#[derive(Debug)]
pub(crate) struct LocalSession {
    shared: Arc<NodeShared>,
    account: NodeAccount,
    files: AccountFiles,
    channels: Arc<Mutex<Slot>>,
}

/// Where the session's channels are.
#[derive(Debug, Default)]
enum Slot {
    /// Nothing was arranged.
    #[default]
    Empty,
    /// Ready for a transfer.
    Ready(DataChannels),
    /// A transfer has them, and will put them back unless somebody asks for others before.
    Lent,
    /// A transfer failed before it used them. They serve no other, but the port stays open: the other
    /// end of a third-party copy may be about to connect, and its "connection refused" would reach the
    /// client before the reason does.
    Spent { _port: DataChannels },
}

impl LocalSession {
    pub(super) fn new(shared: Arc<NodeShared>, account: NodeAccount, files: AccountFiles) -> Self {
        Self {
            shared,
            account,
            files,
            channels: Arc::default(),
        }
    }

    /// The node's drivers and those of the session make its stacks.
    fn stack(
        &self,
        spec: &StackSpec,
        session_drivers: &[Arc<dyn Driver>],
    ) -> Result<Stack, StackError> {
        let registry = &self.shared.config.registry;
        registry.with(session_drivers).build(spec)
    }

    /// Takes the channels for a transfer.
    fn lend(&self) -> Result<DataChannels, SequenceError> {
        let mut slot = lock(&self.channels);
        match std::mem::take(&mut *slot) {
            Slot::Ready(channels) => {
                *slot = Slot::Lent;
                Ok(channels)
            }
            Slot::Empty => Err(SequenceError::NoDataPort),
            Slot::Spent { _port } => {
                *slot = Slot::Spent { _port };
                Err(SequenceError::NoDataPort)
            }
            Slot::Lent => {
                *slot = Slot::Lent;
                Err(SequenceError::Busy)
            }
        }
    }
}

impl NodeSession for LocalSession {
    fn storage(&self) -> Arc<dyn Storage> {
        self.files.storage.clone()
    }

    fn home(&self) -> PathBuf {
        self.files.home.clone()
    }

    fn checksum(
        &self,
        path: &Path,
        algorithm: ChecksumAlgorithm,
        offset: u64,
        length: Option<u64>,
        cancel: &Cancel,
    ) -> Result<String, StorageError> {
        let file = self.files.storage.open_read(path)?;
        checksum(&file, algorithm, offset, length, &|| cancel.is_cancelled())
    }

    fn listen(&self, request: &ListenRequest) -> Result<Vec<SocketAddr>, ListenFailure> {
        // The old listeners go first: their ports may be all that the range has.
        *lock(&self.channels) = Slot::Empty;
        let stack = self.stack(&request.stack, &request.session_drivers)?;
        let mut listeners = Vec::with_capacity(request.local.len());
        for &local in &request.local {
            listeners.push(stack.listen(local, &request.sockets)?);
        }
        let addresses = listeners
            .iter()
            .map(|listener| listener.address())
            .collect();
        *lock(&self.channels) = Slot::Ready(DataChannels::new(DataPort::Passive(listeners)));
        Ok(addresses)
    }

    fn connect(&self, request: &ConnectRequest) -> Result<(), StackError> {
        *lock(&self.channels) = Slot::Empty;
        let stack = self.stack(&request.stack, &request.session_drivers)?;
        let port = DataPort::Active {
            stack,
            peers: request.peers.clone(),
            sockets: request.sockets,
        };
        *lock(&self.channels) = Slot::Ready(DataChannels::new(port));
        Ok(())
    }

    fn release(&self) {
        *lock(&self.channels) = Slot::Empty;
    }

    fn transfer(&self, plan: Plan, events: EventSink) -> Arc<dyn RunningTransfer> {
        let mut channels = match self.lend() {
            Ok(channels) => channels,
            Err(error) => return failed(events, error.into()),
        };
        let running = Running::new(channels.stripes(), events);
        let job = {
            let context = Context {
                shared: self.shared.clone(),
                account: self.account.clone(),
                storage: self.files.storage.clone(),
                running: running.clone(),
            };
            let slot = self.channels.clone();
            move || {
                let result = catch_unwind(AssertUnwindSafe(|| context.run(&plan, &mut channels)));
                match result {
                    Ok(Ok(())) => {}
                    Ok(Err(error)) => context.running.fail(error),
                    Err(_) => context.running.fail(TransferError::panicked()),
                }
                give_back(&slot, &plan, channels, &context.running);
                context.running.finish();
            }
        };
        if let Err(error) = self.shared.threads.run(Box::new(job)) {
            *lock(&self.channels) = Slot::Empty;
            running.fail(TransferError::Local(format!("no thread is left: {error}")));
            running.finish();
        }
        running
    }
}

/// Keeps the channels of a MODE E transfer for the next one. After a failure nobody knows what is still
/// under way on them.
fn give_back(slot: &Mutex<Slot>, plan: &Plan, channels: DataChannels, running: &Running) {
    let mut slot = lock(slot);
    if matches!(*slot, Slot::Lent) {
        *slot = match (running.failed(), plan.mode) {
            (false, TransferMode::Extended) => Slot::Ready(channels),
            (true, _) if !running.used_channels() => Slot::Spent { _port: channels },
            _ => Slot::Empty,
        };
    }
}

/// A transfer that never began.
fn failed(events: EventSink, error: TransferError) -> Arc<dyn RunningTransfer> {
    let running = Running::new(1, events);
    running.fail(error);
    running.finish();
    running
}

/// What the parts of one transfer work with.
#[derive(Debug, Clone)]
pub(crate) struct Context {
    pub(crate) shared: Arc<NodeShared>,
    pub(crate) account: NodeAccount,
    pub(crate) storage: Arc<dyn Storage>,
    pub(crate) running: Arc<Running>,
}

impl Context {
    fn run(&self, plan: &Plan, channels: &mut DataChannels) -> Result<(), TransferError> {
        match &plan.task {
            Task::SendFile {
                path,
                offset,
                length,
                restart,
            } => {
                let part = send::Part {
                    path,
                    offset: *offset,
                    length: *length,
                    restart,
                };
                send::file(self, plan, part, channels)
            }
            Task::SendLines(source) => send::lines(self, plan, source, channels),
            Task::ReceiveFile {
                path,
                placement,
                restart,
                promised,
            } => {
                let target = receive::Target {
                    path,
                    placement: *placement,
                    restart,
                    promised: *promised,
                };
                receive::file(self, plan, target, channels)
            }
        }
    }
}
