//! The files of a session: on one member, and on another one when it is lost or drains.
//!
//! A call is repeated on another member if it only reads, or if the member did not get it. A change whose answer was lost may
//! have been carried out, so it fails.

mod verify;

pub(super) use self::verify::look_anew;

use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::SystemTime;

use gridhaul_storage::{
    DirectoryStream, FileIdentity, Metadata, OpenedFile, Storage, StorageError, UploadOpening,
    WriteMode,
};
use gridhaul_transfer::NodeSession;
use rustix::io::Errno;

use super::attachments::{Attached, Attachments};
use super::member::Counted;
use super::shared::{ATTEMPTS, Shared};
use super::uploads::Uploads;
use crate::sync::lock;

/// What a member that did not get a call answers.
const NOT_SENT: Errno = Errno::HOSTDOWN;

/// The storage of a session.
#[derive(Debug)]
pub(super) struct ClusterStorage {
    shared: Arc<Shared>,
    attachments: Arc<Attachments>,
    present: Mutex<Present>,
    uploads: Arc<Uploads>,
    /// The log has that no member is available.
    is_told: AtomicBool,
}

#[derive(Debug)]
struct Present {
    attached: Attached,
    /// The member is not used any more.
    is_left: bool,
    _session: Counted,
}

impl Present {
    fn new(attached: Attached) -> Self {
        Self {
            _session: attached.record.count_session(),
            attached,
            is_left: false,
        }
    }
}

/// Whether a call may be repeated after its answer was lost.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Effect {
    Reads,
    Changes,
}

impl ClusterStorage {
    pub(super) fn new(
        shared: &Arc<Shared>,
        attachments: &Arc<Attachments>,
        attached: Attached,
    ) -> Self {
        let attached = attachments.keep(attached);
        Self {
            shared: Arc::clone(shared),
            attachments: Arc::clone(attachments),
            present: Mutex::new(Present::new(attached)),
            uploads: Arc::default(),
            is_told: AtomicBool::new(false),
        }
    }

    /// The member that carried out the last call.
    pub(super) fn present(&self) -> Attached {
        lock(&self.present).attached.clone()
    }

    /// The uploads of the session.
    pub(super) fn uploads(&self) -> Arc<Uploads> {
        Arc::clone(&self.uploads)
    }

    /// A call that only reads. Blocks.
    pub(super) fn read<T>(
        &self,
        call: &'static str,
        read: impl Fn(&dyn NodeSession) -> Result<T, StorageError>,
    ) -> Result<T, StorageError> {
        self.attempt((call, Effect::Reads), read)
    }

    /// A call that changes something. Blocks.
    pub(super) fn change<T>(
        &self,
        call: &'static str,
        change: impl Fn(&dyn NodeSession) -> Result<T, StorageError>,
    ) -> Result<T, StorageError> {
        self.attempt((call, Effect::Changes), change)
    }

    fn attempt<T>(
        &self,
        (call, effect): (&'static str, Effect),
        run: impl Fn(&dyn NodeSession) -> Result<T, StorageError>,
    ) -> Result<T, StorageError> {
        let mut attempt = 1;
        loop {
            let attached = self.usable(call)?;
            let error = match run(&*attached.session) {
                Ok(done) => return Ok(done),
                Err(error) => error,
            };
            let was_sent = error.errno != NOT_SENT;
            if was_sent && attached.is_alive() {
                // The answer of the storage.
                return Err(error);
            }
            let node = attached.record.name.as_str();
            if attempt == ATTEMPTS || (was_sent && effect == Effect::Changes) {
                tracing::warn!(node, call, %error, "the data node was lost during a storage call");
                return Err(error);
            }
            tracing::info!(node, call, %error, "a storage call goes to another data node");
            self.leave(&attached);
            attempt += 1;
        }
    }

    /// The member for the next call. Blocks when the session moves to another one.
    fn usable(&self, call: &'static str) -> Result<Attached, StorageError> {
        let (present, is_left) = {
            let present = lock(&self.present);
            (present.attached.clone(), present.is_left)
        };
        if present.record.is_usable() && present.is_alive() && !is_left {
            return Ok(present);
        }
        let avoided = is_left.then_some(&present.record);
        let moved = self
            .shared
            .attach_to_best(avoided, |record| self.attachments.to(record));
        match moved {
            Ok(attached) => {
                *lock(&self.present) = Present::new(attached.clone());
                self.is_told.store(false, Ordering::Relaxed);
                Ok(attached)
            }
            // It drains, or the administrator has removed it, but it is there.
            Err(_) if present.is_alive() => Ok(present),
            Err(error) => {
                if !self.is_told.swap(true, Ordering::Relaxed) {
                    tracing::warn!(call, %error, "a session has no storage");
                }
                Err(StorageError::new(call, NOT_SENT))
            }
        }
    }

    /// The next call goes to another member, if there is one.
    fn leave(&self, attached: &Attached) {
        let mut present = lock(&self.present);
        if Arc::ptr_eq(&present.attached.session, &attached.session) {
            present.is_left = true;
        }
    }
}

impl Storage for ClusterStorage {
    fn open_read(&self, path: &Path) -> Result<OpenedFile, StorageError> {
        self.read("open", |node| node.storage().open_read(path))
    }

