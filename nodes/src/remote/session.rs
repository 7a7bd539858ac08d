//! The files and data channels of a client on a node.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::SystemTime;

use gridhaul_protocol::stack::StackSpec;
use gridhaul_stack::{Cancel, Driver, ListenError, SocketOptions, StackError};
use gridhaul_storage::{ChecksumSource, FoundChecksum, Storage, StorageError};
use gridhaul_transfer::{
    ChecksumRequest, ConnectRequest, EventSink, ListenFailure, ListenRequest, NodeSession, Plan,
    Relabel, RunningTransfer,
};
use rustix::io::Errno;
use tokio::runtime::Handle;
use tokio::sync::oneshot;

use super::addresses::Listening;
use super::link::{Follower as _, Link};
use super::part_rate::PartRate;
use super::storage::{self, RemoteStorage};
use super::transfer::RemoteTransfer;
use crate::generated::{self as message, session_reply::Body, session_request, storage_call::Call};
use crate::limits::LISTEN;
use crate::sync::lock;
use crate::wire;

/// A session on a node. When it is dropped, the node ends it.
#[derive(Debug)]
pub(super) struct RemoteSession {
    pub(super) link: Arc<Link>,
    pub(super) home: PathBuf,
    pub(super) runtime: Handle,
    pub(super) listening: Listening,
    /// The task that holds the stream ends it when this has been dropped, by the session and all users of its storage.
    pub(super) open: Arc<oneshot::Sender<()>>,
}

impl RemoteSession {
    fn remote(&self) -> RemoteStorage {
        RemoteStorage::new(Arc::clone(&self.link))
    }

    fn tell(&self, body: session_request::Body) {
        self.link.tell(self.link.number(), body);
    }
}

/// The node does not listen; the text names it.
fn unusable(reason: String) -> ListenFailure {
    ListenFailure::Listen(ListenError::Remote(reason))
}

/// The drivers of a session as values.
fn drivers(drivers: &[Arc<dyn Driver>]) -> Result<Vec<message::SessionDriver>, StackError> {
    drivers
        .iter()
        .map(|driver| {
            let value = driver
                .session_value()
                .map_err(|error| StackError::Remote(error.to_string()))?;
            Ok(message::SessionDriver {
                name: value.name().to_owned(),
                value: value.bytes().to_vec(),
            })
        })
        .collect()
}

fn text(stack: &StackSpec) -> String {
    stack.to_string()
}

fn sockets(sockets: &SocketOptions) -> Option<message::Sockets> {
    Some(wire::sockets(sockets))
}

impl NodeSession for RemoteSession {
    fn storage(&self) -> Arc<dyn Storage> {
        Arc::new(self.remote().holding(Arc::clone(&self.open)))
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
        let body = session_request::Body::Checksum(message::ChecksumCall {
            path: wire::path(&request.path),
            algorithm: request.algorithm.name().to_owned(),
            offset: request.offset,
            length: request.length,
        });
        let malformed = || StorageError::new("read", Errno::PROTO);
        let take = |reply| match reply {
            Body::CheckedBytes(bytes) => {
                done.store(bytes, Ordering::Relaxed);
                None
            }
            Body::Checksum(found) => Some(to_found(found)),
            Body::Failure(failure) => Some(Err(failure.restore().unwrap_or_else(|_| malformed()))),
            _ => Some(Err(malformed())),
        };
        let found = self.link.ask_unless(body, &|| cancel.is_cancelled(), take);
        let found = found.unwrap_or_else(|| Err(StorageError::new("read", Errno::HOSTDOWN)));
        if let Ok(found) = &found {
            done.store(found.read_bytes, Ordering::Relaxed);
        }
        found
    }

    fn set_modified(&self, path: &Path, modified: SystemTime) -> Result<(), StorageError> {
        let call = storage::set_modified(path, modified);
        self.remote().order("utime", Call::KeepSetModified(call))
    }

