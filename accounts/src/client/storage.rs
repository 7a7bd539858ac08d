//! `Storage` by way of a broker: each call is one request and one answer.

use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::SystemTime;

use gridhaul_storage::{
    DirectoryStream, FileIdentity, Metadata, OpenedFile, Storage, StorageError, UploadOpening,
    WriteMode, group_number,
};
use rustix::fs::FileType;
use rustix::io::Errno;

use super::broker::{Answered, Broker, Repeat};
use super::listing::Listing;
use crate::facts::Time;
use crate::messages::{LONGEST_PATH, Reply, Request};

/// The files of a local account beneath its root, used with the rights of the account.
///
/// A broker that has ended, because it was idle or died, is started again. A call that it had received when it died is
/// repeated if the call is idempotent; otherwise it fails with `EIO`.
#[derive(Debug)]
pub struct AccountStorage {
    broker: Arc<Broker>,
}

impl AccountStorage {
    pub(super) fn new(broker: Arc<Broker>) -> Self {
        Self { broker }
    }

    /// The initial directory of the account's sessions, as a path beneath the root: its home directory if that lies
    /// beneath the root, else `/`.
    pub fn home(&self) -> PathBuf {
        self.broker.home()
    }

    /// The process id of the broker, if it runs now.
    pub fn broker(&self) -> Option<u32> {
        self.broker.pid()
    }

    fn open(&self, request: Request<'_>) -> Result<OpenedFile, StorageError> {
        const CALL: &str = "open";
        // Opening for writing can be repeated as well: nothing has been written yet.
        let answered = self.broker.call(CALL, request, Repeat::Safe)?;
        let mut descriptors = answered.descriptors.into_iter();
        let (Reply::Opened, Some(file)) = (answered.reply, descriptors.next()) else {
            return Err(StorageError::new(CALL, Errno::PROTO));
        };
        let stat = |file: &OwnedFd| {
            rustix::fs::fstat(file).map_err(|errno| StorageError::new(CALL, errno))
        };
        // Transfer threads assume that reads and writes do not block indefinitely, so a pipe or device from a compromised
        // broker is refused here.
        let facts = stat(&file)?;
        if FileType::from_raw_mode(facts.st_mode) != FileType::RegularFile {
            return Err(StorageError::new(CALL, Errno::PROTO));
        }
        let opened = OpenedFile::new(file, u64::try_from(facts.st_size).unwrap_or(0));
        let Some(direct) = descriptors.next() else {
            return Ok(opened);
        };
        let others = stat(&direct)?;
        if (others.st_dev, others.st_ino) != (facts.st_dev, facts.st_ino) {
            return Err(StorageError::new(CALL, Errno::PROTO));
        }
        Ok(opened.with_direct(direct))
    }

    fn open_to_write(
        &self,
        path: &Path,
        mode: WriteMode,
        direct: bool,
    ) -> Result<OpenedFile, StorageError> {
        self.open(Request::OpenWrite {
            path: bytes("open", path)?,
            truncate: mode == WriteMode::Truncate,
            create: mode != WriteMode::Existing,
            direct,
        })
    }

    fn open_to_read(&self, path: &Path, direct: bool) -> Result<OpenedFile, StorageError> {
        let path = bytes("open", path)?;
        self.open(Request::OpenRead { path, direct })
    }

    fn change(
        &self,
        call: &'static str,
        request: Request<'_>,
        repeat: Repeat,
    ) -> Result<(), StorageError> {
        done(call, self.broker.call(call, request, repeat)?)
    }
}

impl Storage for AccountStorage {
    fn open_read(&self, path: &Path) -> Result<OpenedFile, StorageError> {
        self.open_to_read(path, false)
    }

    fn open_write(&self, path: &Path, mode: WriteMode) -> Result<OpenedFile, StorageError> {
        self.open_to_write(path, mode, false)
    }

    fn open_read_direct(&self, path: &Path) -> Result<OpenedFile, StorageError> {
        self.open_to_read(path, true)
    }

    fn open_write_direct(&self, path: &Path, mode: WriteMode) -> Result<OpenedFile, StorageError> {
        self.open_to_write(path, mode, true)
    }

    fn open_upload(&self, path: &Path, opening: UploadOpening) -> Result<OpenedFile, StorageError> {
        self.open(Request::OpenUpload {
            path: bytes("open", path)?,
            create: opening.create,
            private: opening.private,
            direct: opening.direct,
        })
    }

    fn complete_upload(
        &self,
        from: &Path,
        to: &Path,
        identity: FileIdentity,
        durable: bool,
    ) -> Result<(), StorageError> {
        const CALL: &str = "rename";
        let request = Request::CompleteUpload {
            from: bytes(CALL, from)?,
            to: bytes(CALL, to)?,
            device: identity.device,
            inode: identity.inode,
            durable,
        };
        self.change(CALL, request, Repeat::Never)
    }

