//! A file to which lines are appended, and which log rotation may rename.

use std::fs::{File, Metadata, OpenOptions};
use std::io;
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard};

use rustix::fs::OFlags;

use super::log_message::LogFile;
use super::log_writer::LogWriter;
use super::whole_lines::{Gaps, WholeLines};
use crate::locks::lock;

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
    /// Does not wait: not for the reader of a FIFO, nor later for one that reads slowly.
    fn append(&self, log: &Path) -> io::Result<File> {
        let flags = (OFlags::NOCTTY | OFlags::NONBLOCK).bits();
        let flags = i32::try_from(flags).map_err(io::Error::other)?;
        let mut options = OpenOptions::new();
        options.append(true).create(true).mode(MODE);
        let file = options.custom_flags(flags).open(log)?;
        let kind = file.metadata()?.file_type();
        // A terminal, a pipe or `/dev/null` may be configured.
        match kind.is_file() || kind.is_char_device() || kind.is_fifo() {
            true => Ok(file),
            false => Err(io::Error::other("it is a device of another kind")),
        }
    }
}

/// A log file. Lines of several writers do not mix.
#[derive(Debug)]
pub(crate) struct AppendFile {
    path: PathBuf,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    target: Target,
    /// The device and inode of the file that was opened last.
    opened: (u64, u64),
}

/// Where lines go.
#[derive(Debug, Clone)]
enum Target {
    File(Arc<Mutex<WholeLines>>),
    /// The process that has the file open.
    Process(Arc<LogWriter>, LogFile),
}

impl AppendFile {
    /// Opens or creates the file.
    pub(crate) fn open(path: &Path, opener: &dyn OpenLogs, gaps: Gaps) -> io::Result<Self> {
        let file = opener.append(path)?;
        Ok(Self {
            path: path.to_owned(),
            state: Mutex::new(State {
                opened: identity(&file.metadata()?),
                target: Target::File(Arc::new(Mutex::new(WholeLines::new(file, gaps)))),
            }),
        })
    }

    /// Opens the file again under its name, after log rotation has renamed the old one. On failure the old one stays in use.
    /// Where another process has the file open, it continues in the new one.
    pub(crate) fn reopen(&self, opener: &dyn OpenLogs) -> io::Result<()> {
        let file = match opener.append(&self.path) {
            Ok(file) => file,
            // The configuration is read again, and no log was rotated.
            Err(_) if self.is_in_place() => return Ok(()),
            Err(error) => return Err(error),
        };
        let opened = identity(&file.metadata()?);
        let target = match self.target() {
            Target::File(lines) => {
                lock(&lines).continue_in(file);
                Target::File(lines)
            }
            Target::Process(writer, of) => {
                writer.replace(of, &file)?;
                Target::Process(writer, of)
            }
        };
        *self.state() = State { target, opened };
        Ok(())
    }

    /// Whether the path still leads to the open file.
    fn is_in_place(&self) -> bool {
        let opened = self.state().opened;
        std::fs::metadata(&self.path).is_ok_and(|named| identity(&named) == opened)
    }

    /// Sends lines to the log process from now on, as those of `file`. Closes the file here.
    pub(crate) fn write_through(&self, writer: &Arc<LogWriter>, file: LogFile) {
        self.state().target = Target::Process(Arc::clone(writer), file);
    }

    /// A duplicate of the file's descriptor, for the log process.
    pub(crate) fn duplicate(&self) -> io::Result<WholeLines> {
        match self.target() {
            Target::File(lines) => lock(&lines).duplicate(),
            Target::Process(..) => Err(io::ErrorKind::NotFound.into()),
        }
    }

    /// Appends whole lines.
    pub(crate) fn append(&self, lines: &[u8]) -> io::Result<()> {
        // The lock of the state is not held meanwhile: all threads may wait for a slow log process at the same time.
        match self.target() {
            Target::File(file) => lock(&file).append(lines),
            Target::Process(writer, file) => writer.append(file, lines),
        }
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    fn target(&self) -> Target {
        self.state().target.clone()
    }

    fn state(&self) -> MutexGuard<'_, State> {
        lock(&self.state)
    }
}

fn identity(file: &Metadata) -> (u64, u64) {
    (file.dev(), file.ino())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_go_to_the_new_file_after_a_rotation() {
        let directory = tempfile::tempdir().expect("a directory");
        let (path, moved) = (directory.path().join("log"), directory.path().join("log.1"));
        let file = AppendFile::open(&path, &OwnRights, Gaps::Text).expect("opened");
        file.append(b"one\n").expect("written");
        std::fs::rename(&path, &moved).expect("renamed");
        file.append(b"two\n").expect("written");
        file.reopen(&OwnRights).expect("reopened");
        file.append(b"three\n").expect("written");
        assert_eq!(std::fs::read_to_string(moved).expect("read"), "one\ntwo\n");
        assert_eq!(std::fs::read_to_string(path).expect("read"), "three\n");
    }

    #[test]
    fn a_fifo_without_a_reader_is_not_waited_for() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("log");
        let (owner, fifo) = (rustix::fs::Mode::RWXU, rustix::fs::FileType::Fifo);
        rustix::fs::mknodat(rustix::fs::CWD, &path, fifo, owner, 0).expect("made");
        OwnRights.append(&path).expect_err("no reader");
    }

    #[test]
    fn a_file_that_cannot_be_reopened_stays_in_use() {
        let directory = tempfile::tempdir().expect("a directory");
        let logs = directory.path().join("logs");
        std::fs::create_dir(&logs).expect("made");
        let file = AppendFile::open(&logs.join("log"), &OwnRights, Gaps::Text).expect("opened");
        std::fs::remove_dir_all(&logs).expect("removed");
        file.reopen(&OwnRights).expect_err("no directory");
        file.append(b"one\n").expect("written");
    }
}
