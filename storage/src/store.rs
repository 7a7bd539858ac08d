//! The interface of file systems: [`Storage`] for paths, [`OpenedFile`] for the files of transfers.

use std::ffi::{OsStr, OsString};
use std::fmt;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::time::SystemTime;

use rustix::fs::{FallocateFlags, FileType, FlockOperation, Stat};
use rustix::io::Errno;

use crate::{FileIdentity, Metadata, StorageError};

/// A file system beneath a root.
///
/// Absolute paths and relative ones both start at the root; `..` at the root stays there, and absolute symbolic links are
/// resolved beneath the root, as in a chroot. Calls block.
pub trait Storage: Send + Sync + fmt::Debug {
    /// Opens a regular file for reading. FIFOs, devices and sockets are refused without waiting.
    fn open_read(&self, path: &Path) -> Result<OpenedFile, StorageError>;

    /// Opens a regular file for writing, or creates one unless `mode` is [`WriteMode::Existing`].
    fn open_write(&self, path: &Path, mode: WriteMode) -> Result<OpenedFile, StorageError>;

    /// As [`Storage::open_read`], with a second descriptor past the page cache if the file system supports it
    /// ([`OpenedFile::direct`]).
    fn open_read_direct(&self, path: &Path) -> Result<OpenedFile, StorageError> {
        self.open_read(path)
    }

    /// As [`Storage::open_write`], with a second descriptor past the page cache if the file system supports it
    /// ([`OpenedFile::direct`]).
    fn open_write_direct(&self, path: &Path, mode: WriteMode) -> Result<OpenedFile, StorageError> {
        self.open_write(path, mode)
    }

    /// Opens the file of an unfinished upload for writing, as it is: not cut, and without following a link. The file
    /// belongs to the account and has no other name.
    fn open_upload(&self, path: &Path, opening: UploadOpening) -> Result<OpenedFile, StorageError>;

    /// Makes a file for `path` that has no name until [`UnnamedFile::give_name`], and opens it for writing. `None` if there is something at
    /// `path`, or an unfinished upload of it, or the storage has no such files there: then the file needs a temporary name, or its final
    /// one.
    fn open_unnamed(&self, _path: &Path) -> Option<(OpenedFile, Box<dyn UnnamedFile>)> {
        None
    }

    /// Renames an upload, whose file is `identity`, to its final name, and replaces the file or link there. If there is a
    /// file, the upload first gets its group, permission bits and access control list. If the account may not give it that
    /// group, its group gets no rights, and others get only those that the old group had as well. With `durable`, waits
    /// until the name is on the disk. Fails with `ESTALE` if another file is at `from`.
    fn complete_upload(
        &self,
        from: &Path,
        to: &Path,
        identity: FileIdentity,
        durable: bool,
    ) -> Result<(), StorageError>;

    /// Whether the file `identity` is at `path`, and no link to it.
    fn is_at(&self, path: &Path, identity: FileIdentity) -> Result<bool, StorageError> {
        let found = self.stat(path)?;
        let is_same = (found.device, found.inode) == (identity.device, identity.inode);
        Ok(is_same && found.link_target.is_none())
    }

    /// The metadata of the file at `path`. Symbolic links are followed; a dangling link is an error.
    fn stat(&self, path: &Path) -> Result<Metadata, StorageError>;

    /// Lists a directory in runs, in the order of the file system, without `.` and `..`.
    fn list(&self, path: &Path) -> Result<Box<dyn DirectoryStream>, StorageError>;

    /// Makes a directory.
    fn make_directory(&self, path: &Path) -> Result<(), StorageError>;

    /// Removes a file or a link, not a directory.
    fn remove_file(&self, path: &Path) -> Result<(), StorageError>;

    /// Removes an empty directory.
    fn remove_directory(&self, path: &Path) -> Result<(), StorageError>;

    /// Removes a file, or a directory with its content. Symbolic links are removed, not followed. Stops between two
    /// entries when `cancelled` returns true.
    fn remove_tree(&self, path: &Path, cancelled: &dyn Fn() -> bool) -> Result<(), StorageError>;

    /// Renames; an existing file at `to` is replaced.
    fn rename(&self, from: &Path, to: &Path) -> Result<(), StorageError>;

    /// Sets permission bits.
    fn set_mode(&self, path: &Path, mode: u32) -> Result<(), StorageError>;

    /// Sets the group, by name or number.
    fn set_group(&self, path: &Path, group: &str) -> Result<(), StorageError>;

