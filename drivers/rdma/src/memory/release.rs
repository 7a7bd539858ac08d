//! A thread that releases long memory.
//!
//! To deregister and unmap memory takes time for each of its pages. For gigabytes a channel would wait for that while its data flows
//! (a ring that its stream has left), and so would all channels that the background thread closes. There is one such thread for the
//! process. It starts with the first memory and ends with the last.
//!
//! What waits for the thread counts against the bound on all rings until it is released: it holds its part of the pool. So that bound
//! also limits the queue.

use std::any::Any;
use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;

/// Shorter memory is released at once.
const LONG_BYTES: usize = 64 << 20;

/// The values that wait. A value releases its memory when it is dropped.
static WAITING: Mutex<Waiting> = Mutex::new(Waiting {
    values: VecDeque::new(),
    has_thread: false,
});

struct Waiting {
    values: VecDeque<Box<dyn Any + Send>>,
    has_thread: bool,
}

/// Drops a value, which releases memory of so many bytes: on the thread if that takes long. It is dropped at once if there is no
/// thread left.
pub(crate) fn release_later(bytes: usize, value: impl Any + Send) {
    if bytes < LONG_BYTES {
        return;
    }
    let mut waiting = waiting();
    waiting.values.push_back(Box::new(value));
    if waiting.has_thread {
        return;
    }
    let started = thread::Builder::new()
        .name("rdma-release".to_owned())
        .spawn(release_all);
    match started {
        Ok(_) => waiting.has_thread = true,
        Err(_) => {
            let values = std::mem::take(&mut waiting.values);
            drop(waiting);
            drop(values);
        }
    }
}

/// Does something when everything that was given to the thread before is released: at once if nothing is left.
pub(super) fn after_release(action: impl FnOnce() + Send + 'static) {
    let mut waiting = waiting();
    if waiting.has_thread {
        waiting.values.push_back(Box::new(Last(Some(action))));
        return;
    }
    drop(waiting);
    action();
}

/// Does something when it is dropped.
struct Last<F: FnOnce()>(Option<F>);

impl<F: FnOnce()> Drop for Last<F> {
    fn drop(&mut self) {
        if let Some(action) = self.0.take() {
            action();
        }
    }
}

/// The thread.
fn release_all() {
    loop {
        let mut waiting = waiting();
        let Some(value) = waiting.values.pop_front() else {
            waiting.has_thread = false;
            return;
        };
        drop(waiting);
        // The others are released also if one panics.
        let _ = catch_unwind(AssertUnwindSafe(|| drop(value)));
    }
}

fn waiting() -> MutexGuard<'static, Waiting> {
    WAITING.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
pub(super) mod tests {
    use std::sync::mpsc::{Receiver, Sender, channel};
    use std::thread::ThreadId;

    use super::*;

    /// Keeps the thread busy until the sender is dropped.
    pub(in crate::memory) struct Gate(Receiver<()>);

    impl Gate {
        /// Holds the thread; everything that is released later waits behind it.
        pub(in crate::memory) fn close() -> Sender<()> {
            let (opens, gate) = channel();
            release_later(LONG_BYTES, Self(gate));
            opens
        }
    }

    impl Drop for Gate {
        fn drop(&mut self) {
            // It fails when the sender is dropped.
            let _ = self.0.recv();
        }
    }

    /// Reports the thread on which it is dropped.
    struct Reporting(Sender<ThreadId>);

    impl Drop for Reporting {
        fn drop(&mut self) {
            self.0.send(thread::current().id()).unwrap();
        }
    }

    #[test]
    fn long_memory_is_released_by_the_thread_and_short_memory_at_once() {
        let (report, reports) = channel();
        for _ in 0..3 {
            release_later(LONG_BYTES - 1, Reporting(report.clone()));
            assert_eq!(reports.try_recv(), Ok(thread::current().id()));
            let opens = Gate::close();
            release_later(LONG_BYTES, Reporting(report.clone()));
            assert!(reports.try_recv().is_err(), "the caller waits for it");
            drop(opens);
            assert_ne!(reports.recv(), Ok(thread::current().id()));
        }
    }

    #[test]
    fn an_action_waits_for_what_was_given_before() {
        let (report, reports) = channel();
        let opens = Gate::close();
        let last = report.clone();
        after_release(move || last.send("after").unwrap());
        assert!(reports.try_recv().is_err());
        report.send("before").unwrap();
        drop(opens);
        assert_eq!(
            [reports.recv(), reports.recv()],
            [Ok("before"), Ok("after")]
        );
    }

    struct Panics;

    impl Drop for Panics {
        fn drop(&mut self) {
            std::panic::resume_unwind(Box::new("a release fails"));
        }
    }

    #[test]
    fn a_release_that_panics_does_not_keep_others_from_theirs() {
        let (report, reports) = channel();
        release_later(LONG_BYTES, Panics);
        release_later(LONG_BYTES, Reporting(report));
        assert!(reports.recv().is_ok());
    }
}
