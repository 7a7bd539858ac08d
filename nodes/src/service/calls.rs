//! The files of a session: calls for storage and checksums, on blocking threads.

use std::collections::{HashMap, VecDeque};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::{self, Thread};
use std::time::Duration;

use gridhaul_stack::Cancel;
use gridhaul_storage::{ChecksumSource, DirectoryStream, FileIdentity, Storage, StorageError};
use gridhaul_transfer::{ChecksumRequest, NodeSession, Relabel};
use prost::Message as _;

use super::replies::Sender;
use crate::generated::{self as message, session_reply::Body, storage_call::Call};
use crate::limits::{LISTS, RUN_BYTES, RUN_ENTRIES};
use crate::sync::lock;
use crate::wire::{self, WireError};

/// Why a call fails.
#[derive(Debug, thiserror::Error)]
enum CallError {
    #[error(transparent)]
    Wire(#[from] WireError),
    #[error(transparent)]
    Storage(#[from] StorageError),
}

/// What the calls of a session have.
pub(super) struct Files {
    node: Arc<dyn NodeSession>,
    storage: Arc<dyn Storage>,
    replies: Sender,
    /// Open directories, by the calls that opened them.
    lists: Mutex<HashMap<u64, List>>,
    /// Running calls that can be given up.
    cancels: Mutex<HashMap<u64, Arc<Cancel>>>,
}

/// An open directory; absent while a call reads from it.
type List = Option<OpenList>;

/// An open directory, and entries that did not fit into the last reply.
struct OpenList {
    stream: Box<dyn DirectoryStream>,
    rest: VecDeque<message::Entry>,
}

impl Files {
    pub(super) fn new(
        node: &Arc<dyn NodeSession>,
        storage: Arc<dyn Storage>,
        replies: Sender,
    ) -> Arc<Self> {
        Arc::new(Self {
            node: Arc::clone(node),
            storage,
            replies,
            lists: Mutex::default(),
            cancels: Mutex::default(),
        })
    }

    /// Notes a call that can be given up from now on, until it ends.
    pub(super) fn cancellable(&self, call: u64) -> Arc<Cancel> {
        let cancel = Arc::new(Cancel::new());
        lock(&self.cancels).insert(call, Arc::clone(&cancel));
        cancel
    }

    pub(super) fn cancel(&self, call: u64) {
        if let Some(cancel) = lock(&self.cancels).get(&call) {
            cancel.cancel();
        }
    }

    /// The call has ended.
    pub(super) fn forget(&self, call: u64) {
        lock(&self.cancels).remove(&call);
    }

    pub(super) fn cancel_all(&self) {
        for cancel in lock(&self.cancels).values() {
            cancel.cancel();
        }
    }

    /// Serves a call for storage.
    pub(super) fn serve(&self, call: u64, sent: message::StorageCall, cancel: &Cancel) {
        storage(self, call, sent, cancel);
        self.forget(call);
    }

    /// Computes a checksum, and tells now and then how far it is.
    pub(super) fn checksum(&self, call: u64, sent: &message::ChecksumCall, cancel: &Cancel) {
        checksum(self, call, sent, cancel);
        self.forget(call);
    }
}

fn storage(files: &Files, call: u64, sent: message::StorageCall, cancel: &Cancel) {
    let Some(sent) = sent.call else {
        files
            .replies
            .send(call, Body::Failure(message::Failure::unknown()));
        return;
    };
    if let Call::CloseList(close) = sent {
        lock(&files.lists).remove(&close.list);
        return;
    }
    let reply = match answer(files, call, sent, cancel) {
        Ok(body) => body,
        Err(CallError::Wire(error)) => Body::Failure(message::Failure::refused(&error)),
        Err(CallError::Storage(error)) => Body::Failure(message::Failure::of(&error)),
    };
    files.replies.send(call, reply);
}

fn answer(files: &Files, call: u64, sent: Call, cancel: &Cancel) -> Result<Body, CallError> {
    let (storage, node) = (&*files.storage, &*files.node);
    let path = wire::to_path;
    match sent {
        Call::Stat(of) => {
            let metadata = storage.stat(&path(&of.path)?)?;
            return Ok(Body::Metadata(wire::metadata(&metadata)));
        }
        Call::List(of) => open_list(files, call, &path(&of.path)?)?,
        Call::NextRun(next) => return next_run(files, next),
        Call::CloseList(_) => {}
        Call::MakeDirectory(of) => storage.make_directory(&path(&of.path)?)?,
        Call::RemoveFile(of) => storage.remove_file(&path(&of.path)?)?,
        Call::RemoveDirectory(of) => storage.remove_directory(&path(&of.path)?)?,
        Call::RemoveTree(of) => {
            storage.remove_tree(&path(&of.path)?, &|| cancel.is_cancelled())?;
        }
        Call::Rename(of) => storage.rename(&path(&of.from)?, &path(&of.to)?)?,
        Call::SetMode(of) => storage.set_mode(&path(&of.path)?, of.mode)?,
        Call::SetGroup(of) => storage.set_group(&path(&of.path)?, &of.group)?,
        Call::SetModified(of) => storage.set_modified(&path(&of.path)?, modified(of.modified)?)?,
        Call::Symlink(of) => storage.symlink(&path(&of.from)?, &path(&of.to)?)?,
        Call::Truncate(of) => storage.truncate(&path(&of.path)?, of.length)?,
        Call::ChecksumAttribute(of) => {
            let value = storage.checksum_attribute(&path(&of.path)?)?;
            return Ok(Body::Attribute(message::OptionalBytes { value }));
        }
        Call::SetChecksumAttribute(of) => {
            storage.set_checksum_attribute(&path(&of.path)?, of.value.as_deref())?;
        }
        Call::CompleteUpload(of) => {
            let (from, to) = (path(&of.from)?, path(&of.to)?);
            let identity = FileIdentity {
                device: of.device,
                inode: of.inode,
            };
            storage.complete_upload(&from, &to, identity, of.durable)?;
        }
        Call::KeepSetModified(of) => {
            node.set_modified(&path(&of.path)?, modified(of.modified)?)?;
        }
        Call::KeepRename(of) => {
            let to = path(&of.to)?;
            node.relabel(&path(&of.from)?, Relabel::Name(&to))?;
        }
        Call::KeepSetMode(of) => node.relabel(&path(&of.path)?, Relabel::Mode(of.mode))?,
        Call::KeepSetGroup(of) => node.relabel(&path(&of.path)?, Relabel::Group(&of.group))?,
    }
    Ok(Body::Done(message::Done {}))
}

fn modified(time: Option<message::Time>) -> Result<std::time::SystemTime, WireError> {
    wire::to_time(time.ok_or_else(|| WireError::missing("modified"))?)
}

fn open_list(files: &Files, call: u64, path: &std::path::Path) -> Result<(), CallError> {
    if lock(&files.lists).len() >= LISTS {
        return Err(WireError::new("too many listings at a time").into());
    }
    let list = OpenList {
        stream: files.storage.list(path)?,
        rest: VecDeque::new(),
    };
    lock(&files.lists).insert(call, Some(list));
    Ok(())
}

fn next_run(files: &Files, sent: message::NextRun) -> Result<Body, CallError> {
    let taken = lock(&files.lists)
        .get_mut(&sent.list)
        .and_then(Option::take);
    let mut list = taken.ok_or_else(|| WireError::new("a listing that is not open"))?;
    let enough = usize::try_from(sent.enough).unwrap_or(usize::MAX);
    let entries = list.next_run(enough.clamp(1, RUN_ENTRIES));
    let has_ended = entries.as_ref().map_or(true, Option::is_none);
    let mut lists = lock(&files.lists);
    if has_ended {
        lists.remove(&sent.list);
    } else if let Some(place) = lists.get_mut(&sent.list) {
        *place = Some(list);
    }
    drop(lists);
    Ok(Body::Run(message::Run {
        entries: entries?.unwrap_or_default(),
        end: has_ended,
    }))
}

impl OpenList {
    /// The next entries, as many as fit into a reply.
    fn next_run(&mut self, enough: usize) -> Result<Option<Vec<message::Entry>>, StorageError> {
        if self.rest.is_empty() {
            let Some(mut run) = self.stream.next_run(enough)? else {
                return Ok(None);
            };
            let rest = &mut self.rest;
            run.entries(&mut |name, metadata| rest.push_back(wire::entry(name, metadata)))?;
        }
        let mut bytes = 0;
        let mut entries = Vec::new();
        while bytes < RUN_BYTES
            && entries.len() < RUN_ENTRIES
            && let Some(entry) = self.rest.pop_front()
        {
            bytes += entry.encoded_len();
            entries.push(entry);
        }
        Ok(Some(entries))
    }
}

/// Computes a checksum, and tells now and then how far it is.
pub(super) fn checksum(files: &Files, call: u64, sent: &message::ChecksumCall, cancel: &Cancel) {
    let request = wire::to_path(&sent.path).and_then(|path| {
        Ok(ChecksumRequest {
            path,
            algorithm: wire::to_algorithm(&sent.algorithm)?,
            offset: sent.offset,
            length: sent.length,
        })
    });
    let request = match request {
        Ok(request) => request,
        Err(error) => {
            let failure = message::Failure::refused(&error);
            files.replies.send(call, Body::Failure(failure));
            return;
        }
    };
    let done = AtomicU64::new(0);
    let found = while_telling(files, call, &done, || {
        files.node.checksum(&request, &done, cancel)
    });
    let reply = match found {
        Ok(found) => Body::Checksum(message::Checksum {
            value: found.value,
            source: match found.source {
                ChecksumSource::Memory => 0,
                ChecksumSource::Attribute => 1,
                ChecksumSource::Content => 2,
            },
            read_bytes: found.read_bytes,
        }),
        Err(error) => Body::Failure(message::Failure::of(&error)),
    };
    files.replies.send(call, reply);
}

/// Works, and tells the number in `done` meanwhile when it has changed. Also after a panic of the work, nothing is told any more.
fn while_telling<T>(files: &Files, call: u64, done: &AtomicU64, work: impl FnOnce() -> T) -> T {
    /// How often the number is sent.
    const EVERY: Duration = Duration::from_millis(250);

    /// The teller ends when this is dropped.
    struct Telling<'a>(&'a AtomicBool, Option<Thread>);

    impl Drop for Telling<'_> {
        fn drop(&mut self) {
            self.0.store(true, Ordering::Release);
            if let Some(teller) = &self.1 {
                teller.unpark();
            }
        }
    }

    let ended = AtomicBool::new(false);
    thread::scope(|scope| {
        let tell = || {
            let mut told = 0;
            loop {
                thread::park_timeout(EVERY);
                if ended.load(Ordering::Acquire) {
                    return;
                }
                let now = done.load(Ordering::Relaxed);
                if now != told {
                    told = now;
                    files.replies.send(call, Body::CheckedBytes(now));
                }
            }
        };
        let teller = thread::Builder::new().name("checksum".to_owned());
        // Without a thread there is no progress to see.
        let teller = teller.spawn_scoped(scope, tell).ok();
        let teller = teller.map(|teller| teller.thread().clone());
        let _telling = Telling(&ended, teller);
        work()
    })
}
