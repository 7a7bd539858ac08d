//! Requests by helper threads with blocking calls, for systems without io_uring. The threads live as long as the queue, which is one call of a
//! channel.

use std::io;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use gridhaul_stack::measured::cpu_time;
use rustix::event::{EventfdFlags, eventfd};
use rustix::io::Errno;

use crate::backend::{Backend, RawRequest};
use crate::blocking::carry_out;

/// The most requests in flight at the kernel.
const MAX_THREADS: usize = 4;

/// The stack of a helper, which only makes system calls.
const STACK_BYTES: usize = 64 * 1024;

/// Helper threads.
pub(crate) struct Threads<'a> {
    jobs: Sender<RawRequest>,
    ended: Receiver<Ended>,
    /// Shared with the helpers.
    signals: &'a Signals,
    /// The processor time of the requests that have ended.
    spent: Duration,
}

struct Signals {
    /// Readable after a request has ended.
    wake: OwnedFd,
    /// Requests that no helper has taken are not carried out any more.
    is_over: AtomicBool,
}

/// A request that has ended.
struct Ended {
    slot: usize,
    result: Result<usize, Errno>,
    /// The processor time that the helper has taken since the one before.
    spent: Duration,
}

/// Calls `work` with helpers for at most `requests` requests. Also returns the processor time of the helpers for all requests that ended.
///
/// # Errors
///
/// When no thread can be started, or the process has no free descriptor; `work` was not called.
pub(crate) fn with_threads<R>(
    requests: usize,
    work: impl FnOnce(&mut Threads<'_>) -> R,
) -> io::Result<(R, Duration)> {
    let (jobs, waiting) = channel();
    let (results, ended) = channel();
    let waiting = Mutex::new(waiting);
    let signals = Signals {
        wake: eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?,
        is_over: AtomicBool::new(false),
    };
    thread::scope(|scope| {
        // Its drop closes the channel of jobs, so the helpers end, and the scope waits for them.
        let mut threads = Threads {
            jobs,
            ended,
            signals: &signals,
            spent: Duration::ZERO,
        };
        for helper in 0..requests.min(MAX_THREADS) {
            let (waiting, results, signals) = (&waiting, results.clone(), &signals);
            let started = thread::Builder::new()
                .name("direct".to_owned())
                .stack_size(STACK_BYTES)
                .spawn_scoped(scope, move || help(waiting, &results, signals));
            match started {
                Ok(_) => {}
                Err(error) if helper == 0 => return Err(error),
                // Fewer helpers are enough.
                Err(_) => break,
            }
        }
        let done = work(&mut threads);
        Ok((done, threads.spent))
    })
}

impl Backend for Threads<'_> {
    unsafe fn submit(&mut self, request: RawRequest) {
        self.jobs
            .send(request)
            .expect("helpers live as long as this");
    }

    fn reap(&mut self, waits: bool, ended: &mut dyn FnMut(usize, Result<usize, Errno>)) {
        if waits {
            let one = self.ended.recv().expect("helpers live as long as this");
            self.spent += one.spent;
            ended(one.slot, one.result);
        }
        // A request that ends after this makes it readable again. It fails if nothing has ended.
        let _ = rustix::io::read(&self.signals.wake, &mut [0_u8; 8]);
        for one in self.ended.try_iter() {
            self.spent += one.spent;
            ended(one.slot, one.result);
        }
    }

    /// Helpers end the others one after another, without a call.
    fn withdraw(&mut self, _: &mut dyn FnMut(usize, Result<usize, Errno>)) {
        self.signals.is_over.store(true, Ordering::Relaxed);
    }

    fn descriptor(&self) -> BorrowedFd<'_> {
        self.signals.wake.as_fd()
    }

    /// Helpers repeat calls that were interrupted.
    fn retry_in(&self) -> Option<Duration> {
        None
    }
}

