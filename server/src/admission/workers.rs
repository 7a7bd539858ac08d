//! Threads that compute for peers before authentication, round-robin by network.
//!
//! Handshakes and passwords take a processor for milliseconds before the peer is authenticated. They have their own threads,
//! so that they never wait for files, and as many as processors, so that jobs that start also finish.

use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread;

use tokio::sync::oneshot;

use super::Network;
use super::fair_queue::FairQueue;

/// The limit of queued jobs. Each belongs to a connection before login, of which there are fewer in all.
const MOST: usize = 4096;

/// The limit of queued jobs of one network. A site may begin hundreds of sessions in one second.
const MOST_OF_NETWORK: usize = 512;

/// Threads and their queue. The threads start with the first job, and end when this is dropped.
#[derive(Debug)]
pub(crate) struct Workers {
    name: &'static str,
    count: usize,
    /// The number of threads that could be started.
    started: OnceLock<usize>,
    shared: Arc<Shared>,
}

/// A job sends its result. If it is dropped without being run, it is refused.
type Job = Box<dyn FnOnce() + Send>;

struct Shared {
    state: Mutex<State>,
    work: Condvar,
}

struct State {
    jobs: FairQueue<Job>,
    is_over: bool,
}

/// The reason why a job has no result.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Refused {
    /// The queue of this network, or of all, is full.
    #[error("the server is busy with logins; please try again later")]
    Busy,
    /// It panicked.
    #[error("the server failed")]
    Failed,
}

impl Workers {
    /// As many threads as processors, at most `most`.
    pub(crate) fn new(name: &'static str, most: usize) -> Self {
        let processors = thread::available_parallelism().map_or(1, usize::from);
        Self::with_queue(
            name,
            processors.min(most),
            FairQueue::new(MOST, MOST_OF_NETWORK),
        )
    }

    fn with_queue(name: &'static str, count: usize, jobs: FairQueue<Job>) -> Self {
        let state = State {
            jobs,
            is_over: false,
        };
        let shared = Shared {
            state: Mutex::new(state),
            work: Condvar::new(),
        };
        Self {
            name,
            count,
            started: OnceLock::new(),
            shared: Arc::new(shared),
        }
    }

    /// Runs `job` in the order of the queue. Dropping the future discards the result; the job may still run.
    pub(crate) async fn run<T: Send + 'static>(
        &self,
        network: Network,
        job: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, Refused> {
        let (sender, result) = oneshot::channel();
        let job = Box::new(move || {
            // The session may have ended.
            if sender.is_closed() {
                return;
            }
            let done = catch_unwind(AssertUnwindSafe(job));
            // The session may have ended meanwhile.
            let _ = sender.send(done.map_err(|_| Refused::Failed));
        });
        if *self.started.get_or_init(|| self.start()) == 0 {
            return Err(Refused::Failed);
        }
        // A refused job is dropped after the lock is released.
        let refused = self.shared.lock().jobs.push(network, job);
        drop(refused);
        self.shared.work.notify_one();
        result.await.unwrap_or(Err(Refused::Busy))
    }

    /// Starts the threads, and returns their number.
    fn start(&self) -> usize {
        let start = |number: &usize| {
            let shared = Arc::clone(&self.shared);
            let started = thread::Builder::new()
                .name(format!("{}-{number}", self.name))
                .spawn(move || shared.work());
            if let Err(error) = &started
                && let Some(untold) = crate::telemetry::tell("threads")
            {
                tracing::warn!(%error, threads = self.name, untold, "a thread cannot be started");
            }
            started.is_ok()
        };
        (0..self.count).filter(start).count()
    }
}

impl Drop for Workers {
    fn drop(&mut self) {
        self.shared.lock().is_over = true;
        self.shared.work.notify_all();
    }
}

impl Shared {
    fn work(&self) {
        while let Some(job) = self.next() {
            job();
        }
    }

    fn next(&self) -> Option<Job> {
        let mut state = self.lock();
        loop {
            if state.is_over {
                return None;
            }
            if let Some(job) = state.jobs.pop() {
                return Some(job);
            }
            state = self
                .work
                .wait(state)
                .unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// No job runs under the lock, so the queue is complete.
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for Shared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Shared").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::net::IpAddr;
    use std::sync::mpsc;

    use super::*;

    fn network(number: u8) -> Network {
        Network::of(IpAddr::from([192, 0, 2, number]))
    }

    /// One thread, which is held by a job until the sender is dropped.
    async fn held(jobs: FairQueue<Job>) -> (Arc<Workers>, mpsc::Sender<()>) {
        let workers = Arc::new(Workers::with_queue("test", 1, jobs));
        let (hold, held) = mpsc::channel::<()>();
        let (begun, begins) = oneshot::channel();
        let job = move || {
            let _ = begun.send(());
            let _ = held.recv();
        };
        let holder = Arc::clone(&workers);
        tokio::spawn(async move { holder.run(network(0), job).await });
        begins.await.expect("it begins");
        (workers, hold)
    }

    #[tokio::test]
    async fn a_flood_of_one_network_delays_another_by_a_round() {
        let (workers, hold) = held(FairQueue::new(1000, 1000)).await;
        let (done, order) = mpsc::channel();
        let mut tasks = Vec::new();
        for owner in std::iter::repeat_n(1, 450).chain([2]) {
            let (workers, done) = (Arc::clone(&workers), done.clone());
            tasks.push(tokio::spawn(async move {
                workers.run(network(owner), move || done.send(owner)).await
            }));
            tokio::task::yield_now().await;
        }
        drop((hold, done));
        for task in tasks {
            task.await.expect("no panic").expect("done").expect("heard");
        }
        let place = order.iter().position(|owner| owner == 2).expect("done");
        assert!(place <= 1, "{place} jobs came before");
    }

    #[tokio::test]
    async fn what_finds_no_room_is_refused_at_once() {
        let (workers, hold) = held(FairQueue::new(10, 2)).await;
        let mut tasks = Vec::new();
        for _ in 0..5 {
            let workers = Arc::clone(&workers);
            tasks.push(tokio::spawn(
                async move { workers.run(network(1), || ()).await },
            ));
        }
        let mut refused = 0;
        for task in tasks.drain(2..) {
            refused += u32::from(task.await.expect("no panic") == Err(Refused::Busy));
        }
        assert_eq!(refused, 3);
        drop(hold);
        for task in tasks {
            assert_eq!(task.await.expect("no panic"), Ok(()));
        }
    }

    #[tokio::test]
    async fn a_panic_ends_the_job_and_not_the_thread() {
        let workers = Workers::with_queue("test", 1, FairQueue::new(10, 2));
        let panics = workers.run(network(1), || panic!("a test")).await;
        assert_eq!(panics, Err::<(), _>(Refused::Failed));
        assert_eq!(workers.run(network(1), || 7).await, Ok(7));
    }
}
