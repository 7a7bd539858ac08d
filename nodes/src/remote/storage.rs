//! The files of a session on a node. Each call is a request, and waits for its reply.
//!
//! Files are not opened from here: their bytes stay on the node.

use std::ffi::OsStr;
use std::path::Path;
use std::sync::Arc;
use std::time::SystemTime;

use gridhaul_storage::{
    DirectoryEntry, DirectoryRun, DirectoryStream, FileIdentity, Metadata, OpenedFile, Storage,
    StorageError, UploadOpening, WriteMode,
};
use rustix::io::Errno;
use tokio::sync::oneshot;

use super::link::Link;
use crate::generated::{self as message, session_reply::Body, session_request, storage_call::Call};
use crate::limits::RUN_ENTRIES;
use crate::wire;

#[derive(Debug, Clone)]
pub(super) struct RemoteStorage {
    link: Arc<Link>,
    /// Only to be dropped with the last user of the session.
    _open: Option<Arc<oneshot::Sender<()>>>,
}

impl RemoteStorage {
    pub(super) fn new(link: Arc<Link>) -> Self {
        Self { link, _open: None }
    }

    /// The same, and it keeps the session open.
    pub(super) fn holding(self, open: Arc<oneshot::Sender<()>>) -> Self {
        Self {
            _open: Some(open),
            ..self
        }
    }

    fn ask(&self, name: &'static str, call: Call) -> Result<Body, StorageError> {
        let is_read = matches!(call, Call::Stat(_) | Call::ChecksumAttribute(_));
        let call = message::StorageCall { call: Some(call) };
        let body = session_request::Body::Storage(call);
        let may_repeat = is_read || self.link.is_lost();
        let reply = self.link.ask(body).map_err(|_| lost(name, may_repeat))?;
        checked(name, reply)
    }

    pub(super) fn order(&self, name: &'static str, call: Call) -> Result<(), StorageError> {
        match self.ask(name, call)? {
            Body::Done(_) => Ok(()),
            _ => Err(malformed(name)),
        }
    }
}

/// The node is lost. `EHOSTDOWN` means that the call may go to another node: it was not sent, or changes nothing. Otherwise it
/// may have been carried out.
fn lost(call: &'static str, may_repeat: bool) -> StorageError {
    let errno = if may_repeat {
        Errno::HOSTDOWN
    } else {
        Errno::CONNRESET
    };
    StorageError::new(call, errno)
}

/// The node has sent what does not fit.
fn malformed(call: &'static str) -> StorageError {
    StorageError::new(call, Errno::PROTO)
}

fn checked(name: &'static str, reply: Body) -> Result<Body, StorageError> {
    match reply {
        Body::Failure(failure) => Err(failure.restore().unwrap_or_else(|_| malformed(name))),
        reply => Ok(reply),
    }
}

fn of(path: &Path) -> message::PathCall {
    message::PathCall {
        path: wire::path(path),
    }
}

fn two(from: &Path, to: &Path) -> message::TwoPaths {
    message::TwoPaths {
        from: wire::path(from),
        to: wire::path(to),
    }
}

impl Storage for RemoteStorage {
    fn open_read(&self, _: &Path) -> Result<OpenedFile, StorageError> {
        Err(StorageError::new("open", Errno::OPNOTSUPP))
    }

    fn open_write(&self, _: &Path, _: WriteMode) -> Result<OpenedFile, StorageError> {
        Err(StorageError::new("open", Errno::OPNOTSUPP))
    }

    fn open_upload(&self, _: &Path, _: UploadOpening) -> Result<OpenedFile, StorageError> {
        Err(StorageError::new("open", Errno::OPNOTSUPP))
    }

    fn complete_upload(
        &self,
        from: &Path,
        to: &Path,
        identity: FileIdentity,
        durable: bool,
    ) -> Result<(), StorageError> {
        let call = message::CompleteUpload {
            from: wire::path(from),
            to: wire::path(to),
            device: identity.device,
            inode: identity.inode,
            durable,
        };
        self.order("rename", Call::CompleteUpload(call))
    }

    fn stat(&self, path: &Path) -> Result<Metadata, StorageError> {
        match self.ask("stat", Call::Stat(of(path)))? {
            Body::Metadata(metadata) => wire::to_metadata(metadata).map_err(|_| malformed("stat")),
            _ => Err(malformed("stat")),
        }
    }

    fn list(&self, path: &Path) -> Result<Box<dyn DirectoryStream>, StorageError> {
        let list = message::List {
            path: wire::path(path),
        };
        let call = message::StorageCall {
            call: Some(Call::List(list)),
        };
        let (list, replies) = self.link.call(session_request::Body::Storage(call));
        let reply = replies.recv().map_err(|_| lost("opendir", true));
        self.link.forget(list);
        checked("opendir", reply?)?;
        Ok(Box::new(RemoteList {
            storage: self.clone(),
            list,
            has_ended: false,
        }))
    }

    fn make_directory(&self, path: &Path) -> Result<(), StorageError> {
        self.order("mkdir", Call::MakeDirectory(of(path)))
    }

    fn remove_file(&self, path: &Path) -> Result<(), StorageError> {
        self.order("unlink", Call::RemoveFile(of(path)))
    }

