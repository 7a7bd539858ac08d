//! Files and calls for the tests of the drivers that use this crate.

use std::env;
use std::fs::{self, File, OpenOptions};
use std::io::IoSliceMut;
use std::os::fd::AsFd;
use std::os::unix::fs::{FileExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicU64;
use std::time::{Duration, Instant};

use gridhaul_stack::{Body, Cancel, Channel, ChannelError, FileRange, Operation, Received};
use rustix::fs::{Advice, OFlags, fadvise};
use rustix::io::{Errno, ReadWriteFlags, preadv2};

/// What is sent before a range: as long as the header of a block of MODE E.
pub const HEAD: &[u8; 17] = b"seventeen bytes..";

/// The memory of a call: several blocks.
pub const SCRATCH_BYTES: usize = 256 * 1024;

/// Directories for the files of a test: on a disk, and on tmpfs if there is one.
pub fn places() -> Vec<PathBuf> {
    let in_memory = PathBuf::from("/dev/shm");
    let mut places = vec![env::temp_dir()];
    if in_memory.is_dir() {
        places.push(in_memory);
    } else {
        eprintln!("not tested in memory: no /dev/shm");
    }
    places
}

/// A file that is also open with `O_DIRECT`.
#[derive(Debug)]
pub struct TestFile {
    /// Through the page cache.
    pub file: File,
    /// `None` if the file system has no direct I/O.
    pub direct: Option<File>,
}

impl TestFile {
    /// A new file, open for reading and writing.
    pub fn new(path: &Path, content: &[u8]) -> Self {
        fs::write(path, content).unwrap();
        let mut options = OpenOptions::new();
        options.read(true).write(true);
        let file = options.open(path).unwrap();
        let direct = options.custom_flags(direct_flag()).open(path);
        if let Err(error) = &direct {
            eprintln!("{}: no direct I/O: {error}", path.display());
        }
        Self {
            file,
            direct: direct.ok(),
        }
    }

    /// The same with a descriptor that refuses writes, which simulates a failing file system. `None` without direct I/O.
    pub fn failing(path: &Path) -> Option<Self> {
        let file = Self::new(path, &[]);
        file.direct.as_ref()?;
        let mut options = OpenOptions::new();
        let read_only = options.read(true).custom_flags(direct_flag()).open(path);
        Some(Self {
            direct: Some(read_only.unwrap()),
            ..file
        })
    }

    /// Has the kernel write the file to the disk and forget its pages. Returns whether it did: file systems in memory do not.
    pub fn cool(&self) -> bool {
        self.file.sync_all().unwrap();
        fadvise(&self.file, 0, None, Advice::DontNeed).unwrap();
        let mut byte = [0];
        let read = preadv2(
            &self.file,
            &mut [IoSliceMut::new(&mut byte)],
            0,
            ReadWriteFlags::NOWAIT,
        );
        read == Err(Errno::AGAIN)
    }

    /// A range of it.
    pub fn range<'a>(
        &'a self,
        offset: u64,
        length: u64,
        scratch: &'a mut [u8],
        moved: &'a AtomicU64,
    ) -> FileRange<'a> {
        FileRange {
            direct: self.direct.as_ref().map(AsFd::as_fd),
            ..FileRange::new(self.file.as_fd(), offset, length, scratch, moved)
        }
    }

    /// All bytes.
    pub fn content(&self) -> Vec<u8> {
        let size = self.file.metadata().unwrap().len();
        let mut content = vec![0; usize::try_from(size).unwrap()];
        self.file.read_exact_at(&mut content, 0).unwrap();
        content
    }

    /// Sends [`HEAD`] and a range, as a block of MODE E. Returns the outcome, and how many bytes of the range were counted.
    pub fn send(
        &self,
        channel: &mut dyn Channel,
        offset: usize,
        length: usize,
    ) -> (Result<(), ChannelError>, u64) {
        let (mut scratch, moved) = (vec![0; SCRATCH_BYTES], AtomicU64::new(0));
        let range = self.range(offset as u64, length as u64, &mut scratch, &moved);
        let sent = with_operation(&Cancel::new(), |operation| {
            channel.send(HEAD, Body::File(range), operation)
        });
        (sent, moved.into_inner())
    }

    /// Receives into a range. Returns the outcome, and how many bytes were counted.
    pub fn receive(
        &self,
        channel: &mut dyn Channel,
        offset: usize,
        length: usize,
    ) -> (Result<u64, ChannelError>, u64) {
        let (mut scratch, moved) = (vec![0; SCRATCH_BYTES], AtomicU64::new(0));
        let range = self.range(offset as u64, length as u64, &mut scratch, &moved);
        let received = with_operation(&Cancel::new(), |operation| {
            channel.receive_into(range, operation)
        });
        (received, moved.into_inner())
    }
}

fn direct_flag() -> i32 {
    i32::try_from(OFlags::DIRECT.bits()).unwrap()
}

/// Runs a call with a deadline, so that a test ends.
pub fn with_operation<T>(cancel: &Cancel, run: impl FnOnce(&Operation<'_>) -> T) -> T {
    run(&Operation {
        deadline: Some(Instant::now() + Duration::from_secs(60)),
        cancel,
    })
}

/// Bytes without a short period.
pub fn pattern(length: usize) -> Vec<u8> {
    (0_u32..)
        .map(|index| index.wrapping_mul(0x9e37_79b9).to_be_bytes()[0])
        .take(length)
        .collect()
}

/// Sends bytes.
pub fn send_memory(channel: &mut dyn Channel, bytes: &[u8]) {
    with_operation(&Cancel::new(), |operation| {
        channel.send(&[], Body::Memory(bytes), operation).unwrap();
    });
}

/// Receives so many bytes.
pub fn receive_memory(channel: &mut dyn Channel, length: usize) -> Vec<u8> {
    let mut bytes = vec![0; length];
    let mut done = 0;
    with_operation(&Cancel::new(), |operation| {
        while done < length {
            match channel.receive(&mut bytes[done..], operation) {
                Ok(Received::Bytes(count)) => done += count.get(),
                other => panic!("{other:?} after {done} of {length} bytes"),
            }
        }
    });
    bytes
}

/// Receives [`HEAD`].
pub fn expect_head(channel: &mut dyn Channel) {
    assert_eq!(receive_memory(channel, HEAD.len()), HEAD);
}