    fn open_write(&self, path: &Path, mode: WriteMode) -> Result<OpenedFile, StorageError> {
        self.change("open", |node| node.storage().open_write(path, mode))
    }

    fn open_read_direct(&self, path: &Path) -> Result<OpenedFile, StorageError> {
        self.read("open", |node| node.storage().open_read_direct(path))
    }

    fn open_write_direct(&self, path: &Path, mode: WriteMode) -> Result<OpenedFile, StorageError> {
        self.change("open", |node| node.storage().open_write_direct(path, mode))
    }

    fn open_upload(&self, path: &Path, opening: UploadOpening) -> Result<OpenedFile, StorageError> {
        self.change("open", |node| node.storage().open_upload(path, opening))
    }

    fn complete_upload(
        &self,
        from: &Path,
        to: &Path,
        identity: FileIdentity,
        durable: bool,
    ) -> Result<(), StorageError> {
        self.change("rename", |node| {
            node.storage().complete_upload(from, to, identity, durable)
        })
    }

    fn stat(&self, path: &Path) -> Result<Metadata, StorageError> {
        self.verify_metadata(path)
    }

    fn list(&self, path: &Path) -> Result<Box<dyn DirectoryStream>, StorageError> {
        self.read("opendir", |node| node.storage().list(path))
    }

    fn make_directory(&self, path: &Path) -> Result<(), StorageError> {
        self.change("mkdir", |node| node.storage().make_directory(path))
    }

    fn remove_file(&self, path: &Path) -> Result<(), StorageError> {
        self.change("unlink", |node| node.storage().remove_file(path))
    }

    fn remove_directory(&self, path: &Path) -> Result<(), StorageError> {
        self.change("rmdir", |node| node.storage().remove_directory(path))
    }

    fn remove_tree(&self, path: &Path, cancelled: &dyn Fn() -> bool) -> Result<(), StorageError> {
        self.change("unlink", |node| node.storage().remove_tree(path, cancelled))
    }

    fn rename(&self, from: &Path, to: &Path) -> Result<(), StorageError> {
        self.change("rename", |node| node.storage().rename(from, to))?;
        self.uploads.rename(from, to);
        Ok(())
    }

    fn set_mode(&self, path: &Path, mode: u32) -> Result<(), StorageError> {
        self.change("chmod", |node| node.storage().set_mode(path, mode))
    }

    fn set_group(&self, path: &Path, group: &str) -> Result<(), StorageError> {
        self.change("chgrp", |node| node.storage().set_group(path, group))
    }

    fn set_modified(&self, path: &Path, modified: SystemTime) -> Result<(), StorageError> {
        self.change("utime", |node| node.storage().set_modified(path, modified))
    }

    fn symlink(&self, target: &Path, link: &Path) -> Result<(), StorageError> {
        self.change("symlink", |node| node.storage().symlink(target, link))
    }

    fn truncate(&self, path: &Path, length: u64) -> Result<(), StorageError> {
        self.change("truncate", |node| node.storage().truncate(path, length))
    }

    fn checksum_attribute(&self, path: &Path) -> Result<Option<Vec<u8>>, StorageError> {
        self.read("getxattr", |node| node.storage().checksum_attribute(path))
    }

    fn set_checksum_attribute(
        &self,
        path: &Path,
        value: Option<&[u8]>,
    ) -> Result<(), StorageError> {
        self.change("setxattr", |node| {
            node.storage().set_checksum_attribute(path, value)
        })
    }
}