    fn remove_directory(&self, path: &Path) -> Result<(), StorageError> {
        self.order("rmdir", Call::RemoveDirectory(of(path)))
    }

    fn remove_tree(&self, path: &Path, cancelled: &dyn Fn() -> bool) -> Result<(), StorageError> {
        let call = message::StorageCall {
            call: Some(Call::RemoveTree(of(path))),
        };
        let may_repeat = self.link.is_lost();
        let body = session_request::Body::Storage(call);
        let reply = self.link.ask_unless(body, cancelled, Some);
        let reply = reply.ok_or_else(|| lost("unlink", may_repeat))?;
        checked("unlink", reply).map(drop)
    }

    fn rename(&self, from: &Path, to: &Path) -> Result<(), StorageError> {
        self.order("rename", Call::Rename(two(from, to)))
    }

    fn set_mode(&self, path: &Path, mode: u32) -> Result<(), StorageError> {
        self.order("chmod", Call::SetMode(set_mode(path, mode)))
    }

    fn set_group(&self, path: &Path, group: &str) -> Result<(), StorageError> {
        self.order("chgrp", Call::SetGroup(set_group(path, group)))
    }

    fn set_modified(&self, path: &Path, modified: SystemTime) -> Result<(), StorageError> {
        self.order("utime", Call::SetModified(set_modified(path, modified)))
    }

    fn symlink(&self, target: &Path, link: &Path) -> Result<(), StorageError> {
        self.order("symlink", Call::Symlink(two(target, link)))
    }

    fn truncate(&self, path: &Path, length: u64) -> Result<(), StorageError> {
        let path = wire::path(path);
        self.order(
            "truncate",
            Call::Truncate(message::Truncate { path, length }),
        )
    }

    fn checksum_attribute(&self, path: &Path) -> Result<Option<Vec<u8>>, StorageError> {
        match self.ask("getxattr", Call::ChecksumAttribute(of(path)))? {
            Body::Attribute(attribute) => Ok(attribute.value),
            _ => Err(malformed("getxattr")),
        }
    }

    fn set_checksum_attribute(
        &self,
        path: &Path,
        value: Option<&[u8]>,
    ) -> Result<(), StorageError> {
        let call = message::SetChecksumAttribute {
            path: wire::path(path),
            value: value.map(<[u8]>::to_vec),
        };
        self.order("setxattr", Call::SetChecksumAttribute(call))
    }
}

pub(super) fn set_mode(path: &Path, mode: u32) -> message::SetMode {
    let path = wire::path(path);
    message::SetMode { path, mode }
}

pub(super) fn set_group(path: &Path, group: &str) -> message::SetGroup {
    message::SetGroup {
        path: wire::path(path),
        group: group.to_owned(),
    }
}

pub(super) fn set_modified(path: &Path, modified: SystemTime) -> message::SetModified {
    message::SetModified {
        path: wire::path(path),
        modified: Some(wire::time(modified)),
    }
}

pub(super) fn rename(from: &Path, to: &Path) -> message::TwoPaths {
    two(from, to)
}

/// An open directory on the node.
struct RemoteList {
    storage: RemoteStorage,
    list: u64,
    has_ended: bool,
}

impl DirectoryStream for RemoteList {
    fn next_run(&mut self, enough: usize) -> Result<Option<Box<dyn DirectoryRun>>, StorageError> {
        if self.has_ended {
            return Ok(None);
        }
        let call = Call::NextRun(message::NextRun {
            list: self.list,
            enough: enough.min(RUN_ENTRIES) as u64,
        });
        let run = self
            .storage
            .ask("readdir", call)
            .inspect_err(|_| self.has_ended = true)?;
        let Body::Run(run) = run else {
            return Err(malformed("readdir"));
        };
        self.has_ended = run.end;
        let entries = run.entries.into_iter().map(wire::to_entry);
        let entries: Vec<_> = entries
            .collect::<Result<_, _>>()
            .map_err(|_| malformed("readdir"))?;
        if entries.is_empty() && run.end {
            return Ok(None);
        }
        Ok(Some(Box::new(RemoteRun { entries })))
    }
}

impl Drop for RemoteList {
    fn drop(&mut self) {
        if !self.has_ended {
            let close = Call::CloseList(message::CloseList { list: self.list });
            let call = message::StorageCall { call: Some(close) };
            let link = &self.storage.link;
            link.tell(link.number(), session_request::Body::Storage(call));
        }
    }
}

/// A run of entries, which has come with its metadata.
struct RemoteRun {
    entries: Vec<DirectoryEntry>,
}

impl DirectoryRun for RemoteRun {
    fn count(&self) -> usize {
        self.entries.len()
    }

    fn retain(&mut self, wanted: &dyn Fn(&OsStr) -> bool) {
        self.entries.retain(|entry| wanted(&entry.name));
    }

    fn names(&mut self, show: &mut dyn FnMut(&OsStr)) {
        for entry in &self.entries {
            show(&entry.name);
        }
    }

    fn entries(&mut self, show: &mut dyn FnMut(&OsStr, &Metadata)) -> Result<(), StorageError> {
        for entry in &self.entries {
            show(&entry.name, &entry.metadata);
        }
        Ok(())
    }
}