fn help(jobs: &Mutex<Receiver<RawRequest>>, results: &Sender<Ended>, signals: &Signals) {
    let mut before = Duration::ZERO;
    loop {
        let job = jobs.lock().unwrap_or_else(PoisonError::into_inner).recv();
        let Ok(request) = job else {
            return;
        };
        let result = match signals.is_over.load(Ordering::Relaxed) {
            true => Err(Errno::CANCELED),
            // SAFETY: the submitter keeps the file and the memory until the request has completed.
            false => unsafe { carry_out(&request) },
        };
        let now = cpu_time();
        let ended = Ended {
            slot: request.slot,
            result,
            spent: now.saturating_sub(before),
        };
        before = now;
        // The receiver is closed if the caller has failed.
        let _ = results.send(ended);
        // It can fail only while it is readable.
        let _ = rustix::io::write(&signals.wake, &1_u64.to_ne_bytes());
    }
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsRawFd as _;
    use std::os::unix::fs::FileExt as _;

    use gridhaul_stack::WriteLock;

    use super::*;
    use crate::request::Call;

    /// Otherwise the later write of the thread that has its turn would be the last one.
    #[test]
    fn a_write_to_the_page_cache_takes_its_turn_at_the_file() {
        let file = tempfile::tempfile().unwrap();
        let mut memory = *b"helper";
        let request = RawRequest {
            slot: 0,
            call: Call::Write,
            file: file.as_raw_fd(),
            offset: 0,
            start: memory.as_mut_ptr(),
            length: memory.len(),
            takes_turn: true,
        };
        let turn = WriteLock::acquire(file.as_fd());
        let done = with_threads(1, |threads| {
            // SAFETY: the file is open, and the memory is not used before the request has ended.
            unsafe { threads.submit(request) };
            for _ in 0..1000 {
                thread::yield_now();
            }
            file.write_all_at(b"caller", 0).unwrap();
            drop(turn);
            threads.reap(true, &mut |_, result| assert_eq!(result, Ok(6)));
        });
        done.unwrap();
        let mut content = [0; 6];
        file.read_exact_at(&mut content, 0).unwrap();
        assert_eq!(&content, b"helper");
    }

    /// It costs the caller nothing but the hand-over.
    #[test]
    fn the_processor_time_of_requests_is_counted() {
        const BYTES: usize = 8 << 20;
        let file = tempfile::tempfile().unwrap();
        let mut memory = vec![1; BYTES];
        let request = RawRequest {
            slot: 0,
            call: Call::Write,
            file: file.as_raw_fd(),
            offset: 0,
            start: memory.as_mut_ptr(),
            length: BYTES,
            takes_turn: true,
        };
        let done = with_threads(1, |threads| {
            // SAFETY: the file is open, and the memory is not used before the request has ended.
            unsafe { threads.submit(request) };
            let mut moved = Ok(0);
            threads.reap(true, &mut |_, result| moved = result);
            moved
        });
        let (moved, spent) = done.unwrap();
        assert_eq!(moved, Ok(BYTES));
        // A processor that copies 100 GB in a second has yet to be built.
        assert!(spent > Duration::from_micros(80), "{spent:?}");
    }

    #[test]
    fn a_request_that_no_helper_has_taken_ends_without_a_call() {
        let file = tempfile::tempfile().unwrap();
        file.write_all_at(b"content", 0).unwrap();
        let mut memory = [0; 4];
        let request = RawRequest {
            slot: 3,
            call: Call::Read,
            file: file.as_raw_fd(),
            offset: 1,
            start: memory.as_mut_ptr(),
            length: memory.len(),
            takes_turn: false,
        };
        let done = with_threads(1, |threads| {
            threads.withdraw(&mut |slot, result| panic!("{slot}: {result:?}"));
            // SAFETY: the file is open, and the memory is not used before the request has ended.
            unsafe { threads.submit(request) };
            let mut ended = Vec::new();
            threads.reap(true, &mut |slot, result| ended.push((slot, result)));
            ended
        });
        let (ended, _) = done.unwrap();
        assert_eq!(ended, [(3, Err(Errno::CANCELED))]);
        assert_eq!(memory, [0; 4]);
    }
}
