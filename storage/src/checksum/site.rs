//! Fixture of the tests of remembered checksums: a directory whose files are changed by clients and programs.

use std::fs::{File, OpenOptions};
use std::io::Write as _;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use tempfile::TempDir;

use super::seal::Sums;
use super::{ChecksumKey, ChecksumMemory};
use crate::{OpenedFile, PosixOptions, PosixStorage, Storage as _, StoredFile};

pub(super) struct Site {
    pub(super) directory: TempDir,
    pub(super) storage: PosixStorage,
    pub(super) memory: Arc<ChecksumMemory>,
}

impl Site {
    /// With room for 16 files in memory.
    pub(super) fn new(key: Option<ChecksumKey>) -> Self {
        let directory = TempDir::new().unwrap();
        let storage = PosixStorage::open(directory.path(), PosixOptions::default()).unwrap();
        Self {
            directory,
            storage,
            memory: ChecksumMemory::new(16, key),
        }
    }

    /// A site that stores checksums with files, unless this file system has no extended attributes.
    pub(super) fn with_attributes() -> Option<Self> {
        let site = Self::new(Some(key(0)));
        File::create(site.path("probe")).unwrap();
        let probe = Path::new("probe");
        let set = site.storage.set_checksum_attribute(probe, Some(b"x"));
        if set.is_err() {
            gridhaul_skip::skipped("no extended attributes where temporary files are");
        }
        set.ok().map(|()| site)
    }

    /// Restarts the server: it loses its memory, and keeps the attributes of files.
    pub(super) fn restart(&mut self, key: ChecksumKey) {
        self.memory = ChecksumMemory::new(16, Some(key));
    }

    pub(super) fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    pub(super) fn stored<'a>(&'a self, name: &'a str) -> StoredFile<'a> {
        stored_in(&self.storage, name)
    }

    pub(super) fn open(&self, name: &str) -> OpenedFile {
        self.storage.open_read(name.as_ref()).unwrap()
    }

    pub(super) fn writable(&self, name: &str) -> File {
        let file = OpenOptions::new().write(true).open(self.path(name));
        file.unwrap()
    }

    /// A client stores a file, which is remembered with these checksums.
    pub(super) fn receive(&self, name: &str, content: &[u8], sums: Sums) {
        let mut file = File::create(self.path(name)).unwrap();
        let opened = opened(&file);
        let writing = self.memory.begin_writing(&opened).unwrap();
        file.write_all(content).unwrap();
        let length = content.len() as u64;
        writing.remember(&opened, &self.stored(name), length, sums);
    }

    /// A program overwrites the first bytes of a file.
    pub(super) fn write(&self, name: &str, content: &[u8]) {
        self.writable(name).write_all_at(content, 0).unwrap();
    }
}

pub(super) fn stored_in<'a>(storage: &'a PosixStorage, name: &'a str) -> StoredFile<'a> {
    StoredFile {
        storage,
        path: Path::new(name),
    }
}

pub(super) fn opened(file: &File) -> OpenedFile {
    OpenedFile::new(file.try_clone().unwrap().into(), 0)
}

pub(super) fn key(byte: u8) -> ChecksumKey {
    ChecksumKey::new(&[byte; 32]).unwrap()
}
