//! Requests over io_uring.

use std::fmt;
use std::io;
use std::os::fd::{AsRawFd as _, BorrowedFd};
use std::sync::OnceLock;
use std::time::Duration;

use io_uring::{IoUring, Probe, Submitter, opcode, types};
use rustix::io::Errno;

use crate::backend::{Backend, MAX_REQUESTS, RawRequest};
use crate::fixed::{BufferTable, FixedBuffers};
use crate::request::Call;
use crate::target::LastingMemory;

/// The pause after the kernel could not accept a request, for lack of memory for example.
const RETRY_DELAY: Duration = Duration::from_millis(1);

/// The submission and completion queues that are shared with the kernel.
pub(crate) struct Ring<E = Kernel> {
    queues: IoUring,
    enter: E,
    /// The kernel has not accepted some entries of the submission queue.
    has_unsubmitted: bool,
    /// Dropped after the queues, and so after the registration.
    fixed: FixedBuffers,
}

/// The call io_uring_enter(2). Tests have another one, which fails.
pub(crate) trait Enter {
    /// Submits the entries of the submission queue, and waits until `wanted` requests have completed.
    fn enter(&mut self, queues: &IoUring, wanted: usize) -> io::Result<usize>;
}

/// The kernel's call.
pub(crate) struct Kernel;

impl Enter for Kernel {
    fn enter(&mut self, queues: &IoUring, wanted: usize) -> io::Result<usize> {
        queues.submit_and_wait(wanted)
    }
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
        let entries = u32::try_from(MAX_REQUESTS).expect("a small number");
        let queues = IoUring::new(entries)?;
        if !READS_AND_WRITES.get_or_init(|| reads_and_writes(&queues)) {
            return Err(io::ErrorKind::Unsupported.into());
        }
        Ok(Self {
            queues,
            enter: Kernel,
            has_unsubmitted: false,
            fixed: FixedBuffers::default(),
        })
    }

    /// Before a queue that moves so many bytes from or to this memory. No request is in flight.
    pub(crate) fn prepare(&mut self, memory: &LastingMemory, bytes: u64) {
        self.fixed
            .prepare(&mut Registrations(self.queues.submitter()), memory, bytes);
    }
}

impl<E: Enter> Ring<E> {
    /// Submits all entries, and waits until `wanted` requests have completed. The kernel may accept some entries only, or none.
    fn enter(&mut self, wanted: usize) -> io::Result<usize> {
        let entered = self.enter.enter(&self.queues, wanted);
        self.has_unsubmitted = !self.queues.submission().is_empty();
        entered
    }
}

/// The registered buffers of a ring.
struct Registrations<'a>(Submitter<'a>);

impl BufferTable for Registrations<'_> {
    unsafe fn register(&mut self, buffers: &[libc::iovec]) -> io::Result<()> {
        // SAFETY: the caller keeps the memory.
        unsafe { self.0.register_buffers(buffers) }
    }

    fn unregister(&mut self) -> io::Result<()> {
        self.0.unregister_buffers()
    }
}

impl<E> fmt::Debug for Ring<E> {
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

impl<E: Enter> Backend for Ring<E> {
    unsafe fn submit(&mut self, request: RawRequest) {
        let file = types::Fd(request.file);
        let length = u32::try_from(request.length).expect("a request is shorter than 4 GiB");
        let (start, offset) = (request.start, request.offset);
        let fixed = self.fixed.index(start, request.length);
        let entry = match (request.call, fixed) {
            (Call::Read, Some(buffer)) => opcode::ReadFixed::new(file, start, length, buffer)
                .offset(offset)
                .build(),
            (Call::Read, None) => opcode::Read::new(file, start, length)
                .offset(offset)
                .build(),
            (Call::Write, Some(buffer)) => opcode::WriteFixed::new(file, start, length, buffer)
                .offset(offset)
                .build(),
            (Call::Write, None) => opcode::Write::new(file, start, length)
                .offset(offset)
                .build(),
        };
        let entry = entry.user_data(request.slot as u64);
        // SAFETY: the caller keeps the file and the memory until the completion.
        let pushed = unsafe { self.queues.submission().push(&entry) };
        pushed.expect("the submission queue has an entry for each slot");
        // A request that the kernel does not accept now is submitted again by the next `reap`, and `retry_in` says when.
        let _ = self.enter(0);
    }

    fn reap(&mut self, waits: bool, ended: &mut dyn FnMut(usize, Result<usize, Errno>)) {
        let entered = match (waits, self.has_unsubmitted) {
            (true, _) => self.enter(1),
            (false, true) => self.enter(0),
            (false, false) => Ok(0),
        };
        for completion in self.queues.completion() {
            // The user data of every request is its slot.
            let slot = usize::try_from(completion.user_data()).unwrap_or(usize::MAX);
            let result = completion.result();
            ended(
                slot,
                usize::try_from(result).map_err(|_| Errno::from_raw_os_error(-result)),
            );
        }
        if waits && entered.is_err_and(|error| error.kind() != io::ErrorKind::Interrupted) {
            std::thread::sleep(RETRY_DELAY);
        }
    }

    /// io_uring(7): it is readable while there are completions.
    fn descriptor(&self) -> BorrowedFd<'_> {
        // SAFETY: it stays open while `self` is borrowed.
        unsafe { BorrowedFd::borrow_raw(self.queues.as_raw_fd()) }
    }

    fn retry_in(&self) -> Option<Duration> {
        self.has_unsubmitted.then_some(RETRY_DELAY)
    }
}

#[cfg(test)]
mod tests;
