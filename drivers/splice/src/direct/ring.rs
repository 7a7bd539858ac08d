//! An I/O queue over io_uring: one thread, and one request in flight for each piece.
//!
//! The kernel accesses the memory until a request has completed. So a queue is created, used and dropped within one function
//! here, and its drop waits for every request.

use std::fmt;
use std::io;
use std::os::fd::{AsRawFd as _, BorrowedFd};
use std::sync::OnceLock;
use std::time::Duration;

use io_uring::{IoUring, Probe, opcode, types};
use rustix::io::Errno;

use super::io_queue::{Call, IoQueue, MAX_PIECES, Request};

/// The submission and completion queues that are shared with the kernel.
pub(crate) struct Ring {
    queues: IoUring,
}

impl Ring {
    /// Opens the queues, which take a descriptor and two pages.
    ///
    /// # Errors
    ///
    /// When the kernel has no io_uring (before Linux 5.1), lacks the requests used here (before 5.6), or forbids it to this
    /// process (seccomp filters, `kernel.io_uring_disabled`).
    pub(crate) fn open() -> io::Result<Self> {
        static READS_AND_WRITES: OnceLock<bool> = OnceLock::new();
        let entries = u32::try_from(MAX_PIECES).expect("a small number");
        let queues = IoUring::new(entries)?;
        if !READS_AND_WRITES.get_or_init(|| reads_and_writes(&queues)) {
            return Err(io::ErrorKind::Unsupported.into());
        }
        Ok(Self { queues })
    }

    /// Calls `work` with a queue for `file`, over at most [`MAX_PIECES`] pieces of memory.
    pub(crate) fn with_queue<R>(
        &mut self,
        file: BorrowedFd<'_>,
        pieces: Vec<&mut [u8]>,
        work: impl FnOnce(&mut dyn IoQueue) -> R,
    ) -> R {
        // `work` gets a reference, so the queue is dropped here in any case.
        let mut queue = RingQueue {
            queues: &mut self.queues,
            file,
            pieces: pieces.into_iter().map(Piece::new).collect(),
        };
        work(&mut queue)
    }
}

impl fmt::Debug for Ring {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Ring").finish_non_exhaustive()
    }
}

/// Whether the kernel has `IORING_OP_READ` and `IORING_OP_WRITE` (Linux 5.6).
fn reads_and_writes(queues: &IoUring) -> bool {
    let mut probe = Probe::new();
    queues.submitter().register_probe(&mut probe).is_ok()
        && probe.is_supported(opcode::Read::CODE)
        && probe.is_supported(opcode::Write::CODE)
}

struct RingQueue<'a> {
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
    InFlight,
    /// The result: a number of bytes, or a negative error number.
    Completed(i32),
}

impl<'a> Piece<'a> {
    fn new(memory: &'a mut [u8]) -> Self {
        let state = State::Free;
        Self { memory, state }
    }
}

impl RingQueue<'_> {
    /// Waits until a request has completed, and records all completions.
    fn wait(&mut self) {
        /// The pause after the kernel could not accept a request, for lack of memory for example.
        const RETRY_DELAY: Duration = Duration::from_millis(1);

        let waited = self.queues.submit_and_wait(1);
        for ended in self.queues.completion() {
            // The user data of every request is the index of a piece.
            let piece = usize::try_from(ended.user_data()).unwrap_or(usize::MAX);
            self.pieces[piece].state = State::Completed(ended.result());
        }
        if waited.is_err_and(|error| error.kind() != io::ErrorKind::Interrupted) {
            std::thread::sleep(RETRY_DELAY);
        }
    }

    fn is_in_flight(&self, piece: usize) -> bool {
        self.pieces[piece].state == State::InFlight
    }
}

impl IoQueue for RingQueue<'_> {
    fn pieces(&self) -> usize {
        self.pieces.len()
    }

    fn memory(&mut self, piece: usize) -> &mut [u8] {
        assert!(!self.is_in_flight(piece), "a request is in flight");
        self.pieces[piece].memory
    }

    fn submit(&mut self, piece: usize, request: Request) {
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
        // SAFETY: the queue borrows the file and the memory. The memory is not accessed while the request is in flight, and the
        // drop of the queue waits for its completion.
        let pushed = unsafe { self.queues.submission().push(&entry) };
        pushed.expect("the submission queue has an entry for each piece");
        self.pieces[piece].state = State::InFlight;
        // A request that the kernel does not accept now is submitted again by the next wait.
        let _ = self.queues.submit();
    }

    fn complete(&mut self, piece: usize) -> Result<usize, Errno> {
        while self.is_in_flight(piece) {
            self.wait();
        }
        match std::mem::replace(&mut self.pieces[piece].state, State::Free) {
            State::Completed(result) => {
                usize::try_from(result).map_err(|_| Errno::from_raw_os_error(-result))
            }
            State::Free | State::InFlight => Ok(0),
        }
    }
}

impl Drop for RingQueue<'_> {
    fn drop(&mut self) {
        for piece in 0..self.pieces.len() {
            while self.is_in_flight(piece) {
                self.wait();
            }
        }
    }
}
