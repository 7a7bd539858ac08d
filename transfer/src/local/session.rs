//! A session that is attached to the node in the same process.

use std::collections::hash_map::RandomState;
use std::hash::BuildHasher as _;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, LazyLock};
use std::time::SystemTime;

use gridhaul_protocol::stack::StackSpec;
use gridhaul_shares::Source;
use gridhaul_stack::{Cancel, Driver, Party, Stack, StackError};
use gridhaul_storage::{ChecksumWatch, FoundChecksum, Storage, StorageError, StoredFile};

use super::channel_slot::ChannelSlot;
use super::config::AccountFiles;
use super::inline_transfer::InlineTransfer;
use super::job::Job;
use super::pace::Pace;
use super::shared::NodeShared;
use crate::channels::{DataChannels, DataPort};
use crate::checksums::Arrival;
use crate::context::Context;
use crate::error::TransferError;
use crate::look_ahead::LookAhead;
use crate::node::{
    ChecksumRequest, ConnectRequest, EventSink, Handling, ListenFailure, ListenRequest,
    NodeAccount, NodeSession, Plan, Relabel, RunningTransfer,
};
use crate::running::Running;
use crate::throttle::Throttle;

/// A session attached to a [`crate::LocalNode`].
#[derive(Debug)]
pub(crate) struct LocalSession {
    shared: Arc<NodeShared>,
    account: NodeAccount,
    files: AccountFiles,
    channels: Arc<ChannelSlot>,
    pace: Arc<Pace>,
    look_ahead: Arc<LookAhead>,
}

impl LocalSession {
    pub(super) fn new(shared: Arc<NodeShared>, account: NodeAccount, files: AccountFiles) -> Self {
        Self {
            shared,
            account,
            files,
            channels: Arc::default(),
            pace: Arc::default(),
            look_ahead: Arc::default(),
        }
    }

    /// A file by its path.
    fn stored<'a>(&'a self, path: &'a Path) -> StoredFile<'a> {
        StoredFile {
            storage: &*self.files.storage,
            path,
        }
    }

    /// Builds a stack from the node's drivers and those of the session.
    fn stack(
        &self,
        spec: &StackSpec,
        session_drivers: &[Arc<dyn Driver>],
    ) -> Result<Stack, StackError> {
        let registry = &self.shared.config.registry;
        let stack = registry.with(session_drivers).build(spec)?;
        Ok(stack.serving(party(&self.account.source)))
    }

    /// Adds the checksums that clients have recently requested, if configured. Not for a file that arrives at several nodes:
    /// it would be read for them, which is as much work later, when a client requests them.
    fn add_requested_checksums(&self, plan: &mut Plan) {
        if plan.is_divided() {
            return;
        }
        let Handling {
            checksums,
            requested_checksums: true,
            ..
        } = &mut plan.handling
        else {
            return;
        };
        for algorithm in self.shared.requested.recent() {
            if !checksums.contains(&algorithm) {
                checksums.push(algorithm);
            }
        }
    }

    /// Prepares a transfer; the error is a transfer that has failed already.
    fn job(&self, mut plan: Plan, events: EventSink) -> Result<Job, Arc<Running>> {
        self.add_requested_checksums(&mut plan);
        let channels = match self.channels.lend() {
            Ok(channels) => channels,
            Err(error) => return Err(failed(events, error.into())),
        };
        let context = Context {
            resources: self.shared.resources.clone(),
            account: self.account.clone(),
            storage: self.files.storage.clone(),
            look_ahead: self.look_ahead.clone(),
            running: Running::new(channels.stripes(), events),
            throttle: Throttle::new(&plan.handling.bandwidth),
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
            self.shared.requested.note(request.algorithm, &file);
        }
        let file = (&file, &self.stored(&request.path));
        self.shared
            .resources
            .checksums
            .of(file, request.algorithm, (offset, length), &watch)
    }

    fn set_modified(&self, path: &Path, modified: SystemTime) -> Result<(), StorageError> {
        let storage = &self.files.storage;
        match storage.open_read(path) {
            Ok(file) => {
                let memory = self.shared.resources.checksums.memory();
                memory.keep_while_modified(&file, &self.stored(path), modified)
            }
            // A directory, or a file without read permission, has no cached checksums.
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
                let memory = self.shared.resources.checksums.memory();
                memory.keep_while_relabelled(&file, names, relabel)
            }
            // As in `set_modified`.
            Err(_) => relabel(),
        }
    }

    fn listen(&self, request: &ListenRequest) -> Result<Vec<SocketAddr>, ListenFailure> {
        // The old listeners are closed first: the configured port range may have no other free ports.
        self.channels.clear();
        let stack = self.stack(&request.stack, &request.session_drivers)?;
        let listen = || stack.listen(request.local, &request.sockets);
        let listeners = (0..request.stripes.most())
            .map(|_| listen())
            .collect::<Result<Vec<_>, _>>()?;
        let addresses: Vec<_> = listeners
            .iter()
            .map(|listener| listener.address())
            .collect();
        let ports = addresses.iter();
        let open = ports.map(|address| self.shared.open_ports.open(*address));
        let channels = DataChannels::new(DataPort::Passive(listeners), open.collect());
        self.channels.set(channels);
        Ok(addresses)
    }

    fn connect(&self, request: &ConnectRequest) -> Result<(), StackError> {
        self.channels.clear();
        let stack = self.stack(&request.stack, &request.session_drivers)?;
        let port = DataPort::Active {
            stack,
            peers: request.peers.clone(),
            sockets: request.sockets,
        };
        self.channels.set(DataChannels::new(port, Vec::new()));
        Ok(())
    }

    fn release(&self) {
        self.channels.clear();
    }

    fn looks_ahead(&self) -> bool {
        self.look_ahead.is_wanted()
    }

    fn look_ahead(&self, paths: Vec<PathBuf>) {
        let threads = &self.shared.resources.threads;
        self.look_ahead.begin(paths, &self.files.storage, threads);
    }

    fn transfer(&self, plan: Plan, events: EventSink) -> Arc<dyn RunningTransfer> {
        match self.job(plan, events) {
            Ok(job) => {
                let running = job.context.running.clone();
                job.run_on_worker();
                running
            }
            Err(running) => running,
        }
    }

    fn may_be_quick(&self, plan: &Plan) -> bool {
        let requested = self.shared.requested.recent().collect::<Vec<_>>();
        if plan.handling.requested_checksums && Arrival::needs_thread(&requested) {
            return false;
        }
        self.channels
            .are_ready(|channels| Job::may_be_quick(plan, channels, &self.pace))
    }

    fn transfer_here(&self, plan: Plan, events: EventSink) -> Arc<dyn RunningTransfer> {
        match self.job(plan, events) {
            Ok(job) => {
                let running = job.context.running.clone();
                Arc::new(InlineTransfer::new(running, job.begin_here()))
            }
            Err(running) => running,
        }
    }
}

/// The number by which drivers distinguish accounts, and networks of clients without an account.
fn party(source: &Source) -> Party {
    // Keyed with a random key of this process, so that a client cannot provoke a collision with another one.
    static KEY: LazyLock<RandomState> = LazyLock::new(RandomState::new);
    Party(match &source.account {
        Some(account) => KEY.hash_one(account),
        None => KEY.hash_one(source.network),
    })
}

/// A transfer that failed before its start.
fn failed(events: EventSink, error: TransferError) -> Arc<Running> {
    let running = Running::new(1, events);
    running.fail(error);
    running.finish();
    running
}
