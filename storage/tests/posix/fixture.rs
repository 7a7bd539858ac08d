//! Fixture of the tests of a storage. The including program defines `Files` and `open`, the storage under test.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use gridhaul_storage::{
    DirectoryEntry, Entries, OpenedFile, PosixOptions, Storage, StorageError, WriteMode,
};
use rustix::io::Errno;
use tempfile::TempDir;

use crate::{Files, open};

/// A directory of the machine, and a storage with this root.
pub(crate) struct Fixture {
    pub(crate) storage: Files,
    pub(crate) directory: TempDir,
}

impl Fixture {
    pub(crate) fn new() -> Self {
        let directory = TempDir::new().unwrap();
        let storage = open(directory.path(), PosixOptions::default()).unwrap();
        Self { storage, directory }
    }

    /// The path on the machine of a path of the storage.
    pub(crate) fn real(&self, path: &str) -> PathBuf {
        self.directory.path().join(path)
    }
}

pub(crate) fn path(path: &str) -> &Path {
    Path::new(path)
}

pub(crate) fn errno<T>(result: Result<T, StorageError>) -> Option<Errno> {
    result.err().map(|error| error.errno)
}

pub(crate) fn content(file: &OpenedFile) -> Vec<u8> {
    let mut content = Vec::new();
    let mut buffer = [0; 4096];
    loop {
        let offset = content.len() as u64;
        match rustix::io::pread(file, &mut buffer, offset).unwrap() {
            0 => return content,
            read => content.extend_from_slice(&buffer[..read]),
        }
    }
}

pub(crate) fn write(
    storage: &dyn Storage,
    path: &Path,
    content: &[u8],
) -> Result<(), StorageError> {
    write_mode(storage, path, WriteMode::Truncate, content)
}

pub(crate) fn write_mode(
    storage: &dyn Storage,
    path: &Path,
    mode: WriteMode,
    content: &[u8],
) -> Result<(), StorageError> {
    let file = storage.open_write(path, mode)?;
    assert_eq!(
        rustix::io::pwrite(&file, content, 0).unwrap(),
        content.len()
    );
    file.close()
}

pub(crate) fn entries(
    storage: &dyn Storage,
    path: &Path,
) -> Result<Vec<DirectoryEntry>, StorageError> {
    let mut listed = Entries::new(storage.list(path)?, 4096);
    let mut entries = Vec::new();
    while let Some(entry) = listed.next_entry()? {
        entries.push(entry);
    }
    Ok(entries)
}

/// The content of a directory tree, by path: type, permission bits, and content or link target.
pub(crate) fn snapshot(directory: &Path) -> BTreeMap<PathBuf, (u32, Vec<u8>)> {
    let mut found = BTreeMap::new();
    let mut waiting = vec![directory.to_owned()];
    while let Some(place) = waiting.pop() {
        for entry in fs::read_dir(&place).unwrap() {
            let path = entry.unwrap().path();
            let metadata = fs::symlink_metadata(&path).unwrap();
            let content = if metadata.is_dir() {
                waiting.push(path.clone());
                Vec::new()
            } else if metadata.is_symlink() {
                fs::read_link(&path)
                    .unwrap()
                    .into_os_string()
                    .into_encoded_bytes()
            } else {
                fs::read(&path).unwrap()
            };
            let name = path.strip_prefix(directory).unwrap().to_owned();
            found.insert(name, (metadata.permissions().mode(), content));
        }
    }
    found
}

/// Runs `disturb` in another thread while `work` runs here, each at least `rounds` times.
pub(crate) fn while_disturbed(rounds: usize, disturb: impl Fn(usize) + Sync, work: impl Fn(usize)) {
    let finished = AtomicBool::new(false);
    let disturbed = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        let disturber = scope.spawn(|| {
            for round in 0.. {
                if finished.load(Ordering::Relaxed) {
                    break;
                }
                disturb(round);
                disturbed.store(round + 1, Ordering::Relaxed);
            }
        });
        // The flag is set also if `work` fails, because the scope waits for the thread.
        let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            (0..)
                .take_while(|&round| {
                    let behind = disturbed.load(Ordering::Relaxed) < rounds;
                    round < rounds || behind && !disturber.is_finished()
                })
                .for_each(work);
        }));
        finished.store(true, Ordering::Relaxed);
        disturber.join().unwrap();
        if let Err(panic) = result {
            std::panic::resume_unwind(panic);
        }
    });
}

pub(crate) fn is_superuser() -> bool {
    rustix::process::geteuid().is_root()
}
