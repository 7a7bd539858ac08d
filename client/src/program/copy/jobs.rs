//! The files that wait for a worker.
//!
//! The walk stops when the queue is full, and goes on when half of it is taken: a queue that woke it for each file would switch threads
//! for each file.

use std::collections::VecDeque;
use std::pin::pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::Notify;

use super::job::Job;

/// The end of the queue that the walk has. The workers end when it is dropped and the queue is empty.
#[derive(Debug)]
pub(super) struct Jobs(Arc<Shared>);

/// The end of the queue that a worker has.
#[derive(Debug)]
pub(super) struct Queue(Arc<Shared>);

/// There are no workers any more.
#[derive(Debug)]
pub(super) struct NoWorkers;

#[derive(Debug)]
struct Shared {
    /// The most files that wait.
    most: usize,
    state: Mutex<State>,
    /// A file waits, or there are no more.
    filled: Notify,
    /// There is room, or no worker.
    drained: Notify,
}

#[derive(Debug)]
struct State {
    waiting: VecDeque<Job>,
    /// The queue was full, and more than half of it still waits.
    is_full: bool,
    is_closed: bool,
    workers: usize,
}

/// A queue of at most so many files.
pub(super) fn queue(most: usize) -> (Jobs, Queue) {
    let shared = Arc::new(Shared {
        most: most.max(1),
        state: Mutex::new(State {
            waiting: VecDeque::new(),
            is_full: false,
            is_closed: false,
            workers: 1,
        }),
        filled: Notify::new(),
        drained: Notify::new(),
    });
    (Jobs(Arc::clone(&shared)), Queue(shared))
}

impl Jobs {
    /// Adds a file; waits while there are too many.
    ///
    /// # Errors
    ///
    /// When the workers have gone.
    pub(super) async fn send(&self, job: Job) -> Result<(), NoWorkers> {
        let shared = &self.0;
        loop {
            {
                let mut state = shared.state();
                if state.workers == 0 {
                    return Err(NoWorkers);
                }
                if !state.is_full {
                    state.waiting.push_back(job);
                    state.is_full = state.waiting.len() >= shared.most;
                    break;
                }
            }
            // There is one walk, so a wake-up that comes before this line is kept for it.
            shared.drained.notified().await;
        }
        shared.filled.notify_one();
        Ok(())
    }
}

impl Queue {
    /// The next file, if one waits now.
    pub(super) fn try_take(&self) -> Option<Job> {
        let mut state = self.0.state();
        let job = state.waiting.pop_front();
        let is_drained = state.is_full && state.waiting.len() <= self.0.most / 2;
        state.is_full &= !is_drained;
        drop(state);
        if is_drained {
            self.0.drained.notify_one();
        }
        job
    }

    /// The next file; waits for one. `None` if there are no more.
    pub(super) async fn take(&self) -> Option<Job> {
        loop {
            // Before the look, so that a file that comes behind it wakes this worker or another one that waits.
            let mut filled = pin!(self.0.filled.notified());
            filled.as_mut().enable();
            if let Some(job) = self.try_take() {
                return Some(job);
            }
            if self.0.state().is_closed {
                // A file that came in between is taken by the look behind it.
                return self.try_take();
            }
            filled.await;
        }
    }
}

impl Clone for Queue {
    fn clone(&self) -> Self {
        self.0.state().workers += 1;
        Self(Arc::clone(&self.0))
    }
}

impl Drop for Queue {
    fn drop(&mut self) {
        self.0.state().workers -= 1;
        self.0.drained.notify_one();
    }
}

impl Drop for Jobs {
    fn drop(&mut self) {
        self.0.state().is_closed = true;
        self.0.filled.notify_waiters();
    }
}

impl Shared {
    /// The state is whole whenever it is unlocked.
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::path::PathBuf;
    use std::task::{Context, Poll, Waker};

    use super::super::job::Place;
    use super::super::version::Version;
    use super::*;

    fn job(number: u64) -> Job {
        let place = Place::Local {
            path: PathBuf::new(),
            root: std::path::Path::new("/").into(),
            beneath: PathBuf::new(),
        };
        Job {
            source: place.clone(),
            destination: place,
            known: Version {
                size: Some(number),
                ..Version::default()
            },
            is_only: false,
        }
    }

    fn number(job: &Job) -> u64 {
        job.known.size.expect("numbered")
    }

    /// What a future has after one look at it.
    fn now<T>(future: impl Future<Output = T>) -> Poll<T> {
        pin!(future).poll(&mut Context::from_waker(Waker::noop()))
    }

    #[test]
    fn a_full_queue_has_room_when_half_of_it_is_taken() {
        let (jobs, queue) = queue(4);
        for at in 0..4 {
            assert!(matches!(now(jobs.send(job(at))), Poll::Ready(Ok(()))));
        }
        for at in 0..2 {
            assert!(now(jobs.send(job(9))).is_pending());
            assert_eq!(queue.try_take().as_ref().map(number), Some(at));
        }
        assert!(now(jobs.send(job(4))).is_ready());
        assert!(now(jobs.send(job(5))).is_ready());
        assert!(now(jobs.send(job(9))).is_pending());
        drop(jobs);
        let rest = std::iter::from_fn(|| queue.try_take());
        assert_eq!(
            rest.map(|job| number(&job)).collect::<Vec<_>>(),
            [2, 3, 4, 5]
        );
        assert!(matches!(now(queue.take()), Poll::Ready(None)));
    }

    #[test]
    fn without_workers_nothing_is_queued() {
        let (jobs, queue) = queue(4);
        let other = queue.clone();
        drop(queue);
        assert!(matches!(now(jobs.send(job(0))), Poll::Ready(Ok(()))));
        drop(other);
        assert!(matches!(now(jobs.send(job(0))), Poll::Ready(Err(_))));
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 4)]
    async fn several_workers_take_each_file_once() {
        const FILES: u64 = 20_000;

        for most in [1, 2, 64] {
            let (jobs, queue) = queue(most);
            let worker = |queue: Queue| async move {
                let mut taken = Vec::new();
                while let Some(job) = queue.take().await {
                    taken.push(number(&job));
                    taken.extend(queue.try_take().as_ref().map(number));
                }
                taken
            };
            let workers: Vec<_> = (0..3)
                .map(|_| tokio::spawn(worker(queue.clone())))
                .collect();
            drop(queue);
            for at in 0..FILES {
                jobs.send(job(at)).await.expect("workers");
            }
            drop(jobs);
            let mut all = Vec::new();
            for worker in workers {
                all.extend(worker.await.expect("no panic"));
            }
            assert_eq!(all.len() as u64, FILES, "at most {most} wait");
            assert_eq!(all.into_iter().collect::<BTreeSet<_>>().len() as u64, FILES);
        }
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn a_walk_that_waits_is_told_that_the_workers_have_gone() {
        let (jobs, queue) = queue(1);
        jobs.send(job(0)).await.expect("a worker");
        let waits = tokio::spawn(async move { jobs.send(job(1)).await.is_err() });
        tokio::task::yield_now().await;
        drop(queue);
        assert!(waits.await.expect("no panic"));
    }
}
