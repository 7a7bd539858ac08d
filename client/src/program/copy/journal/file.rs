//! The file of a journal: a regular file that this program has written, and that one copy at a time has.

use std::fs::{self, File};
use std::io::{self, Seek as _, SeekFrom, Write as _};
use std::os::unix::fs::{FileExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};

use rustix::fs::{FlockOperation, Mode, OFlags, flock};
use rustix::io::Errno;

/// The first line. Other versions of the program may compute other keys.
pub(super) const HEAD: &str = concat!("gridhaul copy ", env!("CARGO_PKG_VERSION"), ", format 2\n");

/// The beginning of the first line in all versions.
const NAME: &[u8] = b"gridhaul copy ";

/// How often another copy may remove or make the file just then.
const TRIES: usize = 16;

/// Why there is no journal.
#[derive(Debug, thiserror::Error)]
pub(in super::super) enum JournalError {
    #[error(
        "there is no place for the journal: set HOME or XDG_STATE_HOME, or give --journal FILE"
    )]
    NoPlace,
    #[error("{}: a copy with these sources and this destination is running", .0.display())]
    Busy(PathBuf),
    #[error("{}: this file has other content than a journal, and is left alone: name another file, or remove it", .0.display())]
    Foreign(PathBuf),
    #[error("{}: a link or no regular file: name another file for the journal", .0.display())]
    NoFile(PathBuf),
    #[error("{}: {error}", path.display())]
    Io { path: PathBuf, error: io::Error },
}

/// What a file has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Content {
    /// Nothing: a copy was killed before it wrote the first line.
    Nothing,
    /// A journal of this version.
    Journal,
    /// One of another version.
    OtherVersion,
}

/// The file of an earlier copy, which no other copy has now. `None` if there is none.
///
/// # Errors
///
/// When another copy has it, it is no journal, or it cannot be read and written.
pub(super) fn open(path: &Path) -> Result<Option<(File, Content)>, JournalError> {
    for _ in 0..TRIES {
        let Some(file) = open_regular(path, OFlags::RDWR)? else {
            return Ok(None);
        };
        lock(&file).map_err(|_| JournalError::Busy(path.to_owned()))?;
        // A copy that has ended has removed it before its lock ended.
        if is_at(path, &file) {
            let content = content(path, &file)?;
            return Ok(Some((file, content)));
        }
    }
    Err(JournalError::Busy(path.to_owned()))
}

/// The file of a new copy, with the first line only. An earlier journal is emptied.
///
/// # Errors
///
/// As [`open`], and when the file cannot be made.
pub(super) fn begin(path: &Path) -> Result<File, JournalError> {
    let failed = |error| io_error(path, error);
    if let Some(directory) = path.parent() {
        fs::create_dir_all(directory).map_err(failed)?;
    }
    let made = rustix::fs::open(
        path,
        OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC,
        Mode::RUSR | Mode::WUSR,
    );
    let file = match made {
        Ok(made) => {
            let file = File::from(made);
            lock(&file).map_err(|_| JournalError::Busy(path.to_owned()))?;
            file
        }
        Err(Errno::EXIST) => {
            let found = open(path)?;
            found.ok_or_else(|| JournalError::Busy(path.to_owned()))?.0
        }
        Err(error) => return Err(failed(error.into())),
    };
    let written = file
        .set_len(0)
        .and_then(|()| (&file).write_all(HEAD.as_bytes()));
    if let Err(error) = written {
        // Half a line, on a full disk, would look like another file.
        let _ = file.set_len(0);
        return Err(failed(error));
    }
    Ok(file)
}

/// Has further records written behind the first `length` bytes.
pub(super) fn cut(file: &File, length: u64) -> io::Result<()> {
    file.set_len(length)?;
    let mut file = file;
    file.seek(SeekFrom::Start(length)).map(drop)
}

/// Refuses a file that is no journal.
///
/// # Errors
///
/// When it is none, or cannot be read.
pub(super) fn check(path: &Path) -> Result<(), JournalError> {
    match open_regular(path, OFlags::RDONLY)? {
        Some(file) => content(path, &file).map(drop),
        None => Ok(()),
    }
}

/// Removes the file, if it still has its name.
pub(super) fn remove(path: &Path, file: &File) {
    if is_at(path, file) {
        let _ = fs::remove_file(path);
    }
}

