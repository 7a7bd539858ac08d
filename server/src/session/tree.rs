//! A whole tree, as `MLSR` lists it: a directory right behind its own line.

use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use gridhaul_storage::{DirectoryStream, Entries, FileKind, Storage, StorageError};
use rustix::io::Errno;

use super::entry::Kind;
use super::lines::{Pieces, Writer};

/// How deep directories are followed; each level holds a descriptor.
const DEEPEST: usize = 128;

/// How many entries of a directory are sorted together.
const RUN_ENTRIES: usize = 4096;

/// What is left of a tree.
pub(super) struct Tree {
    storage: Arc<dyn Storage>,
    /// The directories above the one that is listed now, which is the last.
    levels: Vec<Level>,
}

struct Level {
    path: PathBuf,
    /// What stands before names: where they are, as seen from the directory that was named.
    prefix: Vec<u8>,
    entries: Entries,
}

impl Tree {
    /// A tree whose top is at `path`.
    pub(super) fn new(
        storage: Arc<dyn Storage>,
        path: &Path,
        stream: Box<dyn DirectoryStream>,
    ) -> Self {
        let top = Level {
            path: path.to_owned(),
            prefix: Vec::new(),
            entries: Entries::new(stream, RUN_ENTRIES),
        };
        Self {
            storage,
            levels: vec![top],
        }
    }

    /// Adds the line of one entry, and tells whether that was not yet the end.
    ///
    /// # Errors
    ///
    /// When a directory cannot be read, or lies too deep.
    pub(super) fn advance(
        &mut self,
        writer: &Writer,
        ready: &mut Pieces,
    ) -> Result<bool, StorageError> {
        let Some(level) = self.levels.last_mut() else {
            return Ok(false);
        };
        let Some(entry) = level.entries.next_entry()? else {
            self.levels.pop();
            return Ok(true);
        };
        let metadata = &entry.metadata;
        let name = [level.prefix.as_slice(), entry.name.as_bytes()].concat();
        writer.add(ready, &name, &level.path, metadata, Kind::Entry);
        if metadata.kind == FileKind::Directory && metadata.link_target.is_none() {
            let path = level.path.join(&entry.name);
            self.descend(path, name)?;
        }
        Ok(true)
    }

    /// Goes on with a directory inside. One that vanished or may not be read is left out.
    fn descend(&mut self, path: PathBuf, mut prefix: Vec<u8>) -> Result<(), StorageError> {
        if self.levels.len() >= DEEPEST {
            return Err(StorageError::new("scandir", Errno::NAMETOOLONG));
        }
        match self.storage.list(&path) {
            Ok(stream) => {
                prefix.push(b'/');
                self.levels.push(Level {
                    path,
                    prefix,
                    entries: Entries::new(stream, RUN_ENTRIES),
                });
                Ok(())
            }
            Err(error) if matches!(error.errno, Errno::NOENT | Errno::ACCESS | Errno::NOTDIR) => {
                Ok(())
            }
            Err(error) => Err(error),
        }
    }
}
