//! The time for the nodes. A node that does not answer must not keep the others from being tried.

use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::{Duration, Instant};

use tokio::runtime::{Builder, Handle, Runtime};
use tokio::signal::unix::{SignalKind, signal};

use super::ABOUT;
use crate::check::report::Report;

/// For all nodes together, without the removal of what was made there.
const TOTAL: Duration = Duration::from_secs(60);

/// How often a thread that waits looks whether there was a signal.
const LOOK_EVERY: Duration = Duration::from_millis(50);

/// The time that is left, and what runs the connections.
#[derive(Debug)]
pub(super) struct Patience {
    runtime: Option<Runtime>,
    end: Instant,
    interrupted: Arc<AtomicBool>,
}

impl Patience {
    /// The time begins now. SIGINT and SIGTERM end it from now on, so that what was made on nodes is removed.
    ///
    /// # Errors
    ///
    /// When there is no runtime.
    pub(super) fn new() -> io::Result<Self> {
        let runtime = Builder::new_multi_thread()
            .worker_threads(2)
            .enable_all()
            .build()?;
        let interrupted = Arc::new(AtomicBool::new(false));
        let entered = runtime.enter();
        for kind in [SignalKind::interrupt(), SignalKind::terminate()] {
            let (mut signal, interrupted) = (signal(kind)?, Arc::clone(&interrupted));
            runtime.spawn(async move {
                signal.recv().await;
                interrupted.store(true, Ordering::Release);
            });
        }
        drop(entered);
        Ok(Self {
            runtime: Some(runtime),
            end: Instant::now() + TOTAL,
            interrupted,
        })
    }

    /// Runs connections to nodes.
    pub(super) fn runtime(&self) -> Handle {
        // It is there until `self` is dropped.
        match &self.runtime {
            Some(runtime) => runtime.handle().clone(),
            None => Handle::current(),
        }
    }

    /// Does `work` for all items at the same time, each on a thread. The result has `None` where it did not end within `limit`
    /// or the time for all nodes.
    pub(super) fn each<T: Send + 'static, R: Send + 'static>(
        &self,
        limit: Duration,
        items: Vec<T>,
        work: impl Fn(T) -> R + Send + Sync + 'static,
    ) -> Vec<Option<R>> {
        let end = self.end.min(Instant::now() + limit);
        self.until(end, items, work, || self.is_over())
    }

    /// Whether nothing more is to be tried.
    pub(super) fn is_over(&self) -> bool {
        self.interrupted.load(Ordering::Acquire) || Instant::now() >= self.end
    }

    /// The same for what must also be done after a signal and at the end of the time.
    pub(super) fn finally<R: Send + 'static>(
        &self,
        limit: Duration,
        work: impl Fn() -> R + Send + Sync + 'static,
    ) -> Option<R> {
        let end = Instant::now() + limit;
        self.until(end, vec![()], move |()| work(), || false)
            .pop()?
    }

    fn until<T: Send + 'static, R: Send + 'static>(
        &self,
        end: Instant,
        items: Vec<T>,
        work: impl Fn(T) -> R + Send + Sync + 'static,
        is_over: impl Fn() -> bool,
    ) -> Vec<Option<R>> {
        let mut results: Vec<Option<R>> = items.iter().map(|_| None).collect();
        if is_over() {
            return results;
        }
        let (sender, receiver) = mpsc::channel();
        let work = Arc::new(work);
        let mut awaited = 0;
        for (index, item) in items.into_iter().enumerate() {
            let (sender, work) = (sender.clone(), Arc::clone(&work));
            // A result that comes too late is dropped.
            let run = move || drop(sender.send((index, work(item))));
            if thread::Builder::new().spawn(run).is_ok() {
                awaited += 1;
            }
        }
        drop(sender);
        while awaited > 0 && !is_over() {
            let left = end.saturating_duration_since(Instant::now());
            match receiver.recv_timeout(left.min(LOOK_EVERY)) {
                Ok((index, result)) => {
                    results[index] = Some(result);
                    awaited -= 1;
                }
                Err(mpsc::RecvTimeoutError::Timeout) if !left.is_zero() => {}
                Err(_) => break,
            }
        }
        results
    }

    /// Says that the time was not enough, if it was not.
    pub(super) fn tell(&self, report: &mut Report) {
        if self.interrupted.load(Ordering::Acquire) {
            report.error(
                ABOUT,
                "a signal has ended this check: the nodes were not tried completely",
            );
        } else if self.is_over() {
            let text = format!(
                "they were not tried completely within {} s: see which of them did not answer",
                TOTAL.as_secs()
            );
            report.error(ABOUT, text);
        }
    }
}

impl Drop for Patience {
    fn drop(&mut self) {
        // A thread may wait for a node.
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}
