//! A storage of which only the calls exist that read, and one that opens a file to write.

use std::fmt::Debug;
use std::path::Path;
use std::time::SystemTime;

use gridhaul_storage::{
    DirectoryStream, FileIdentity, Metadata, OpenedFile, Storage, StorageError, UploadOpening,
    WriteMode,
};

/// What tests say of the calls that read.
pub(crate) trait Reads: Debug + Send + Sync {
    fn stat(&self, path: &Path) -> Result<Metadata, StorageError>;
    fn open_read(&self, path: &Path) -> Result<OpenedFile, StorageError>;
    fn list(&self, path: &Path) -> Result<Box<dyn DirectoryStream>, StorageError>;

    /// One call that writes, where a test has it.
    fn open_write(&self, _: &Path, _: WriteMode) -> Result<OpenedFile, StorageError> {
        unimplemented!()
    }
}

/// A storage that writes nothing: all other calls panic.
#[derive(Debug)]
pub(crate) struct ReadOnly<R>(pub(crate) R);

impl<R: Reads> Storage for ReadOnly<R> {
    fn stat(&self, path: &Path) -> Result<Metadata, StorageError> {
        self.0.stat(path)
    }

    fn open_read(&self, path: &Path) -> Result<OpenedFile, StorageError> {
        self.0.open_read(path)
    }

    fn list(&self, path: &Path) -> Result<Box<dyn DirectoryStream>, StorageError> {
        self.0.list(path)
    }

    fn open_write(&self, path: &Path, mode: WriteMode) -> Result<OpenedFile, StorageError> {
        self.0.open_write(path, mode)
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
