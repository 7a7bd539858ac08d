//! The workers of one transfer.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Condvar, Mutex};

use super::threads::Threads;
use crate::error::TransferError;
use crate::running::Running;
use crate::sync::{ignore_poison, lock};

/// Runs the workers of one transfer in addition to its first thread, and joins them.
#[derive(Debug)]
pub(crate) struct WorkerGroup {
    threads: Arc<Threads>,
    running: Arc<Running>,
    active: Arc<Active>,
}

#[derive(Debug, Default)]
struct Active {
    count: Mutex<usize>,
    changed: Condvar,
}

impl WorkerGroup {
    pub(crate) fn new(threads: &Arc<Threads>, running: &Arc<Running>) -> Self {
        Self {
            threads: threads.clone(),
            running: running.clone(),
            active: Arc::default(),
        }
    }

    /// Runs `work` on a thread of its own. If it fails, the transfer fails.
    pub(crate) fn spawn(
        &self,
        work: impl FnOnce() -> Result<(), TransferError> + Send + 'static,
    ) -> Result<(), TransferError> {
        *lock(&self.active.count) += 1;
        let finished = Finished(self.active.clone());
        let running = self.running.clone();
        self.threads.run(move || {
            // Dropped last, so that a thread that joins the workers sees all effects of this one.
            let _finished = finished;
            match catch_unwind(AssertUnwindSafe(work)) {
                Ok(Ok(())) => {}
                Ok(Err(error)) => running.fail(error),
                Err(_) => running.fail(TransferError::panicked()),
            }
        })
    }

    /// Waits until all workers have finished.
    pub(crate) fn join(&self) {
        let mut count = lock(&self.active.count);
        while *count > 0 {
            count = ignore_poison(self.active.changed.wait(count));
        }
    }
}

/// Counts a worker as active until it is dropped.
struct Finished(Arc<Active>);

impl Drop for Finished {
    fn drop(&mut self) {
        *lock(&self.0.count) -= 1;
        self.0.changed.notify_all();
    }
}
