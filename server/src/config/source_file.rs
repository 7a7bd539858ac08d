//! Files that a server reads at its start only, and whether they have changed since.

use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

/// A file or directory of another program that settings come from. A reload does not read it.
#[derive(Debug, Clone, PartialEq)]
pub struct SourceFile {
    path: PathBuf,
    /// `None` if it was not there.
    state: Option<State>,
}

/// What a change of a file changes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct State {
    file: (u64, u64),
    modified: (i64, i64),
    bytes: u64,
}

impl State {
    fn of(path: &Path) -> Option<Self> {
        let metadata = fs::metadata(path).ok()?;
        Some(Self {
            file: (metadata.dev(), metadata.ino()),
            modified: (metadata.mtime(), metadata.mtime_nsec()),
            bytes: metadata.len(),
        })
    }
}

impl SourceFile {
    /// A file as it is now.
    pub fn now(path: PathBuf) -> Self {
        let state = State::of(&path);
        Self { path, state }
    }

    /// The file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Whether it has changed, or is there no more, or may not be found any more with the rights of this process.
    pub fn has_changed(&self) -> bool {
        State::of(&self.path) != self.state
    }
}

#[cfg(test)]
mod tests {
    use std::time::SystemTime;

    use super::*;

    #[test]
    fn changes_of_files_and_directories_are_seen() {
        let directory = tempfile::tempdir().expect("a directory");
        let file = directory.path().join("gridftp.conf");
        let absent = SourceFile::now(file.clone());
        fs::write(&file, "port 1\n").expect("written");
        assert!(absent.has_changed());
        // The clock of a file system may stand still for a moment.
        let opened = fs::File::open(directory.path()).expect("opened");
        opened.set_modified(SystemTime::UNIX_EPOCH).expect("set");
        let all = SourceFile::now(directory.path().to_owned());
        let there = SourceFile::now(file.clone());
        assert!(!all.has_changed() && !there.has_changed());
        fs::write(directory.path().join("other"), "").expect("written");
        fs::write(&file, "port 22\n").expect("written");
        assert!(all.has_changed() && there.has_changed());
        let there = SourceFile::now(file.clone());
        fs::remove_file(&file).expect("removed");
        assert!(there.has_changed());
    }
}
