//! The time for the nodes. A node that does not answer must not keep the others from being tried.

use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::thread;
use std::time::{Duration, Instant};

use tokio::runtime::{Builder, Handle, Runtime};
use tokio::signal::unix::{SignalKind, signal};

use super::ABOUT;
use crate::check::report::Report;
use crate::locks::lock;

/// For all nodes together, without the removal of what was made there.
pub(super) const TOTAL: Duration = Duration::from_secs(60);

/// A node that has not answered about an account or a root for this time seems to hang.
pub(super) const HANGS_AFTER: Duration = Duration::from_secs(5);

/// How often a thread that waits looks whether there was a signal.
const LOOK_EVERY: Duration = Duration::from_millis(50);

/// A signal has ended the check, or its time was over before the work began. What was not done then is no fault of nodes.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Over;

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
    ///
    /// # Errors
    ///
    /// When the check has ended before.
    pub(super) fn each<T: Send + 'static, R: Send + 'static>(
        &self,
        limit: Duration,
        items: Vec<T>,
        work: impl Fn(T) -> R + Send + Sync + 'static,
    ) -> Result<Vec<Option<R>>, Over> {
        let queues = items.into_iter().map(|item| vec![item]).collect();
        let results = self.queues(limit, (queues, 1), work)?;
        Ok(results.into_iter().flatten().collect())
    }

    /// The same for the items of several queues. Of each queue, at most `width` are worked on at the same time, the first ones first.
    ///
    /// # Errors
    ///
    /// When the check has ended before.
    pub(super) fn queues<T: Send + 'static, R: Send + 'static>(
        &self,
        limit: Duration,
        (queues, width): (Vec<Vec<T>>, usize),
        work: impl Fn(T) -> R + Send + Sync + 'static,
    ) -> Result<Vec<Vec<Option<R>>>, Over> {
        if self.is_over() {
            return Err(Over);
        }
        let end = self.end.min(Instant::now() + limit);
        let results = until(end, (queues, width), work, || self.is_interrupted());
        match self.is_interrupted() {
            true => Err(Over),
            false => Ok(results),
        }
    }

    /// Whether nothing more is to be tried.
    pub(super) fn is_over(&self) -> bool {
        self.is_interrupted() || Instant::now() >= self.end
    }

    fn is_interrupted(&self) -> bool {
        self.interrupted.load(Ordering::Acquire)
    }

    /// The same for what must also be done after a signal and at the end of the time.
    pub(super) fn finally<R: Send + 'static>(
        &self,
        limit: Duration,
        work: impl Fn() -> R + Send + Sync + 'static,
    ) -> Option<R> {
        let end = Instant::now() + limit;
        let results = until(end, (vec![vec![()]], 1), move |()| work(), || false);
        results.into_iter().flatten().next()?
    }

    /// Says that the time was not enough, if it was not.
    pub(super) fn tell(&self, report: &mut Report) {
        if self.is_interrupted() {
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

/// Works until `end`, or until the check `is_interrupted`. Threads that are left end after the item that they work on.
fn until<T: Send + 'static, R: Send + 'static>(
    end: Instant,
    (queues, width): (Vec<Vec<T>>, usize),
    work: impl Fn(T) -> R + Send + Sync + 'static,
    is_interrupted: impl Fn() -> bool,
) -> Vec<Vec<Option<R>>> {
    let empty = |queue: &Vec<T>| queue.iter().map(|_| None).collect();
    let mut results: Vec<Vec<Option<R>>> = queues.iter().map(empty).collect();
    let (sender, receiver) = mpsc::channel();
    let work = Arc::new(work);
    for (number, queue) in queues.into_iter().enumerate() {
        let threads = width.min(queue.len());
        let queue = Arc::new(Mutex::new(queue.into_iter().enumerate()));
        for _ in 0..threads {
            let (sender, work, queue) = (sender.clone(), Arc::clone(&work), Arc::clone(&queue));
            let run = move || {
                loop {
                    // The queue is free for others during the work.
                    let next = lock(&queue).next();
                    let Some((index, item)) = next else { return };
                    // Without a receiver, nothing more is wanted.
                    if sender.send((number, index, work(item))).is_err() {
                        return;
                    }
                }
            };
            // Where a thread does not start, the others of the queue do its work, or the results stay empty.
            let _ = thread::Builder::new().spawn(run);
        }
    }
    drop(sender);
    while !is_interrupted() {
        let left = end.saturating_duration_since(Instant::now());
        match receiver.recv_timeout(left.min(LOOK_EVERY)) {
            Ok((number, index, result)) => results[number][index] = Some(result),
            Err(mpsc::RecvTimeoutError::Timeout) if !left.is_zero() => {}
            Err(_) => break,
        }
    }
    results
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicUsize;
    use std::sync::{Barrier, Condvar};

    use super::*;

    const LATE: Duration = Duration::from_secs(30);

    #[test]
    fn a_queue_has_its_bound_and_keeps_its_order() {
        const WIDTH: usize = 3;
        let patience = Patience::new().expect("a runtime");
        let busy = [const { AtomicUsize::new(0) }; 2];
        let together = [(); 2].map(|()| Barrier::new(WIDTH));
        let queues = (0..2).map(|queue| (0..4 * WIDTH).map(|item| (queue, item)).collect());
        let work = move |(queue, item): (usize, usize)| {
            let now = busy[queue].fetch_add(1, Ordering::SeqCst) + 1;
            // It would wait for ever with fewer at the same time.
            together[queue].wait();
            busy[queue].fetch_sub(1, Ordering::SeqCst);
            (now, queue, item)
        };
        let results = patience.queues(LATE, (queues.collect(), WIDTH), work);
        let results = results.expect("in time");
        for (queue, results) in results.into_iter().enumerate() {
            assert_eq!(results.len(), 4 * WIDTH);
            for (item, result) in results.into_iter().enumerate() {
                let (busy, of_queue, of_item) = result.expect("in time");
                assert!(busy <= WIDTH, "{busy}");
                assert_eq!((of_queue, of_item), (queue, item));
            }
        }
    }

    /// What waits until it is opened.
    #[derive(Debug, Default)]
    struct Gate(Mutex<bool>, Condvar);

    impl Gate {
        fn pass(&self) {
            let mut is_open = lock(&self.0);
            while !*is_open {
                is_open = self.1.wait(is_open).expect("no panic");
            }
        }

        fn open(&self) {
            *lock(&self.0) = true;
            self.1.notify_all();
        }
    }

    #[test]
    fn work_that_hangs_keeps_no_other_queue_and_is_not_continued() {
        let patience = Patience::new().expect("a runtime");
        let (gate, done) = (Arc::new(Gate::default()), Arc::new(Mutex::new(Vec::new())));
        let (hanging, noted) = (Arc::clone(&gate), Arc::clone(&done));
        let work = move |name: &'static str| {
            if name == "hangs" {
                hanging.pass();
            }
            lock(&noted).push(name);
            name
        };
        let queues = vec![vec!["hangs", "never"], vec!["first", "second"]];
        let soon = Duration::from_secs(2);
        let results = patience.queues(soon, (queues, 1), work).expect("no signal");
        assert_eq!(results[0], [None, None]);
        assert_eq!(results[1], [Some("first"), Some("second")]);
        gate.open();
        // The thread that hung is the last one to have the list.
        while Arc::strong_count(&done) > 1 {
            thread::yield_now();
        }
        assert_eq!(*lock(&done), ["first", "second", "hangs"]);
    }

    #[test]
    fn after_a_signal_nothing_is_said_about_items() {
        let patience = Patience::new().expect("a runtime");
        let interrupted = Arc::clone(&patience.interrupted);
        let gate = Arc::new(Gate::default());
        let hanging = Arc::clone(&gate);
        let work = move |()| {
            interrupted.store(true, Ordering::Release);
            hanging.pass();
        };
        assert_eq!(patience.each(LATE, vec![()], work), Err(Over));
        gate.open();
        assert_eq!(patience.each(LATE, vec![()], |()| ()), Err(Over));
        assert_eq!(patience.finally(LATE, || 1), Some(1));
        let mut report = Report::default();
        patience.tell(&mut report);
        let mut text = Vec::new();
        report.write(&mut text).expect("written");
        let text = String::from_utf8(text).expect("UTF-8");
        assert!(text.contains("a signal has ended this check"), "{text}");
    }
}
