//! Files of the machine beneath a directory.

use std::path::Path;
use std::time::SystemTime;

use rustix::io::Errno;

use crate::{DirectoryStream, Metadata, OpenedFile, Storage, StorageError, WriteMode};

/// How a [`PosixStorage`] behaves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PosixOptions {
    /// Every call that would change something fails with `EACCES`.
    pub read_only: bool,
    /// Permission bits of new files, less the umask of the process.
    pub file_mode: u32,
    /// Permission bits of new directories, less the umask of the process.
    pub directory_mode: u32,
}

impl Default for PosixOptions {
    fn default() -> Self {
        Self {
            read_only: false,
            file_mode: 0o644,
            directory_mode: 0o755,
        }
    }
}

/// The files beneath one directory of the machine.
#[derive(Debug)]
pub struct PosixStorage {
    #[expect(dead_code, reason = "the calls follow")]
    options: PosixOptions,
}

impl PosixStorage {
    /// Takes `root` as the directory that paths start from.
    ///
    /// # Errors
    ///
    /// When `root` is no directory or cannot be opened, or the kernel has no `openat2`.
    pub fn open(root: &Path, options: PosixOptions) -> Result<Self, StorageError> {
        let _ = root;
        Ok(Self { options })
    }
}

impl Storage for PosixStorage {
    fn open_read(&self, _path: &Path) -> Result<OpenedFile, StorageError> {
        Err(StorageError::new("open", Errno::NOSYS))
    }

    fn open_write(&self, _path: &Path, _mode: WriteMode) -> Result<OpenedFile, StorageError> {
        Err(StorageError::new("open", Errno::NOSYS))
    }

    fn stat(&self, _path: &Path) -> Result<Metadata, StorageError> {
        Err(StorageError::new("stat", Errno::NOSYS))
    }

    fn list(&self, _path: &Path) -> Result<Box<dyn DirectoryStream>, StorageError> {
        Err(StorageError::new("scandir", Errno::NOSYS))
    }

    fn make_directory(&self, _path: &Path) -> Result<(), StorageError> {
        Err(StorageError::new("mkdir", Errno::NOSYS))
    }

    fn remove_file(&self, _path: &Path) -> Result<(), StorageError> {
        Err(StorageError::new("unlink", Errno::NOSYS))
    }

    fn remove_directory(&self, _path: &Path) -> Result<(), StorageError> {
        Err(StorageError::new("rmdir", Errno::NOSYS))
    }

    fn remove_tree(&self, _path: &Path, _cancelled: &dyn Fn() -> bool) -> Result<(), StorageError> {
        Err(StorageError::new("unlink", Errno::NOSYS))
    }

    fn rename(&self, _from: &Path, _to: &Path) -> Result<(), StorageError> {
        Err(StorageError::new("rename", Errno::NOSYS))
    }

    fn set_mode(&self, _path: &Path, _mode: u32) -> Result<(), StorageError> {
        Err(StorageError::new("chmod", Errno::NOSYS))
    }

    fn set_group(&self, _path: &Path, _group: &str) -> Result<(), StorageError> {
        Err(StorageError::new("chgrp", Errno::NOSYS))
    }

    fn set_modified(&self, _path: &Path, _modified: SystemTime) -> Result<(), StorageError> {
        Err(StorageError::new("utime", Errno::NOSYS))
    }

    fn symlink(&self, _target: &Path, _link: &Path) -> Result<(), StorageError> {
        Err(StorageError::new("symlink", Errno::NOSYS))
    }

    fn truncate(&self, _path: &Path, _length: u64) -> Result<(), StorageError> {
        Err(StorageError::new("truncate", Errno::NOSYS))
    }
}
