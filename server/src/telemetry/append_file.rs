//! A file to which lines are appended, and which log rotation may rename.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::fd::OwnedFd;
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

/// The permission bits of a new log. It has names of users and files.
const MODE: u32 = 0o640;

/// Opens logs for appending, or creates them: by the rights of this process, or by those of another one.
pub(crate) trait OpenLogs {
    /// Opens or creates the log.
    fn append(&self, log: &Path) -> io::Result<File>;
}

/// Opens logs by the rights of this process.
#[derive(Debug)]
pub(crate) struct OwnRights;

impl OpenLogs for OwnRights {
    fn append(&self, log: &Path) -> io::Result<File> {
        let mut options = OpenOptions::new();
        options.append(true).create(true).mode(MODE).open(log)
    }
}

/// A log file. Each line is written with one call, so that lines of several writers do not mix.
#[derive(Debug)]
pub(crate) struct AppendFile {
    path: PathBuf,
    file: Mutex<File>,
}

impl AppendFile {
    /// Opens or creates the file.
    pub(crate) fn open(path: &Path, opener: &dyn OpenLogs) -> io::Result<Self> {
        Ok(Self {
            path: path.to_owned(),
            file: Mutex::new(opener.append(path)?),
        })
    }

    /// Opens the file again under its name, after log rotation has renamed the old one. On failure the old one stays in use.
    pub(crate) fn reopen(&self, opener: &dyn OpenLogs) -> io::Result<()> {
        match opener.append(&self.path) {
            Ok(file) => {
                self.replace(file);
                Ok(())
            }
            // The configuration is read again, and no log was rotated.
            Err(_) if self.is_in_place() => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// Whether the path still leads to the open file.
    fn is_in_place(&self) -> bool {
        let file = self.file.lock().unwrap_or_else(PoisonError::into_inner);
        match (file.metadata(), std::fs::metadata(&self.path)) {
            (Ok(open), Ok(named)) => (open.dev(), open.ino()) == (named.dev(), named.ino()),
            _ => false,
        }
    }

    /// Continues with another file.
    pub(crate) fn replace(&self, file: File) {
        *self.file.lock().unwrap_or_else(PoisonError::into_inner) = file;
    }

    /// A duplicate of the file's descriptor, if the process has one left.
    pub(crate) fn descriptor(&self) -> Option<OwnedFd> {
        let file = self.file.lock().unwrap_or_else(PoisonError::into_inner);
        file.try_clone().ok().map(OwnedFd::from)
    }

    /// Appends whole lines.
    pub(crate) fn append(&self, lines: &[u8]) -> io::Result<()> {
        self.file
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .write_all(lines)
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_go_to_the_new_file_after_a_rotation() {
        let directory = tempfile::tempdir().expect("a directory");
        let (path, moved) = (directory.path().join("log"), directory.path().join("log.1"));
        let file = AppendFile::open(&path, &OwnRights).expect("opened");
        file.append(b"one\n").expect("written");
        std::fs::rename(&path, &moved).expect("renamed");
        file.append(b"two\n").expect("written");
        file.reopen(&OwnRights).expect("reopened");
        file.append(b"three\n").expect("written");
        assert_eq!(std::fs::read_to_string(moved).expect("read"), "one\ntwo\n");
        assert_eq!(std::fs::read_to_string(path).expect("read"), "three\n");
    }

    #[test]
    fn a_file_that_cannot_be_reopened_stays_in_use() {
        let directory = tempfile::tempdir().expect("a directory");
        let logs = directory.path().join("logs");
        std::fs::create_dir(&logs).expect("made");
        let file = AppendFile::open(&logs.join("log"), &OwnRights).expect("opened");
        std::fs::remove_dir_all(&logs).expect("removed");
        file.reopen(&OwnRights).expect_err("no directory");
        file.append(b"one\n").expect("written");
    }
}
