//! Files that keep nothing, to measure how fast bytes arrive.

use std::fs::File;
use std::path::Path;
use std::time::SystemTime;

use gridhaul_storage::{
    DirectoryStream, FileIdentity, Metadata, OpenedFile, Storage, StorageError, UploadOpening,
    WriteMode,
};
use rustix::io::Errno;

/// Every name is a file that can be written, and whose bytes the kernel discards. All else is refused.
#[derive(Debug)]
pub(super) struct Discard;

fn refused<T>(call: &'static str) -> Result<T, StorageError> {
    Err(StorageError::new(call, Errno::OPNOTSUPP))
}

impl Storage for Discard {
    fn open_read(&self, _: &Path) -> Result<OpenedFile, StorageError> {
        refused("open")
    }

    fn open_write(&self, _: &Path, _: WriteMode) -> Result<OpenedFile, StorageError> {
        let file = File::options().write(true).open("/dev/null");
        let file = file.map_err(|error| {
            let number = Errno::from_io_error(&error);
            StorageError::new("open", number.unwrap_or(Errno::IO))
        })?;
        Ok(OpenedFile::new(file.into(), 0))
    }

    fn open_upload(&self, _: &Path, _: UploadOpening) -> Result<OpenedFile, StorageError> {
        refused("open")
    }

    fn complete_upload(
        &self,
        _: &Path,
        _: &Path,
        _: FileIdentity,
        _: bool,
    ) -> Result<(), StorageError> {
        refused("rename")
    }

    fn stat(&self, _: &Path) -> Result<Metadata, StorageError> {
        refused("stat")
    }

    fn list(&self, _: &Path) -> Result<Box<dyn DirectoryStream>, StorageError> {
        refused("scandir")
    }

    fn make_directory(&self, _: &Path) -> Result<(), StorageError> {
        refused("mkdir")
    }

    fn remove_file(&self, _: &Path) -> Result<(), StorageError> {
        refused("unlink")
    }

    fn remove_directory(&self, _: &Path) -> Result<(), StorageError> {
        refused("rmdir")
    }

    fn remove_tree(&self, _: &Path, _: &dyn Fn() -> bool) -> Result<(), StorageError> {
        refused("unlink")
    }

    fn rename(&self, _: &Path, _: &Path) -> Result<(), StorageError> {
        refused("rename")
    }

    fn set_mode(&self, _: &Path, _: u32) -> Result<(), StorageError> {
        refused("chmod")
    }

    fn set_group(&self, _: &Path, _: &str) -> Result<(), StorageError> {
        refused("chgrp")
    }

    fn set_modified(&self, _: &Path, _: SystemTime) -> Result<(), StorageError> {
        refused("utimensat")
    }

    fn symlink(&self, _: &Path, _: &Path) -> Result<(), StorageError> {
        refused("symlink")
    }

    fn truncate(&self, _: &Path, _: u64) -> Result<(), StorageError> {
        refused("truncate")
    }

    fn checksum_attribute(&self, _: &Path) -> Result<Option<Vec<u8>>, StorageError> {
        Ok(None)
    }

    fn set_checksum_attribute(&self, _: &Path, _: Option<&[u8]>) -> Result<(), StorageError> {
        refused("setxattr")
    }
}