    /// Sets the modification time.
    fn set_modified(&self, path: &Path, modified: SystemTime) -> Result<(), StorageError>;

    /// Makes a symbolic link at `link` with this target.
    fn symlink(&self, target: &Path, link: &Path) -> Result<(), StorageError>;

    /// Truncates a file to `length` bytes.
    fn truncate(&self, path: &Path, length: u64) -> Result<(), StorageError>;

    /// The value of the extended attribute for checksums, at most [`CHECKSUM_ATTRIBUTE_BYTES`]. It is not trusted: every
    /// account that may write to the file may have set it.
    fn checksum_attribute(&self, path: &Path) -> Result<Option<Vec<u8>>, StorageError>;

    /// Sets the attribute, or removes it.
    fn set_checksum_attribute(&self, path: &Path, value: Option<&[u8]>)
    -> Result<(), StorageError>;
}

/// The extended attribute in which the checksums of a file are stored.
pub const CHECKSUM_ATTRIBUTE: &str = "user.gridhaul.checksums";

/// The longest valid value of [`CHECKSUM_ATTRIBUTE`], in bytes.
pub const CHECKSUM_ATTRIBUTE_BYTES: usize = 256;

/// A file by its name, for operations that a descriptor does not allow because the file may belong to another account
/// than this process.
#[derive(Debug, Clone, Copy)]
pub struct StoredFile<'a> {
    /// The storage that contains the file.
    pub storage: &'a dyn Storage,
    /// Its path in the storage.
    pub path: &'a Path,
}

/// The entries of a directory, in runs, so that memory does not grow with their number.
pub trait DirectoryStream: Send {
    /// Reads the next run: at least `enough` names, or the remaining ones. `None` at the end.
    fn next_run(&mut self, enough: usize) -> Result<Option<Box<dyn DirectoryRun>>, StorageError>;
}

/// A run of names. Their metadata is fetched only by [`entries`](Self::entries), on the calling thread: several threads
/// can share the work of a large directory, and a listing of names needs no `stat`.
pub trait DirectoryRun: Send {
    /// The number of names.
    fn count(&self) -> usize;

    /// Drops the names for which `wanted` returns false.
    fn retain(&mut self, wanted: &dyn Fn(&OsStr) -> bool);

    /// Passes the names to `show`, sorted.
    fn names(&mut self, show: &mut dyn FnMut(&OsStr));

    /// Passes names and metadata to `show`, sorted by name. Entries that were removed meanwhile are left out.
    fn entries(&mut self, show: &mut dyn FnMut(&OsStr, &Metadata)) -> Result<(), StorageError>;
}

/// A file that has no name yet. It vanishes when its last descriptor is closed before.
pub trait UnnamedFile: Send + fmt::Debug {
    /// Sets the modification time. Writing changes it again.
    fn set_modified(&self, modified: SystemTime) -> Result<(), StorageError>;

    /// Gives the file its name. Fails with `EEXIST` if there is something of that name, which stays as it is.
    fn give_name(self: Box<Self>) -> Result<(), StorageError>;
}

/// A name in a directory, and the metadata of the file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DirectoryEntry {
    /// The name, without a path.
    pub name: OsString,
    /// The metadata; symbolic links are followed. `kind` is `Symlink` for a dangling link.
    pub metadata: Metadata,
}

/// What happens to the existing content of a file that is opened for writing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WriteMode {
    /// It is removed (`STOR`).
    Truncate,
    /// It is kept, for partial writes and restarts (`ESTO`, `REST`).
    Keep,
    /// It is kept, and a missing file is an error (`ENOENT`): another process has made the file.
    Existing,
}

/// How the file of an unfinished upload is opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct UploadOpening {
    /// Anything at the path that is no such file is removed, and a new file made. Otherwise it is an error (`ENOENT`).
    pub create: bool,
    /// The upload will replace a file, so the new one grants nothing to other accounts, and nor must one that is found:
    /// another account that has it open could read what arrives later.
    pub private: bool,
    /// As in [`Storage::open_write_direct`].
    pub direct: bool,
}

/// A regular file that was opened for a transfer. Dropping it ignores errors of `close`; after writing use
/// [`OpenedFile::close`], which reports deferred write errors.
#[derive(Debug)]
pub struct OpenedFile {
    descriptor: OwnedFd,
    direct: Option<OwnedFd>,
    size: u64,
}

impl OpenedFile {
    /// Takes over a descriptor of a regular file that had `size` bytes when it was opened.
    pub fn new(descriptor: OwnedFd, size: u64) -> Self {
        Self {
            descriptor,
            direct: None,
            size,
        }
    }

