//! The workers of one transfer.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Condvar, Mutex, PoisonError};

use crate::error::TransferError;
use crate::local::NodeShared;
use crate::running::Running;

/// Runs the workers of one transfer beside its first thread, and waits for them.
#[derive(Debug)]
pub(crate) struct WorkerGroup {
    shared: Arc<NodeShared>,
    running: Arc<Running>,
    active: Arc<Active>,
}

#[derive(Debug, Default)]
struct Active {
    count: Mutex<usize>,
    changed: Condvar,
}

impl WorkerGroup {
    pub(crate) fn new(shared: &Arc<NodeShared>, running: &Arc<Running>) -> Self {
        Self {
            shared: shared.clone(),
            running: running.clone(),
            active: Arc::default(),
        }
    }

    /// Runs `worker` on a thread of its own. Its failure is the transfer's failure.
    pub(crate) fn spawn(
        &self,
        worker: impl FnOnce() -> Result<(), TransferError> + Send + 'static,
    ) -> Result<(), TransferError> {
        *self
            .active
            .count
            .lock()
            .unwrap_or_else(PoisonError::into_inner) += 1;
        let finished = Finished(self.active.clone());
        let running = self.running.clone();
        let job = move || {
            // Dropped last: a thread that waits for the workers then sees everything that this one did.
            let _finished = finished;
            match catch_unwind(AssertUnwindSafe(worker)) {
                Ok(Ok(())) => {}
                Ok(Err(error)) => running.fail(error),
                Err(_) => running.fail(TransferError::panicked()),
            }
        };
        self.shared
            .threads
            .run(Box::new(job))
            .map_err(|error| TransferError::Local(format!("no thread is left: {error}")))
    }

    /// Waits until all workers are done.
    pub(crate) fn join(&self) {
        let mut count = self
            .active
            .count
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        while *count > 0 {
            count = self
                .active
                .changed
                .wait(count)
                .unwrap_or_else(PoisonError::into_inner);
        }
    }
}

/// A worker at work, until it is dropped.
struct Finished(Arc<Active>);

impl Drop for Finished {
    fn drop(&mut self) {
        *self.0.count.lock().unwrap_or_else(PoisonError::into_inner) -= 1;
        self.0.changed.notify_all();
    }
}