/// Opens a regular file, without waiting for the other end of a pipe. `None` if there is none.
fn open_regular(path: &Path, access: OFlags) -> Result<Option<File>, JournalError> {
    let flags = access | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let file = match rustix::fs::open(path, flags, Mode::empty()) {
        Ok(file) => File::from(file),
        Err(Errno::NOENT) => return Ok(None),
        Err(Errno::LOOP) => return Err(JournalError::NoFile(path.to_owned())),
        Err(error) => return Err(io_error(path, error.into())),
    };
    let metadata = file.metadata().map_err(|error| io_error(path, error))?;
    match metadata.is_file() {
        true => Ok(Some(file)),
        false => Err(JournalError::NoFile(path.to_owned())),
    }
}

fn content(path: &Path, file: &File) -> Result<Content, JournalError> {
    let mut bytes = [0; HEAD.len()];
    let mut count = 0;
    while count < bytes.len() {
        let read = file.read_at(&mut bytes[count..], count as u64);
        match read.map_err(|error| io_error(path, error))? {
            0 => break,
            read => count += read,
        }
    }
    match &bytes[..count] {
        [] => Ok(Content::Nothing),
        head if head == HEAD.as_bytes() => Ok(Content::Journal),
        head if head.starts_with(NAME) => Ok(Content::OtherVersion),
        _ => Err(JournalError::Foreign(path.to_owned())),
    }
}

/// Whether this file has this name.
fn is_at(path: &Path, file: &File) -> bool {
    let place = |metadata: fs::Metadata| (metadata.dev(), metadata.ino());
    let named = fs::symlink_metadata(path).ok().map(place);
    named.is_some() && named == file.metadata().ok().map(place)
}

fn lock(file: &File) -> io::Result<()> {
    Ok(flock(file, FlockOperation::NonBlockingLockExclusive)?)
}

fn io_error(path: &Path, error: io::Error) -> JournalError {
    JournalError::Io {
        path: path.to_owned(),
        error,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_of_others_stay_as_they_are() {
        let place = tempfile::tempdir().expect("a directory");
        let path = place.path().join("results");
        for foreign in ["g", "gridhaul copies", "\n", "results of a year\n"] {
            fs::write(&path, foreign).expect("written");
            for refused in [check(&path), begin(&path).map(drop), open(&path).map(drop)] {
                let error = refused.expect_err("no journal");
                assert!(
                    matches!(error, JournalError::Foreign(_)),
                    "{foreign}: {error}"
                );
            }
            assert_eq!(fs::read_to_string(&path).expect("there"), foreign);
        }
        let link = place.path().join("link");
        std::os::unix::fs::symlink("nowhere", &link).expect("a link");
        for refused in [check(&link), begin(&link).map(drop), open(&link).map(drop)] {
            let error = refused.expect_err("a link");
            assert!(matches!(error, JournalError::NoFile(_)), "{error}");
        }
        assert!(!place.path().join("nowhere").exists());
    }

    #[test]
    fn a_journal_that_is_empty_or_of_another_version_is_begun_again() {
        let place = tempfile::tempdir().expect("a directory");
        let path = place.path().join("journal");
        for (found, content) in [
            ("", Content::Nothing),
            ("gridhaul copy 0.0.1\nC 1\n", Content::OtherVersion),
            (&format!("{HEAD}C 1\n"), Content::Journal),
        ] {
            fs::write(&path, found).expect("written");
            check(&path).expect("a journal");
            let (_, known) = open(&path).expect("a journal").expect("there");
            assert_eq!(known, content);
            drop(begin(&path).expect("a journal"));
            assert_eq!(fs::read_to_string(&path).expect("there"), HEAD);
        }
    }

    #[test]
    fn only_the_file_of_the_journal_is_removed() {
        let place = tempfile::tempdir().expect("a directory");
        let path = place.path().join("journal");
        let file = begin(&path).expect("made");
        fs::rename(&path, place.path().join("other")).expect("renamed");
        fs::write(&path, "something else").expect("written");
        remove(&path, &file);
        assert!(path.exists());
        fs::rename(place.path().join("other"), &path).expect("renamed");
        remove(&path, &file);
        assert!(!path.exists());
    }
}
