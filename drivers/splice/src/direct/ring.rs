//! A lane over io_uring: one thread, and as many requests under way as there is memory for.
//!
//! The kernel writes to memory and reads from it until it says that a request has ended. So a lane is
//! made, used and dropped within one function here, and its drop waits for every request.

use std::fmt;
use std::io;
use std::os::fd::{AsRawFd as _, BorrowedFd};
use std::sync::OnceLock;
use std::time::Duration;

use io_uring::{IoUring, Probe, opcode, types};
use rustix::io::Errno;

use super::lane::{Call, Lane, MOST_PIECES, Request};

/// The two queues that are shared with the kernel.
pub(crate) struct Ring {
    queues: IoUring,
}

impl Ring {
    /// Opens the queues; they cost a descriptor and two pages.
    ///
    /// # Errors
    ///
    /// When the kernel has no io_uring or does not let this process use it: it came with Linux 5.1, and
    /// seccomp filters and `kernel.io_uring_disabled` forbid it.
    pub(crate) fn open() -> io::Result<Self> {
        static READS_AND_WRITES: OnceLock<bool> = OnceLock::new();
        let entries = u32::try_from(MOST_PIECES).expect("a small number");
        let queues = IoUring::new(entries)?;
        if !READS_AND_WRITES.get_or_init(|| reads_and_writes(&queues)) {
            return Err(io::ErrorKind::Unsupported.into());
        }
        Ok(Self { queues })
    }

    /// Does `work` with a lane for `file` in pieces of memory, at most [`MOST_PIECES`].
    pub(crate) fn with_lane<R>(
        &mut self,
        file: BorrowedFd<'_>,
        pieces: Vec<&mut [u8]>,
        work: impl FnOnce(&mut dyn Lane) -> R,
    ) -> R {
        // `work` cannot keep the lane from being dropped here.
        let mut lane = RingLane {
            queues: &mut self.queues,
            file,
            pieces: pieces.into_iter().map(Piece::new).collect(),
        };
        work(&mut lane)
    }
}

impl fmt::Debug for Ring {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Ring").finish_non_exhaustive()
    }
}

/// Linux 5.6 and newer have the requests that name their memory directly.
fn reads_and_writes(queues: &IoUring) -> bool {
    let mut probe = Probe::new();
    queues.submitter().register_probe(&mut probe).is_ok()
        && probe.is_supported(opcode::Read::CODE)
        && probe.is_supported(opcode::Write::CODE)
}

struct RingLane<'a> {
    queues: &'a mut IoUring,
    file: BorrowedFd<'a>,
    pieces: Vec<Piece<'a>>,
}

struct Piece<'a> {
    memory: &'a mut [u8],
    state: State,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Free,
    /// The kernel uses the memory.
    UnderWay,
    /// What the kernel said: a number of bytes, or an error number below zero.
    Ended(i32),
}

impl<'a> Piece<'a> {
    fn new(memory: &'a mut [u8]) -> Self {
        let state = State::Free;
        Self { memory, state }
    }
}

impl RingLane<'_> {
    /// Waits until a request has ended, and notes all that have.
    fn wait(&mut self) {
        /// What the kernel cannot take now, for want of memory for example, it takes soon.
        const BREATH: Duration = Duration::from_millis(1);

        let waited = self.queues.submit_and_wait(1);
        for ended in self.queues.completion() {
            // Only the indices of pieces are given to the kernel.
            let piece = usize::try_from(ended.user_data()).unwrap_or(usize::MAX);
            self.pieces[piece].state = State::Ended(ended.result());
        }
        if waited.is_err_and(|error| error.kind() != io::ErrorKind::Interrupted) {
            std::thread::sleep(BREATH);
        }
    }

    fn is_under_way(&self, piece: usize) -> bool {
        self.pieces[piece].state == State::UnderWay
    }
}

impl Lane for RingLane<'_> {
    fn pieces(&self) -> usize {
        self.pieces.len()
    }

    fn memory(&mut self, piece: usize) -> &mut [u8] {
        assert!(!self.is_under_way(piece), "the kernel has this memory");
        self.pieces[piece].memory
    }

    fn begin(&mut self, piece: usize, request: Request) {
        let file = types::Fd(self.file.as_raw_fd());
        let memory = &mut self.memory(piece)[request.start..][..request.length];
        let length = u32::try_from(memory.len()).expect("a piece is shorter than 4 GiB");
        let start = memory.as_mut_ptr();
        let entry = match request.call {
            Call::Read => opcode::Read::new(file, start, length)
                .offset(request.offset)
                .build(),
            Call::Write => opcode::Write::new(file, start, length)
                .offset(request.offset)
                .build(),
        };
        let entry = entry.user_data(piece as u64);
        // SAFETY: the file is borrowed for as long as the lane, and so is the memory, which is not accessed while the
        // piece is in flight; the lane is not dropped before that ends.
        let pushed = unsafe { self.queues.submission().push(&entry) };
        pushed.expect("the queue has an entry for each piece");
        self.pieces[piece].state = State::UnderWay;
        // What the kernel does not take it is given again with the next wait.
        let _ = self.queues.submit();
    }

    fn end(&mut self, piece: usize) -> Result<usize, Errno> {
        while self.is_under_way(piece) {
            self.wait();
        }
        match std::mem::replace(&mut self.pieces[piece].state, State::Free) {
            State::Ended(result) => {
                usize::try_from(result).map_err(|_| Errno::from_raw_os_error(-result))
            }
            State::Free | State::UnderWay => Ok(0),
        }
    }
}

impl Drop for RingLane<'_> {
    fn drop(&mut self) {
        for piece in 0..self.pieces.len() {
            while self.is_under_way(piece) {
                self.wait();
            }
        }
    }
}
