//! One session's side of the node in the same process.

use std::collections::hash_map::RandomState;
use std::hash::BuildHasher as _;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, LazyLock, Mutex};
use std::time::SystemTime;

use gridhaul_protocol::command::TransferMode;
use gridhaul_protocol::stack::StackSpec;
use gridhaul_shares::Source;
use gridhaul_stack::{Cancel, Driver, Party, Stack, StackError};
use gridhaul_storage::{ChecksumWatch, FoundChecksum, Storage, StorageError, StoredFile};

use super::job::{BegunHere, Job, Pace};
use super::{AccountFiles, DataChannels, DataPort, LookAhead, NodeShared};
use crate::checksums::Arrival;
use crate::error::{SequenceError, TransferError};
use crate::node::{
    ChecksumRequest, ConnectRequest, EventSink, Handling, LineSource, ListenFailure, ListenRequest,
    NodeAccount, NodeSession, Plan, Relabel, RunningTransfer, Task,
};
use crate::running::Running;
use crate::sync::lock;
use crate::{receive, send};

/// A session attached to a [`super::LocalNode`].
#[derive(Debug)]
pub(crate) struct LocalSession {
    shared: Arc<NodeShared>,
    account: NodeAccount,
    files: AccountFiles,
    channels: Arc<Mutex<Slot>>,
    pace: Arc<Pace>,
    ahead: Arc<LookAhead>,
}

/// Where the session's channels are.
#[derive(Debug, Default)]
pub(super) enum Slot {
    /// Nothing was arranged.
    #[default]
    Empty,
    /// Ready for a transfer.
    Ready(DataChannels),
    /// A transfer has them, and will put them back unless the client asks for others before.
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
            pace: Arc::default(),
            ahead: Arc::default(),
        }
    }

    /// A file by its name.
    fn stored<'a>(&'a self, path: &'a Path) -> StoredFile<'a> {
        StoredFile {
            storage: &*self.files.storage,
            path,
        }
    }

    /// The node's drivers and those of the session make its stacks.
    fn stack(
        &self,
        spec: &StackSpec,
        session_drivers: &[Arc<dyn Driver>],
    ) -> Result<Stack, StackError> {
        let registry = &self.shared.config.registry;
        let stack = registry.with(session_drivers).build(spec)?;
        Ok(stack.serving(party(&self.account.source)))
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

    /// Has those checksums computed that clients will ask for.
    fn expect_checksums(&self, plan: &mut Plan) {
        let Handling {
            checksums,
            checksums_asked_for: true,
            ..
        } = &mut plan.handling
        else {
            return;
        };
        for algorithm in self.shared.asked.lately() {
            if !checksums.contains(&algorithm) {
                checksums.push(algorithm);
            }
        }
    }

    /// All that a transfer needs, or one that never began.
    fn job(&self, mut plan: Plan, events: EventSink) -> Result<Job, Arc<Running>> {
        self.expect_checksums(&mut plan);
        let channels = match self.lend() {
            Ok(channels) => channels,
            Err(error) => return Err(failed(events, error.into())),
        };
        let context = Context {
            shared: self.shared.clone(),
            account: self.account.clone(),
            storage: self.files.storage.clone(),
            ahead: self.ahead.clone(),
            running: Running::new(channels.stripes(), events),
        };
        Ok(Job {
            context,
            plan,
            channels,
            slot: self.channels.clone(),
            pace: self.pace.clone(),
        })
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
        request: &ChecksumRequest,
        done: &AtomicU64,
        cancel: &Cancel,
    ) -> Result<FoundChecksum, StorageError> {
        let file = self.files.storage.open_read(&request.path)?;
        let watch = ChecksumWatch {
            done,
            cancelled: &|| cancel.is_cancelled(),
        };
        let (offset, length) = (request.offset, request.length);
        if (offset, length) == (0, None) {
            self.shared.asked.note(request.algorithm, &file);
        }
        let file = (&file, &self.stored(&request.path));
        self.shared
            .checksums
            .of(file, request.algorithm, (offset, length), &watch)
    }

    fn set_modified(&self, path: &Path, modified: SystemTime) -> Result<(), StorageError> {
        let storage = &self.files.storage;
        match storage.open_read(path) {
            Ok(file) => {
                let (memory, stored) = (self.shared.checksums.memory(), self.stored(path));
                memory.keep_while_modified(&file, &stored, modified)
            }
            // A directory, or a file that may not be read: there is nothing to keep.
            Err(_) => storage.set_modified(path, modified),
        }
    }

    fn relabel(&self, path: &Path, change: Relabel<'_>) -> Result<(), StorageError> {
        let storage = &self.files.storage;
        let path_after = match change {
            Relabel::Name(to) => to,
            Relabel::Mode(_) | Relabel::Group(_) => path,
        };
        let relabel = || match change {
            Relabel::Name(to) => storage.rename(path, to),
            Relabel::Mode(mode) => storage.set_mode(path, mode),
            Relabel::Group(group) => storage.set_group(path, group),
        };
        match storage.open_read(path) {
            Ok(file) => {
                let names = (&self.stored(path), &self.stored(path_after));
                let memory = self.shared.checksums.memory();
                memory.keep_while_relabelled(&file, names, relabel)
            }
            // As above.
            Err(_) => relabel(),
        }
    }

    fn listen(&self, request: &ListenRequest) -> Result<Vec<SocketAddr>, ListenFailure> {
        // The old listeners go first: their ports may be all that the range has.
        *lock(&self.channels) = Slot::Empty;
        let stack = self.stack(&request.stack, &request.session_drivers)?;
        let mut listeners = Vec::with_capacity(request.local.len());
        for &local in &request.local {
            listeners.push(stack.listen(local, &request.sockets)?);
        }
        let addresses: Vec<_> = listeners
            .iter()
            .map(|listener| listener.address())
            .collect();
        let ports = addresses.iter();
        let open = ports.map(|address| self.shared.open_ports.open(*address));
        let channels = DataChannels::new(DataPort::Passive(listeners), open.collect());
        *lock(&self.channels) = Slot::Ready(channels);
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
        *lock(&self.channels) = Slot::Ready(DataChannels::new(port, Vec::new()));
        Ok(())
    }

    fn release(&self) {
        *lock(&self.channels) = Slot::Empty;
    }

    fn looks_ahead(&self) -> bool {
        self.ahead.is_wanted()
    }

    fn look_ahead(&self, paths: Vec<PathBuf>) {
        let threads = &self.shared.threads;
        self.ahead.begin(paths, &self.files.storage, threads);
    }

    fn transfer(&self, plan: Plan, events: EventSink) -> Arc<dyn RunningTransfer> {
        match self.job(plan, events) {
            Ok(job) => {
                let running = job.context.running.clone();
                job.run_beside();
                running
            }
            Err(running) => running,
        }
    }

    fn may_be_quick(&self, plan: &Plan) -> bool {
        let asked = self.shared.asked.lately().collect::<Vec<_>>();
        if plan.handling.checksums_asked_for && Arrival::needs_thread(&asked) {
            return false;
        }
        match &*lock(&self.channels) {
            Slot::Ready(channels) => Job::may_be_quick(plan, channels, &self.pace),
            _ => false,
        }
    }

    fn transfer_here(&self, plan: Plan, events: EventSink) -> Arc<dyn RunningTransfer> {
        match self.job(plan, events) {
            Ok(job) => {
                let running = job.context.running.clone();
                let held = Mutex::new(job.begin_here());
                Arc::new(BegunHere { running, held })
            }
            Err(running) => running,
        }
    }
}

