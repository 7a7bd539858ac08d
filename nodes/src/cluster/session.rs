//! A session of a cluster.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::SystemTime;

use gridhaul_stack::{Cancel, StackError};
use gridhaul_storage::{FoundChecksum, Storage, StorageError};
use gridhaul_transfer::{
    ChecksumRequest, ConnectRequest, EventSink, ListenFailure, ListenRequest, NodeSession, Plan,
    Relabel, RunningTransfer,
};

use super::ports::Ports;
use super::single::Start;
use super::storage::ClusterStorage;
use super::uploads::noting;

/// A session of a cluster: its files on one member, its data port on any.
#[derive(Debug)]
pub(super) struct ClusterSession {
    storage: Arc<ClusterStorage>,
    ports: Arc<Ports>,
    home: PathBuf,
}

impl ClusterSession {
    pub(super) fn new(storage: Arc<ClusterStorage>, ports: Arc<Ports>, home: PathBuf) -> Self {
        Self {
            storage,
            ports,
            home,
        }
    }
}

impl NodeSession for ClusterSession {
    fn storage(&self) -> Arc<dyn Storage> {
        Arc::clone(&self.storage) as Arc<dyn Storage>
    }

    fn home(&self) -> PathBuf {
        self.home.clone()
    }

    fn checksum(
        &self,
        request: &ChecksumRequest,
        done: &AtomicU64,
        cancel: &Cancel,
    ) -> Result<FoundChecksum, StorageError> {
        self.storage.verify_checksum(request, done, cancel)
    }

    fn set_modified(&self, path: &Path, modified: SystemTime) -> Result<(), StorageError> {
        let storage = &self.storage;
        storage.change("utime", |node| node.set_modified(path, modified))
    }

    fn relabel(&self, path: &Path, change: Relabel<'_>) -> Result<(), StorageError> {
        let call = match change {
            Relabel::Name(_) => "rename",
            Relabel::Mode(_) => "chmod",
            Relabel::Group(_) => "chgrp",
        };
        let storage = &self.storage;
        storage.change(call, |node| node.relabel(path, change))?;
        if let Relabel::Name(to) = change {
            storage.uploads().rename(path, to);
        }
        Ok(())
    }

    fn listen(&self, request: &ListenRequest) -> Result<Vec<SocketAddr>, ListenFailure> {
        self.ports.listen(request)
    }

    fn connect(&self, request: &ConnectRequest) -> Result<(), StackError> {
        self.ports.connect(request)
    }

    fn release(&self) {
        self.ports.release();
    }

    fn looks_ahead(&self) -> bool {
        self.ports.sender().looks_ahead()
    }

    fn look_ahead(&self, paths: Vec<PathBuf>) {
        self.ports.sender().look_ahead(paths);
    }

    fn transfer(&self, plan: Plan, events: EventSink) -> Arc<dyn RunningTransfer> {
        let events = noting(self.storage.uploads(), &plan, events);
        self.ports.start((plan, Start::Anywhere), events)
    }

    fn may_be_quick(&self, plan: &Plan) -> bool {
        let only = self.ports.only();
        only.is_some_and(|only| only.session.may_be_quick(plan))
    }

    fn transfer_here(&self, plan: Plan, events: EventSink) -> Arc<dyn RunningTransfer> {
        let events = noting(self.storage.uploads(), &plan, events);
        self.ports.start((plan, Start::LocalAddress), events)
    }
}
