//! Files without a disk: zeros that can be read, and files that keep nothing, to measure how fast bytes move.

use std::fs::File;
use std::path::Path;
use std::time::SystemTime;

use gridhaul_storage::{
    DirectoryStream, FileIdentity, Metadata, OpenedFile, Storage, StorageError, UploadOpening,
    WriteMode,
};
use rustix::fs::{MemfdFlags, ftruncate, memfd_create};
use rustix::io::Errno;

/// Every name is a file that can be written, and whose bytes the kernel discards. A name that is a number can be read: so many zeros. All
/// else is refused.
#[derive(Debug)]
pub(super) struct Memory;

fn refused<T>(call: &'static str) -> Result<T, StorageError> {
    Err(StorageError::new(call, Errno::OPNOTSUPP))
}

impl Storage for Memory {
    fn open_read(&self, path: &Path) -> Result<OpenedFile, StorageError> {
        let name = path.file_name().and_then(|name| name.to_str());
        let size = name.and_then(|name| name.parse::<u64>().ok());
        let size = size.ok_or_else(|| StorageError::new("open", Errno::NOENT))?;
        let failed = |errno| StorageError::new("memfd_create", errno);
        // A hole of this size: it takes no memory.
        let file = memfd_create("gridhaul-zeros", MemfdFlags::CLOEXEC).map_err(failed)?;
        ftruncate(&file, size).map_err(failed)?;
        Ok(OpenedFile::new(file, size))
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_is_a_file_of_zeros_and_all_names_take_bytes() {
        let zeros = Memory.open_read(Path::new("/5000000")).expect("memory");
        assert_eq!(zeros.size_at_open(), 5_000_000);
        assert_eq!(zeros.size().expect("a size"), 5_000_000);
        for name in ["/zeros", "/", "/-1", "/18446744073709551616"] {
            assert!(Memory.open_read(Path::new(name)).is_err(), "{name}");
        }
        Memory
            .open_write(Path::new("/zeros"), WriteMode::Truncate)
            .expect("/dev/null");
    }
}