    fn relabel(&self, path: &Path, change: Relabel<'_>) -> Result<(), StorageError> {
        let storage = self.remote();
        match change {
            Relabel::Name(to) => {
                storage.order("rename", Call::KeepRename(storage::rename(path, to)))
            }
            Relabel::Mode(mode) => {
                storage.order("chmod", Call::KeepSetMode(storage::set_mode(path, mode)))
            }
            Relabel::Group(group) => {
                storage.order("chgrp", Call::KeepSetGroup(storage::set_group(path, group)))
            }
        }
    }

    fn listen(&self, request: &ListenRequest) -> Result<Vec<SocketAddr>, ListenFailure> {
        lock(&self.listening).clear(&self.link);
        let body = session_request::Body::Listen(message::Listen {
            stack: text(&request.stack),
            listeners: u32::try_from(request.stripes.most()).unwrap_or(u32::MAX),
            sockets: sockets(&request.sockets),
            drivers: drivers(&request.session_drivers)?,
        });
        let reply = self.link.ask_within(body, LISTEN);
        let addresses = match reply.map_err(|lost| unusable(lost.to_string()))? {
            Body::Listening(listening) => {
                let addresses = listening.addresses.iter().map(wire::to_address);
                addresses.collect::<Result<Vec<_>, _>>().ok()
            }
            Body::Failure(failure) => {
                let wrong =
                    |error: wire::WireError| unusable(format!("{}: {error}", self.link.node));
                return Err(failure.restore().unwrap_or_else(wrong));
            }
            _ => None,
        };
        match addresses {
            Some(addresses) if addresses.len() == request.stripes.most() => {
                lock(&self.listening).set(&self.link, &addresses);
                Ok(addresses)
            }
            _ => Err(unusable(format!(
                "the data node {} sent a wrong reply",
                self.link.node
            ))),
        }
    }

    fn connect(&self, request: &ConnectRequest) -> Result<(), StackError> {
        lock(&self.listening).clear(&self.link);
        self.tell(session_request::Body::Connect(message::Connect {
            stack: text(&request.stack),
            peers: request.peers.iter().copied().map(wire::address).collect(),
            sockets: sockets(&request.sockets),
            drivers: drivers(&request.session_drivers)?,
        }));
        Ok(())
    }

    fn release(&self) {
        lock(&self.listening).clear(&self.link);
        self.tell(session_request::Body::Release(message::Release {}));
    }

    fn is_lost(&self) -> bool {
        self.link.is_lost()
    }

    fn looks_ahead(&self) -> bool {
        true
    }

    fn look_ahead(&self, paths: Vec<PathBuf>) {
        let paths = paths.iter().map(|path| wire::path(path)).collect();
        self.tell(session_request::Body::LookAhead(message::LookAhead {
            paths,
        }));
    }

    fn transfer(&self, plan: Plan, events: EventSink) -> Arc<dyn RunningTransfer> {
        let (mut message, kept) = wire::transfer(&plan);
        let rate = PartRate::of(&plan.handling.bandwidth);
        if let Some(handling) = &mut message.handling {
            handling.rate = rate.present();
        }
        let stripes = plan.share.as_ref().map_or(1, |share| share.stripes.len());
        let call = self.link.number();
        let transfer = RemoteTransfer::new(
            Arc::clone(&self.link),
            call,
            self.runtime.clone(),
            (events, kept),
            Arc::new(self.remote()),
            stripes,
        );
        let follower = Arc::clone(&transfer);
        match self.link.expect(call, follower) {
            Ok(()) => {
                self.link
                    .tell(call, session_request::Body::Transfer(message));
                rate.keep(&transfer, &self.runtime);
            }
            Err(lost) => transfer.lose(&lost),
        }
        transfer
    }
}

impl Drop for RemoteSession {
    fn drop(&mut self) {
        lock(&self.listening).clear(&self.link);
    }
}

fn to_found(sent: message::Checksum) -> Result<FoundChecksum, StorageError> {
    Ok(FoundChecksum {
        value: sent.value,
        source: match sent.source {
            0 => ChecksumSource::Memory,
            1 => ChecksumSource::Attribute,
            2 => ChecksumSource::Content,
            _ => return Err(StorageError::new("read", Errno::PROTO)),
        },
        read_bytes: sent.read_bytes,
    })
}
