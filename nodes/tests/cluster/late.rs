//! A member whose file system keeps names and attributes, as clients of NFS do, until the directory or the file is opened.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use gridhaul_storage::{
    DirectoryStream, Metadata, OpenedFile, PosixStorage, Storage as _, StorageError, WriteMode,
};
use gridhaul_transfer::DataNode;
use rustix::io::Errno;

use crate::read_only::{ReadOnly, Reads};
use crate::site::node_over;

/// Its view of files. Only what a session reads is late; files that exist can be written.
#[derive(Debug)]
struct Late {
    storage: PosixStorage,
    /// Files have names.
    is_listed: AtomicBool,
    /// They have their sizes.
    is_opened: AtomicBool,
}

/// A node with such storage, each session from the start.
pub(crate) fn late_node() -> Arc<dyn DataNode> {
    node_over(
        |account| account.root.clone(),
        |storage| {
            Arc::new(ReadOnly(Late {
                storage,
                is_listed: AtomicBool::new(false),
                is_opened: AtomicBool::new(false),
            }))
        },
    )
}

impl Late {
    fn check_name(&self) -> Result<(), StorageError> {
        match self.is_listed.load(Ordering::Relaxed) {
            true => Ok(()),
            false => Err(StorageError::new("open", Errno::NOENT)),
        }
    }
}

impl Reads for Late {
    fn stat(&self, path: &Path) -> Result<Metadata, StorageError> {
        self.check_name()?;
        let mut found = self.storage.stat(path)?;
        if !self.is_opened.load(Ordering::Relaxed) {
            found.size = 0;
        }
        Ok(found)
    }

    fn open_read(&self, path: &Path) -> Result<OpenedFile, StorageError> {
        self.check_name()?;
        self.is_opened.store(true, Ordering::Relaxed);
        self.storage.open_read(path)
    }

    fn open_write(&self, path: &Path, mode: WriteMode) -> Result<OpenedFile, StorageError> {
        self.storage.open_write(path, mode)
    }

    fn list(&self, path: &Path) -> Result<Box<dyn DirectoryStream>, StorageError> {
        self.is_listed.store(true, Ordering::Relaxed);
        self.storage.list(path)
    }
}
