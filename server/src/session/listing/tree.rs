//! A whole tree, as `MLSR` lists it: the entries of a directory follow its own line.

use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use gridhaul_shares::Grant;
use gridhaul_storage::{DirectoryStream, Entries, FileKind, Storage, StorageError};
use rustix::io::Errno;

use super::entry::Kind;
use super::lines::{Pieces, Writer};
use crate::threads::Listers;

/// The deepest level that is listed. Each level holds a descriptor.
const DEEPEST: usize = 128;

/// How many entries of a directory are sorted together.
const RUN_ENTRIES: usize = 4096;

/// The same below [`FREE_LEVELS`]: as many as the kernel returns at a time.
const DEEP_RUN_ENTRIES: usize = 1;

/// The levels that every tree may have. Deeper levels are counted for the client, because each holds a descriptor and entries.
const FREE_LEVELS: usize = 4;

/// The remaining part of a tree.
pub(crate) struct Tree {
    storage: Arc<dyn Storage>,
    listers: Listers,
    /// The path from the top to the directory that is listed now.
    levels: Vec<Level>,
}

struct Level {
    path: PathBuf,
    /// The path of the directory from the top of the tree, which precedes names.
    prefix: Vec<u8>,
    entries: Entries,
    /// The client's share for a level below [`FREE_LEVELS`].
    _share: Option<Grant>,
}

impl Tree {
    /// A tree whose top is at `path`.
    pub(crate) fn new(
        storage: Arc<dyn Storage>,
        listers: Listers,
        path: &Path,
        stream: Box<dyn DirectoryStream>,
    ) -> Self {
        let top = Level {
            path: path.to_owned(),
            prefix: Vec::new(),
            entries: Entries::new(stream, RUN_ENTRIES),
            _share: None,
        };
        Self {
            storage,
            listers,
            levels: vec![top],
        }
    }

    /// Adds the line of one entry. Returns false at the end.
    ///
    /// # Errors
    ///
    /// When a directory cannot be read, or is too deep.
    pub(crate) fn advance(
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

    /// Continues in a subdirectory. Leaves it out if it vanished or may not be read.
    fn descend(&mut self, path: PathBuf, mut prefix: Vec<u8>) -> Result<(), StorageError> {
        if self.levels.len() >= DEEPEST {
            return Err(StorageError::new("scandir", Errno::NAMETOOLONG));
        }
        let (run_entries, share) = if self.levels.len() < FREE_LEVELS {
            (RUN_ENTRIES, None)
        } else {
            let share = self.listers.level();
            let share = share.ok_or_else(|| StorageError::new("scandir", Errno::AGAIN))?;
            (DEEP_RUN_ENTRIES, Some(share))
        };
        match self.storage.list(&path) {
            Ok(stream) => {
                prefix.push(b'/');
                self.levels.push(Level {
                    path,
                    prefix,
                    entries: Entries::new(stream, run_entries),
                    _share: share,
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

#[cfg(test)]
mod tests {
    use gridhaul_protocol::facts::FactSelection;
    use gridhaul_shares::Source;
    use gridhaul_storage::{PosixOptions, PosixStorage};
    use tempfile::TempDir;

    use super::super::lines::{Form, Style};
    use super::*;
    use crate::threads::Threads;

    /// The number of nested directories.
    const DEPTH: usize = 100;

    fn deep() -> (TempDir, Arc<dyn Storage>) {
        let directory = TempDir::new().expect("a temporary directory");
        let path: PathBuf = std::iter::repeat_n("d", DEPTH).collect();
        std::fs::create_dir_all(directory.path().join(path)).expect("made");
        let storage = PosixStorage::open(directory.path(), PosixOptions::default());
        (directory, Arc::new(storage.expect("opened")))
    }

    fn tree(storage: &Arc<dyn Storage>, listers: Listers) -> Tree {
        let stream = storage.list("/".as_ref()).expect("listed");
        Tree::new(Arc::clone(storage), listers, "/".as_ref(), stream)
    }

    /// Descends to the deepest directory and stays there.
    fn descend(tree: &mut Tree) -> Result<(), StorageError> {
        let writer = Writer::new(Style {
            form: Form::Tree,
            facts: FactSelection::NONE,
        });
        for _ in 0..DEPTH {
            tree.advance(&writer, &mut Pieces::default())?;
        }
        Ok(())
    }

    #[test]
    fn deep_trees_of_one_client_leave_descriptors_to_others() {
        let (_directory, storage) = deep();
        let threads = Threads::new(1);
        let listers = |host: u8| threads.listers(&Source::at([192, 0, 2, host].into()));
        let mut open = Vec::new();
        let refusal = loop {
            let mut next = tree(&storage, listers(1));
            match descend(&mut next) {
                Ok(()) => open.push(next),
                Err(error) => break error,
            }
            assert!(open.len() < 20, "no limit");
        };
        assert_eq!(refusal.errno, Errno::AGAIN);
        descend(&mut tree(&storage, listers(2))).expect("another client's share");
        // Closing a tree returns its share.
        open.pop();
        descend(&mut tree(&storage, listers(1))).expect("its share");
    }
}