/// Keeps the channels of a MODE E transfer for the next one. After a failure it is unknown what is still
/// under way on them.
pub(super) fn give_back(
    slot: &Mutex<Slot>,
    plan: &Plan,
    channels: DataChannels,
    running: &Running,
) {
    let mut slot = lock(slot);
    if matches!(*slot, Slot::Lent) {
        *slot = match (running.failed(), plan.mode) {
            (false, TransferMode::Extended) => Slot::Ready(channels),
            (true, _) if !running.used_channels() => Slot::Spent { _port: channels },
            _ => Slot::Empty,
        };
    }
}

/// Accounts, and the networks of clients without one, as drivers tell them from each other.
fn party(source: &Source) -> Party {
    // With a key of this process, so that no client can choose the number of another one.
    static KEY: LazyLock<RandomState> = LazyLock::new(RandomState::new);
    Party(match &source.account {
        Some(account) => KEY.hash_one(account),
        None => KEY.hash_one(source.network),
    })
}

/// A transfer that never began.
fn failed(events: EventSink, error: TransferError) -> Arc<Running> {
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
    pub(crate) ahead: Arc<LookAhead>,
    pub(crate) running: Arc<Running>,
}

/// What a transfer moves, open and allowed.
pub(super) enum Opened {
    Send(send::FilePart),
    /// Lines are opened by the code that sends them.
    Lines(LineSource),
    Receive(receive::OpenedTarget),
}

impl Context {
    /// Opens what a transfer moves: the first half of it.
    pub(super) fn open(
        &self,
        plan: &Plan,
        channels: &DataChannels,
    ) -> Result<Opened, TransferError> {
        Ok(match &plan.task {
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
                Opened::Send(send::open(self, plan, part, channels)?)
            }
            Task::SendLines(source) => Opened::Lines(source.clone()),
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
                Opened::Receive(receive::open(self, plan, target, channels)?)
            }
        })
    }

    /// Moves what was opened: the other half.
    pub(super) fn carry_out(
        &self,
        plan: &Plan,
        opened: Opened,
        channels: &mut DataChannels,
    ) -> Result<(), TransferError> {
        match opened {
            Opened::Send(part) => send::file(self, plan, part, channels),
            Opened::Lines(source) => send::lines(self, plan, &source, channels),
            Opened::Receive(target) => receive::file(self, plan, target, channels),
        }
    }
}