    /// Takes over a second descriptor of the same file, opened in the same way and with `O_DIRECT`.
    #[must_use]
    pub fn with_direct(self, direct: OwnedFd) -> Self {
        Self {
            direct: Some(direct),
            ..self
        }
    }

    /// The descriptor past the page cache, if one was requested and the file system supports it.
    pub fn direct(&self) -> Option<BorrowedFd<'_>> {
        self.direct.as_ref().map(AsFd::as_fd)
    }

    /// The size of the file when it was opened, in bytes (after `WriteMode::Truncate`: 0).
    pub fn size_at_open(&self) -> u64 {
        self.size
    }

    /// The same file, whose size has changed since it was opened.
    ///
    /// # Errors
    ///
    /// When the size cannot be determined.
    pub fn with_present_size(self) -> Result<Self, StorageError> {
        Ok(Self {
            size: self.size()?,
            ..self
        })
    }

    /// Identifies the file.
    ///
    /// # Errors
    ///
    /// When the identity cannot be determined.
    pub fn identity(&self) -> Result<FileIdentity, StorageError> {
        let stat = rustix::fs::fstat(&self.descriptor)
            .map_err(|errno| StorageError::new("stat", errno))?;
        Ok(FileIdentity {
            device: stat.st_dev,
            inode: stat.st_ino,
        })
    }

    /// Locks the file for this open file description, for all processes that do the same, also on other hosts if the file
    /// system supports it. Returns false if it is locked. The lock ends with the last descriptor. Has no effect on file
    /// systems without locks.
    pub fn try_lock(&self) -> bool {
        self.locked(FlockOperation::NonBlockingLockExclusive)
    }

    /// As [`Self::try_lock`], with a lock that several open file descriptions may have. It replaces an exclusive one of this
    /// description. NFS grants no shared lock on a file that is open for writing only (flock(2)): then this has no effect.
    pub fn try_lock_shared(&self) -> bool {
        self.locked(FlockOperation::NonBlockingLockShared)
    }

    fn locked(&self, lock: FlockOperation) -> bool {
        let locked = rustix::fs::flock(&self.descriptor, lock);
        !matches!(locked, Err(Errno::WOULDBLOCK))
    }

    /// A second descriptor of the open file description.
    ///
    /// # Errors
    ///
    /// When the process has too many descriptors.
    pub fn duplicate(&self) -> Result<Self, StorageError> {
        let descriptor = self
            .descriptor
            .try_clone()
            .map_err(|error| StorageError::from_io("dup", &error))?;
        Ok(Self::new(descriptor, self.size))
    }

    /// The present size of the file, in bytes.
    pub fn size(&self) -> Result<u64, StorageError> {
        Ok(u64::try_from(self.facts()?.st_size).unwrap_or(0))
    }

    /// Whether the file ends before `length` bytes. A device, such as `/dev/null`, has no end.
    pub fn ends_before(&self, length: u64) -> Result<bool, StorageError> {
        let facts = self.facts()?;
        let is_regular = FileType::from_raw_mode(facts.st_mode) == FileType::RegularFile;
        Ok(is_regular && u64::try_from(facts.st_size).unwrap_or(0) < length)
    }

    fn facts(&self) -> Result<Stat, StorageError> {
        rustix::fs::fstat(&self.descriptor).map_err(|errno| StorageError::new("stat", errno))
    }

    /// Reserves blocks for `length` bytes from `offset` without changing the size, and returns whether it did. The blocks
    /// stay reserved until the file is truncated, also after it is closed. Has no effect on file systems without
    /// reservations, and on those in memory: they would clear all pages at once, which is as much work as receiving the
    /// file. A full file system is an error.
    pub fn preallocate(&self, offset: u64, length: u64) -> Result<bool, StorageError> {
        if length == 0 || self.is_in_memory() {
            return Ok(false);
        }
        // A signal interrupts a long reservation.
        let reserved = rustix::io::retry_on_intr(|| {
            rustix::fs::fallocate(&self.descriptor, FallocateFlags::KEEP_SIZE, offset, length)
        });
        match reserved {
            Ok(()) => Ok(true),
            Err(Errno::OPNOTSUPP | Errno::NOSYS | Errno::INVAL) => Ok(false),
            Err(errno) => Err(StorageError::new("fallocate", errno)),
        }
    }

    /// Fails with `ENOSPC` if the file system has too few free blocks for `length` bytes from `offset`. Blocks that the file
    /// has already count as free. No block is reserved.
    pub fn check_room(&self, offset: u64, length: u64) -> Result<(), StorageError> {
        /// The unit of `st_blocks`, independent of the file system's block size (stat(2)).
        const BLOCK_BYTES: u64 = 512;
        let failed = |errno| StorageError::new("statvfs", errno);
        let system = rustix::fs::fstatvfs(&self.descriptor).map_err(failed)?;
        let blocks = if rustix::process::geteuid().is_root() {
            system.f_bfree
        } else {
            system.f_bavail
        };
        let stat = rustix::fs::fstat(&self.descriptor).map_err(failed)?;
        let present = u64::try_from(stat.st_blocks)
            .unwrap_or(0)
            .saturating_mul(BLOCK_BYTES);
        let needed = offset
            .saturating_add(length)
            .saturating_sub(present)
            .min(length);
        if needed > blocks.saturating_mul(system.f_frsize) {
            return Err(StorageError::new("fallocate", Errno::NOSPC));
        }
        Ok(())
    }

    fn is_in_memory(&self) -> bool {
        /// Of tmpfs, from linux/magic.h.
        const TMPFS_MAGIC: rustix::fs::FsWord = 0x0102_1994;
        rustix::fs::fstatfs(&self.descriptor).is_ok_and(|system| system.f_type == TMPFS_MAGIC)
    }

    /// Truncates the file to `length` bytes.
    pub fn truncate(&self, length: u64) -> Result<(), StorageError> {
        rustix::fs::ftruncate(&self.descriptor, length)
            .map_err(|errno| StorageError::new("ftruncate", errno))
    }

    /// Starts writing dirty pages of the file to the disk, without waiting for completion. Has no effect on file systems
    /// that do not support it.
    pub fn begin_write_back(&self) -> Result<(), StorageError> {
        use std::os::fd::AsRawFd as _;
        // sync_file_range(2): from 0, with a length of 0, is the whole file.
        // SAFETY: the descriptor is open while `self` is borrowed, and no memory is passed.
        let outcome = unsafe {
            libc::sync_file_range(
                self.descriptor.as_raw_fd(),
                0,
                0,
                libc::SYNC_FILE_RANGE_WRITE,
            )
        };
        if outcome == 0 {
            return Ok(());
        }
        match std::io::Error::last_os_error().raw_os_error() {
            None | Some(libc::EINVAL | libc::ENOSYS | libc::ESPIPE | libc::EOPNOTSUPP) => Ok(()),
            Some(errno) => Err(StorageError::new(
                "sync_file_range",
                Errno::from_raw_os_error(errno),
            )),
        }
    }

    /// Waits until the file's data, and the metadata needed to read it, are on the disk.
    pub fn sync_data(&self) -> Result<(), StorageError> {
        rustix::io::retry_on_intr(|| rustix::fs::fdatasync(&self.descriptor))
            .map_err(|errno| StorageError::new("fdatasync", errno))
    }

    /// Closes the file, and reports deferred write errors (NFS, quotas).
    pub fn close(self) -> Result<(), StorageError> {
        // SAFETY: the descriptor is owned here and forgotten by `into_raw_fd`, so it is closed once.
        unsafe { rustix::io::try_close(std::os::fd::IntoRawFd::into_raw_fd(self.descriptor)) }
            .map_err(|errno| StorageError::new("close", errno))
    }
}

impl AsFd for OpenedFile {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.descriptor.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::MetadataExt as _;

    use super::*;

    #[test]
    fn reserving_does_not_change_the_size() {
        let file = tempfile::tempfile().unwrap();
        let watched = file.try_clone().unwrap();
        let can_reserve = rustix::fs::fallocate(&file, FallocateFlags::KEEP_SIZE, 0, 1).is_ok();
        let opened = OpenedFile::new(file.into(), 0);
        let supported = can_reserve && !opened.is_in_memory();
        assert!(!opened.preallocate(0, 0).unwrap());
        assert_eq!(opened.preallocate(0, 1 << 20).unwrap(), supported);
        assert_eq!(opened.size().unwrap(), 0);
        // In units of 512 bytes; not every file system can reserve.
        assert_eq!(watched.metadata().unwrap().blocks() >= 2048, supported);
        opened.check_room(0, 1 << 20).unwrap();
        let error = opened.check_room(0, 1 << 62).unwrap_err();
        assert_eq!(error.errno, Errno::NOSPC);
        opened.truncate(5).unwrap();
        assert_eq!((opened.size_at_open(), opened.size().unwrap()), (0, 5));
        opened.close().unwrap();
    }
}
