//! The threads that workers run on.

use std::collections::VecDeque;
use std::fmt;
use std::io;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

/// Threads that are kept for a while after their work, for the next transfer.
#[derive(Debug, Default)]
pub(crate) struct Threads {
    shared: Arc<Shared>,
}

#[derive(Default)]
struct Shared {
    state: Mutex<ThreadState>,
    work: Condvar,
}

#[derive(Default)]
struct ThreadState {
    jobs: VecDeque<Job>,
    idle: usize,
    closed: bool,
}

type Job = Box<dyn FnOnce() + Send>;

/// How long a thread waits for more work before it ends.
const KEPT_IDLE: Duration = Duration::from_secs(10);

/// Workers use their buffers, not their stacks; drivers get room for a handshake.
const STACK_BYTES: usize = 512 * 1024;

impl Threads {
    /// Runs `job` on an idle thread, or on a new one. Never waits.
    ///
    /// # Errors
    ///
    /// When the system has no thread left.
    pub(crate) fn run(&self, job: Job) -> io::Result<()> {
        let mut state = self
            .shared
            .state
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        if state.idle > state.jobs.len() {
            state.jobs.push_back(job);
            drop(state);
            self.shared.work.notify_one();
            return Ok(());
        }
        drop(state);
        let shared = self.shared.clone();
        thread::Builder::new()
            .name("transfer-worker".to_owned())
            .stack_size(STACK_BYTES)
            .spawn(move || shared.serve(job))
            .map(drop)
    }
}

impl Drop for Threads {
    fn drop(&mut self) {
        self.shared
            .state
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .closed = true;
        self.shared.work.notify_all();
    }
}

impl Shared {
    fn serve(&self, first: Job) {
        first();
        while let Some(job) = self.next_job() {
            job();
        }
    }

    fn next_job(&self) -> Option<Job> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.idle += 1;
        let (mut state, _) = self
            .work
            .wait_timeout_while(state, KEPT_IDLE, |state| {
                state.jobs.is_empty() && !state.closed
            })
            .unwrap_or_else(PoisonError::into_inner);
        state.idle -= 1;
        state.jobs.pop_front()
    }
}

impl fmt::Debug for Shared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Shared").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;

    #[test]
    fn an_idle_thread_serves_the_next_job() {
        let threads = Threads::default();
        let (report, reports) = mpsc::channel();
        let mut names = Vec::new();
        for _ in 0..3 {
            let report = report.clone();
            threads
                .run(Box::new(move || {
                    report.send(thread::current().id()).expect("the test waits")
                }))
                .expect("a thread");
            names.push(reports.recv().expect("the job runs"));
            while threads.shared.state.lock().expect("not poisoned").idle == 0 {
                thread::yield_now();
            }
        }
        assert!(names.iter().all(|name| *name == names[0]));
    }
}
