//! Requests by helper threads, for systems without io_uring. The threads live as long as the queue, which is one call of a
//! channel.

use std::io;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use gridhaul_stack::WriteLock;
use rustix::event::{EventfdFlags, eventfd};
use rustix::io::Errno;

use crate::backend::{Backend, RawRequest};
use crate::request::Call;

/// The most requests in flight at the kernel.
const MAX_THREADS: usize = 4;

/// The stack of a helper, which only makes system calls.
const STACK_BYTES: usize = 64 * 1024;

/// Helper threads.
pub(crate) struct Threads<'a> {
    jobs: Sender<Job>,
    ended: Receiver<Ended>,
    /// Readable after a request has ended.
    wake: &'a OwnedFd,
}

struct Job(RawRequest);

// SAFETY: the memory of a request belongs to it until it has completed, on any thread.
unsafe impl Send for Job {}

/// A slot and its result.
type Ended = (usize, Result<usize, Errno>);

/// Calls `work` with helpers for at most `requests` requests.
///
/// # Errors
///
/// When no thread can be started, or the process has no free descriptor; `work` was not called.
pub(crate) fn with_threads<R>(
    requests: usize,
    work: impl FnOnce(&mut Threads<'_>) -> R,
) -> io::Result<R> {
    let (jobs, waiting) = channel();
    let (results, ended) = channel();
    let waiting = Mutex::new(waiting);
    let wake = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
    thread::scope(|scope| {
        // Its drop closes the channel of jobs, so the helpers end, and the scope waits for them.
        let mut threads = Threads {
            jobs,
            ended,
            wake: &wake,
        };
        for helper in 0..requests.min(MAX_THREADS) {
            let (waiting, results, wake) = (&waiting, results.clone(), &wake);
            let started = thread::Builder::new()
                .name("direct".to_owned())
                .stack_size(STACK_BYTES)
                .spawn_scoped(scope, move || help(waiting, &results, wake));
            match started {
                Ok(_) => {}
                Err(error) if helper == 0 => return Err(error),
                // Fewer helpers are enough.
                Err(_) => break,
            }
        }
        Ok(work(&mut threads))
    })
}

impl Backend for Threads<'_> {
    unsafe fn submit(&mut self, request: RawRequest) {
        self.jobs
            .send(Job(request))
            .expect("helpers live as long as this");
    }

    fn reap(&mut self, waits: bool, ended: &mut dyn FnMut(usize, Result<usize, Errno>)) {
        if waits {
            let (slot, result) = self.ended.recv().expect("helpers live as long as this");
            ended(slot, result);
        }
        // A request that ends after this makes it readable again. It fails if nothing has ended.
        let _ = rustix::io::read(self.wake, &mut [0_u8; 8]);
        for (slot, result) in self.ended.try_iter() {
            ended(slot, result);
        }
    }

    fn descriptor(&self) -> BorrowedFd<'_> {
        self.wake.as_fd()
    }

    /// Helpers repeat calls that were interrupted.
    fn retry_in(&self) -> Option<Duration> {
        None
    }
}

fn help(jobs: &Mutex<Receiver<Job>>, results: &Sender<Ended>, wake: &OwnedFd) {
    loop {
        let job = jobs.lock().unwrap_or_else(PoisonError::into_inner).recv();
        let Ok(Job(request)) = job else {
            return;
        };
        let result = carry_out(&request);
        // The receiver is closed if the caller has failed.
        let _ = results.send((request.slot, result));
        // It can fail only while it is readable.
        let _ = rustix::io::write(wake, &1_u64.to_ne_bytes());
    }
}

fn carry_out(request: &RawRequest) -> Result<usize, Errno> {
    let offset = libc::off_t::try_from(request.offset).map_err(|_| Errno::FBIG)?;
    let memory = request.start.cast();
    // SAFETY: the submitter keeps the file open until the request has completed.
    let file = unsafe { BorrowedFd::borrow_raw(request.file) };
    loop {
        let _turn = request.takes_turn.then(|| WriteLock::acquire(file));
        let moved = match request.call {
            // SAFETY: the submitter keeps the memory allocated until the request has completed, and it is `length` bytes long.
            Call::Read => unsafe { libc::pread(request.file, memory, request.length, offset) },
            // SAFETY: as above.
            Call::Write => unsafe { libc::pwrite(request.file, memory, request.length, offset) },
        };
        match usize::try_from(moved) {
            Ok(count) => return Ok(count),
            Err(_) => match last_errno() {
                Errno::INTR => {}
                errno => return Err(errno),
            },
        }
    }
}

fn last_errno() -> Errno {
    Errno::from_io_error(&io::Error::last_os_error()).unwrap_or(Errno::IO)
}
