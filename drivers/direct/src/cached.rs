//! Files that are in memory already, where a disk cannot be faster.

use std::io::IoSliceMut;
use std::os::fd::BorrowedFd;

use gridhaul_stack::{FileRange, random_bytes};
use rustix::fs::{AtFlags, FsWord, StatxFlags, fstat, fstatfs, statx};
use rustix::io::{ReadWriteFlags, preadv2};

use crate::request::Call;

/// File systems without a disk, from linux/magic.h: tmpfs and ramfs. Since Linux 6.6 tmpfs takes requests past the page cache, and
/// copies.
const IN_MEMORY: [FsWord; 2] = [0x0102_1994, 0x8584_58f6];

/// So many places of a file are looked at.
const PLACES: usize = 3;

/// What the ranges of one channel show about the file that it moves.
#[derive(Debug, Default)]
pub struct Residence {
    /// The file of the last range, and where the range began.
    last: Option<(Identity, u64)>,
    /// Its file system has no disk.
    is_in_memory: bool,
    /// The page cache had the file before the first of its ranges.
    is_cached: bool,
}

/// Which file it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Identity {
    /// The number of the file system.
    pub(crate) device: u64,
    inode: u64,
}

impl Identity {
    /// From what the kernel knows: fstat(2) also asks for times, and on NFS waits for what was written to the file for them.
    pub(crate) fn of(file: BorrowedFd<'_>) -> Option<Self> {
        let flags = AtFlags::EMPTY_PATH | AtFlags::STATX_DONT_SYNC;
        let facts = statx(file, c"", flags, StatxFlags::INO).ok()?;
        Some(Self {
            device: u64::from(facts.stx_dev_major) << 32 | u64::from(facts.stx_dev_minor),
            inode: facts.stx_ino,
        })
    }
}

impl Residence {
    /// Why the page cache is better for the next range than any way past it, if it is.
    pub fn reason_for_cache(&mut self, range: &FileRange<'_>, call: Call) -> Option<&'static str> {
        let identity = Identity::of(range.file)?;
        let before = self.last.replace((identity, range.offset));
        let before = before.filter(|(file, _)| *file == identity);
        if before.is_none() {
            // Of a remote file system the server is asked.
            self.is_in_memory = is_in_memory(range.file);
        }
        if self.is_in_memory {
            return Some("the file system is in memory");
        }
        if call == Call::Write {
            return None;
        }
        // The file is looked at before its first range only: ranges that are read through the page cache leave there what the kernel
        // reads ahead, which may be as much as the next range. Ranges of a transfer go from the start to the end.
        if before.is_none_or(|(_, offset)| offset > range.offset) {
            self.is_cached = is_cached(range.file);
        }
        self.is_cached.then_some("the page cache has the file")
    }
}

fn is_in_memory(file: BorrowedFd<'_>) -> bool {
    fstatfs(file).is_ok_and(|system| IN_MEMORY.contains(&system.f_type))
}

/// Whether a file is in the page cache, as far as some of its places tell. They are random: the kernel reads ahead at a
/// place that is not in the page cache, so at fixed places later calls would find only that.
fn is_cached(file: BorrowedFd<'_>) -> bool {
    let bytes = fstat(file).map_or(0, |facts| u64::try_from(facts.st_size).unwrap_or(0));
    let parts = random_bytes::<{ 2 * PLACES }>();
    parts.chunks_exact(2).all(|part| {
        let part = u64::from(u16::from_ne_bytes([part[0], part[1]]));
        is_there(
            file,
            (bytes >> 16) * part + (((bytes & 0xffff) * part) >> 16),
        )
    })
}

/// Whether a byte can be read without waiting, if the file system tells.
fn is_there(file: BorrowedFd<'_>, offset: u64) -> bool {
    // preadv2(2): EAGAIN if the byte is not immediately available, and EOPNOTSUPP on file systems that do not tell.
    let mut byte = [0];
    preadv2(
        file,
        &mut [IoSliceMut::new(&mut byte)],
        offset,
        ReadWriteFlags::NOWAIT,
    )
    .is_ok()
}

#[cfg(test)]
mod tests {
    use std::env;
    use std::path::Path;
    use std::sync::atomic::AtomicU64;

    use rustix::io::Errno;

    use super::*;
    use crate::test_files::{TestFile, pattern};

    fn reason(file: &TestFile, call: Call) -> Option<&'static str> {
        let (mut scratch, moved) = ([0], AtomicU64::new(0));
        Residence::default().reason_for_cache(&file.range(0, 8 << 20, &mut scratch, &moved), call)
    }

    #[test]
    fn a_file_that_is_in_the_page_cache_is_read_from_there() {
        let directory = tempfile::tempdir_in(env::temp_dir()).unwrap();
        let file = TestFile::new(&directory.path().join("file"), &pattern(8 << 20));
        if is_in_memory(file.range(0, 1, &mut [0], &AtomicU64::new(0)).file) {
            gridhaul_skip::skipped("temporary files are in memory");
            return;
        }
        let mut byte = [0];
        let slice = &mut [IoSliceMut::new(&mut byte)];
        if preadv2(&file.file, slice, 0, ReadWriteFlags::NOWAIT) == Err(Errno::OPNOTSUPP) {
            gridhaul_skip::skipped("the file system does not tell");
            return;
        }
        // What was just written is there, and can be read; for writing that makes no difference.
        assert_eq!(
            reason(&file, Call::Read),
            Some("the page cache has the file")
        );
        assert_eq!(reason(&file, Call::Write), None);
        if !file.cool() {
            return;
        }
        // What a transfer itself reads makes no difference to it.
        let (mut residence, moved) = (Residence::default(), AtomicU64::new(0));
        let mut reason_at = |offset| {
            let mut scratch = [0];
            let range = file.range(offset, 4096, &mut scratch, &moved);
            residence.reason_for_cache(&range, Call::Read)
        };
        assert_eq!(reason_at(0), None);
        let content = file.content();
        assert_eq!(reason_at(1 << 20), None);
        assert_eq!(reason_at(0), Some("the page cache has the file"));
        drop(content);
    }

    #[test]
    fn a_file_system_in_memory_has_no_disk() {
        let in_memory = Path::new("/dev/shm");
        if !in_memory.is_dir() {
            gridhaul_skip::skipped("no /dev/shm");
            return;
        }
        let directory = tempfile::tempdir_in(in_memory).unwrap();
        let file = TestFile::new(&directory.path().join("file"), &pattern(1000));
        for call in [Call::Read, Call::Write] {
            assert_eq!(reason(&file, call), Some("the file system is in memory"));
        }
    }
}
