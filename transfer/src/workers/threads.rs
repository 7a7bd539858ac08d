//! The thread pool of the workers.

use std::collections::VecDeque;
use std::fmt;
use std::sync::{Arc, Condvar, Mutex};
use std::thread;
use std::time::Duration;

use crate::error::TransferError;
use crate::sync::{ignore_poison, lock};

/// Threads that stay idle for a while after a job, for the next transfer.
#[derive(Debug, Default)]
pub(crate) struct Threads {
    shared: Arc<Shared>,
}

#[derive(Default)]
struct Shared {
    state: Mutex<State>,
    work: Condvar,
}

#[derive(Default)]
struct State {
    jobs: VecDeque<Job>,
    idle: usize,
    closed: bool,
}

type Job = Box<dyn FnOnce() + Send>;

/// How long an idle thread waits for a job before it exits.
const KEPT_IDLE: Duration = Duration::from_secs(10);

/// Workers keep data in their buffers, not on their stacks; a driver's handshake needs some room.
const STACK_BYTES: usize = 512 * 1024;

impl Threads {
    /// Runs `job` on an idle thread, or on a new one. Never waits.
    ///
    /// # Errors
    ///
    /// When the system cannot create another thread.
    pub(crate) fn run(&self, job: impl FnOnce() + Send + 'static) -> Result<(), TransferError> {
        let job = Box::new(job);
        let mut state = lock(&self.shared.state);
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
            .map_err(|error| TransferError::Local(format!("no thread is left: {error}")))
    }
}

impl Drop for Threads {
    fn drop(&mut self) {
        lock(&self.shared.state).closed = true;
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
        let mut state = lock(&self.state);
        state.idle += 1;
        let is_waiting = |state: &mut State| state.jobs.is_empty() && !state.closed;
        let waited = self.work.wait_timeout_while(state, KEPT_IDLE, is_waiting);
        let (mut state, _) = ignore_poison(waited);
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
                .run(move || report.send(thread::current().id()).expect("the test waits"))
                .expect("a thread");
            names.push(reports.recv().expect("the job runs"));
            while lock(&threads.shared.state).idle == 0 {
                thread::yield_now();
            }
        }
        assert!(names.iter().all(|name| *name == names[0]));
    }
}
