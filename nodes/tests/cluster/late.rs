//! A member whose file system keeps names and attributes, as clients of NFS do, until the directory or the file is opened.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::SystemTime;

use gridhaul_storage::{
    DirectoryStream, FileIdentity, Metadata, OpenedFile, PosixStorage, Storage, StorageError,
    UploadOpening, WriteMode,
};
use gridhaul_transfer::DataNode;
use rustix::io::Errno;

use crate::site::node_over;

/// Its view of files. Only what a session reads is late; nothing is written through it.
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
            Arc::new(Late {
                storage,
                is_listed: AtomicBool::new(false),
                is_opened: AtomicBool::new(false),
            })
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

impl Storage for Late {
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

    fn list(&self, path: &Path) -> Result<Box<dyn DirectoryStream>, StorageError> {
        self.is_listed.store(true, Ordering::Relaxed);
        self.storage.list(path)
    }

    fn open_write(&self, _: &Path, _: WriteMode) -> Result<OpenedFile, StorageError> {
        unimplemented!()
    }

    fn open_upload(&self, _: &Path, _: UploadOpening) -> Result<OpenedFile, StorageError> {
        unimplemented!()
    }

    fn complete_upload(
        &self,
        _: &Path,
        _: &Path,
        _: FileIdentity,
        _: bool,
    ) -> Result<(), StorageError> {
        unimplemented!()
    }

    fn make_directory(&self, _: &Path) -> Result<(), StorageError> {
        unimplemented!()
    }

    fn remove_file(&self, _: &Path) -> Result<(), StorageError> {
        unimplemented!()
    }

    fn remove_directory(&self, _: &Path) -> Result<(), StorageError> {
        unimplemented!()
    }

    fn remove_tree(&self, _: &Path, _: &dyn Fn() -> bool) -> Result<(), StorageError> {
        unimplemented!()
    }

    fn rename(&self, _: &Path, _: &Path) -> Result<(), StorageError> {
        unimplemented!()
    }

    fn set_mode(&self, _: &Path, _: u32) -> Result<(), StorageError> {
        unimplemented!()
    }

    fn set_group(&self, _: &Path, _: &str) -> Result<(), StorageError> {
        unimplemented!()
    }

    fn set_modified(&self, _: &Path, _: SystemTime) -> Result<(), StorageError> {
        unimplemented!()
    }

    fn symlink(&self, _: &Path, _: &Path) -> Result<(), StorageError> {
        unimplemented!()
    }

    fn truncate(&self, _: &Path, _: u64) -> Result<(), StorageError> {
        unimplemented!()
    }

    fn checksum_attribute(&self, _: &Path) -> Result<Option<Vec<u8>>, StorageError> {
        Ok(None)
    }

    fn set_checksum_attribute(&self, _: &Path, _: Option<&[u8]>) -> Result<(), StorageError> {
        Ok(())
    }
}