    fn stat(&self, path: &Path) -> Result<Metadata, StorageError> {
        const CALL: &str = "stat";
        let request = Request::Stat(bytes(CALL, path)?);
        match self.broker.call(CALL, request, Repeat::Safe)?.reply {
            Reply::Facts(facts) => Ok(facts.into_metadata(None)),
            _ => Err(StorageError::new(CALL, Errno::PROTO)),
        }
    }

    fn list(&self, path: &Path) -> Result<Box<dyn DirectoryStream>, StorageError> {
        const CALL: &str = "scandir";
        let request = Request::List(bytes(CALL, path)?);
        let first = self
            .broker
            .call_with_long_answer(CALL, request, Repeat::Safe)?;
        Ok(Box::new(Listing::new(first)?))
    }

    fn make_directory(&self, path: &Path) -> Result<(), StorageError> {
        const CALL: &str = "mkdir";
        let request = Request::MakeDirectory(bytes(CALL, path)?);
        self.change(CALL, request, Repeat::Never)
    }

    fn remove_file(&self, path: &Path) -> Result<(), StorageError> {
        const CALL: &str = "unlink";
        let request = Request::RemoveFile(bytes(CALL, path)?);
        self.change(CALL, request, Repeat::Never)
    }

    fn remove_directory(&self, path: &Path) -> Result<(), StorageError> {
        const CALL: &str = "rmdir";
        let request = Request::RemoveDirectory(bytes(CALL, path)?);
        self.change(CALL, request, Repeat::Never)
    }

    fn remove_tree(&self, path: &Path, cancelled: &dyn Fn() -> bool) -> Result<(), StorageError> {
        const CALL: &str = "unlink";
        let request = Request::RemoveTree(bytes(CALL, path)?);
        done(CALL, self.broker.call_until(CALL, request, cancelled)?)
    }

    fn rename(&self, from: &Path, to: &Path) -> Result<(), StorageError> {
        const CALL: &str = "rename";
        let request = Request::Rename {
            from: bytes(CALL, from)?,
            to: bytes(CALL, to)?,
        };
        self.change(CALL, request, Repeat::Never)
    }

    fn set_mode(&self, path: &Path, mode: u32) -> Result<(), StorageError> {
        const CALL: &str = "chmod";
        let path = bytes(CALL, path)?;
        self.change(CALL, Request::SetMode { path, mode }, Repeat::Safe)
    }

    fn set_group(&self, path: &Path, group: &str) -> Result<(), StorageError> {
        const CALL: &str = "chgrp";
        let request = Request::SetGroup {
            path: bytes(CALL, path)?,
            group: group_number(group),
        };
        self.change(CALL, request, Repeat::Safe)
    }

    fn set_modified(&self, path: &Path, modified: SystemTime) -> Result<(), StorageError> {
        const CALL: &str = "utime";
        let request = Request::SetModified {
            path: bytes(CALL, path)?,
            time: Time::new(modified),
        };
        self.change(CALL, request, Repeat::Safe)
    }

    fn symlink(&self, target: &Path, link: &Path) -> Result<(), StorageError> {
        const CALL: &str = "symlink";
        let request = Request::Symlink {
            target: bytes(CALL, target)?,
            link: bytes(CALL, link)?,
        };
        self.change(CALL, request, Repeat::Never)
    }

    fn truncate(&self, path: &Path, length: u64) -> Result<(), StorageError> {
        const CALL: &str = "truncate";
        let path = bytes(CALL, path)?;
        self.change(CALL, Request::Truncate { path, length }, Repeat::Safe)
    }

    fn checksum_attribute(&self, path: &Path) -> Result<Option<Vec<u8>>, StorageError> {
        const CALL: &str = "getxattr";
        let request = Request::ChecksumAttribute(bytes(CALL, path)?);
        match self.broker.call(CALL, request, Repeat::Safe)?.reply {
            Reply::Attribute(value) => Ok(value),
            _ => Err(StorageError::new(CALL, Errno::PROTO)),
        }
    }

    fn set_checksum_attribute(
        &self,
        path: &Path,
        value: Option<&[u8]>,
    ) -> Result<(), StorageError> {
        const CALL: &str = "setxattr";
        let path = bytes(CALL, path)?;
        let request = Request::SetChecksumAttribute { path, value };
        self.change(CALL, request, Repeat::Safe)
    }
}

/// The bytes of a path for a message. Paths that the kernel would refuse for their length are refused here.
fn bytes<'path>(call: &'static str, path: &'path Path) -> Result<&'path [u8], StorageError> {
    let bytes = path.as_os_str().as_bytes();
    if bytes.len() > LONGEST_PATH {
        return Err(StorageError::new(call, Errno::NAMETOOLONG));
    }
    Ok(bytes)
}

fn done(call: &'static str, answered: Answered) -> Result<(), StorageError> {
    match answered.reply {
        Reply::Done => Ok(()),
        _ => Err(StorageError::new(call, Errno::PROTO)),
    }
}
