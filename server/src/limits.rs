//! How many transfers there may be at a time.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use tokio::sync::oneshot;

/// Counts transfers; those that are too many wait in the order in which they came.
#[derive(Debug)]
pub(crate) struct TransferLimit {
    /// So many may always run, if the limit allows it.
    always: usize,
    queue: Mutex<Queue>,
}

#[derive(Debug)]
struct Queue {
    /// The limit.
    most: usize,
    /// How many may run while processors are short; the limit and more while they are not.
    at_once: usize,
    running: usize,
    waiting: VecDeque<oneshot::Sender<TransferPermit>>,
}

/// One transfer that may run; dropping it lets the next one in.
#[derive(Debug)]
pub(crate) struct TransferPermit(Arc<TransferLimit>);

/// The answer to a transfer that wants to run.
#[derive(Debug)]
pub(crate) enum Turn {
    /// At once.
    Now(TransferPermit),
    /// When the permit comes; so many wait before it. Dropping the receiver gives up the place.
    Later {
        ahead: usize,
        permit: oneshot::Receiver<TransferPermit>,
    },
}

/// With so many transfers, each processor always has some that need not wait for the network.
const ALWAYS_PER_PROCESSOR: usize = 32;

/// From this lateness of the runtime on, fewer transfers may run.
const LATE: Duration = Duration::from_millis(50);

/// Up to this lateness, many more of them may.
const IN_TIME: Duration = Duration::from_millis(10);

impl TransferLimit {
    pub(crate) fn new(most: usize) -> Arc<Self> {
        let processors = thread::available_parallelism().map_or(1, usize::from);
        Self::with_always(most, ALWAYS_PER_PROCESSOR * processors)
    }

    fn with_always(most: usize, always: usize) -> Arc<Self> {
        let queue = Queue {
            most,
            at_once: usize::MAX,
            running: 0,
            waiting: VecDeque::new(),
        };
        Arc::new(Self {
            always,
            queue: Mutex::new(queue),
        })
    }

    /// Counts transfers by a new limit; those that run go on.
    pub(crate) fn set(self: &Arc<Self>, most: usize) {
        lock(&self.queue).most = most;
        self.admit_waiting();
    }

    /// Whether more transfers run than always may, or would like to.
    pub(crate) fn may_be_too_many(&self) -> bool {
        let queue = lock(&self.queue);
        queue.running > self.always || !queue.waiting.is_empty()
    }

    /// Lets fewer transfers in while the runtime is late, and more when it is in time again: quickly, since some may
    /// wait for others that are in the queue, the two ends of a copy for example.
    pub(crate) fn note_lateness(self: &Arc<Self>, lateness: Duration) {
        let mut queue = lock(&self.queue);
        if lateness >= LATE {
            let fewer = queue.running.min(queue.at_once) / 4 * 3;
            queue.at_once = fewer.max(self.always);
        } else {
            let more = if lateness <= IN_TIME {
                queue.at_once / 4 + 1
            } else {
                1
            };
            queue.at_once = queue.at_once.saturating_add(more);
        }
        drop(queue);
        self.admit_waiting();
    }

    /// How many transfers run, and how many wait.
    pub(crate) fn count(&self) -> (usize, usize) {
        let queue = lock(&self.queue);
        let waiting = queue.waiting.iter().filter(|waiting| !waiting.is_closed());
        (queue.running, waiting.count())
    }

    /// Takes a place.
    pub(crate) fn enter(self: &Arc<Self>) -> Turn {
        let mut queue = lock(&self.queue);
        queue.waiting.retain(|waiting| !waiting.is_closed());
        if queue.waiting.is_empty() && queue.has_room() {
            queue.running += 1;
            return Turn::Now(TransferPermit(Arc::clone(self)));
        }
        let (sender, permit) = oneshot::channel();
        let ahead = queue.waiting.len();
        queue.waiting.push_back(sender);
        Turn::Later { ahead, permit }
    }

    fn admit_waiting(self: &Arc<Self>) {
        loop {
            let mut queue = lock(&self.queue);
            if !queue.has_room() {
                return;
            }
            let Some(next) = queue.waiting.pop_front() else {
                return;
            };
            if next.is_closed() {
                continue;
            }
            queue.running += 1;
            drop(queue);
            // Whoever gave up just now sends the permit back; dropping it lets the next one in.
            drop(next.send(TransferPermit(Arc::clone(self))));
        }
    }
}

impl Queue {
    fn has_room(&self) -> bool {
        self.running < self.most.min(self.at_once)
    }
}

impl Drop for TransferPermit {
    fn drop(&mut self) {
        lock(&self.0.queue).running -= 1;
        self.0.admit_waiting();
    }
}

/// The counts are whole at every unlock, so a panic elsewhere does not spoil them.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn permit(turn: Turn) -> TransferPermit {
        match turn {
            Turn::Now(permit) => permit,
            Turn::Later { .. } => panic!("has to wait"),
        }
    }

    fn wait(turn: Turn) -> (usize, oneshot::Receiver<TransferPermit>) {
        match turn {
            Turn::Now(_) => panic!("need not wait"),
            Turn::Later { ahead, permit } => (ahead, permit),
        }
    }

    #[test]
    fn transfers_wait_in_order() {
        let limit = TransferLimit::new(1);
        let first = permit(limit.enter());
        let (ahead, mut second) = wait(limit.enter());
        assert_eq!(ahead, 0);
        let (ahead, mut third) = wait(limit.enter());
        assert_eq!(ahead, 1);
        assert_eq!(limit.count(), (1, 2));
        assert!(second.try_recv().is_err());
        drop(first);
        let second = second.try_recv().expect("its turn");
        assert!(third.try_recv().is_err());
        drop(second);
        third.try_recv().expect("its turn");
    }

    #[test]
    fn those_that_give_up_are_passed_over() {
        let limit = TransferLimit::new(1);
        let first = permit(limit.enter());
        drop(wait(limit.enter()));
        let (_, mut third) = wait(limit.enter());
        drop(first);
        drop(third.try_recv().expect("its turn"));
        // A permit that was sent, and not fetched, is not lost either.
        let first = permit(limit.enter());
        let (_, second) = wait(limit.enter());
        drop(first);
        drop(second);
        permit(limit.enter());
    }

    #[test]
    fn a_higher_limit_lets_those_in_who_wait() {
        let limit = TransferLimit::new(1);
        let _first = permit(limit.enter());
        let (_, mut second) = wait(limit.enter());
        limit.set(2);
        second.try_recv().expect("its turn");
    }

    #[test]
    fn fewer_transfers_run_while_the_runtime_is_late() {
        let limit = TransferLimit::with_always(100, 2);
        let mut running: Vec<_> = (0..8).map(|_| permit(limit.enter())).collect();
        limit.note_lateness(LATE);
        let (_, mut next) = wait(limit.enter());
        running.truncate(6);
        assert!(next.try_recv().is_err(), "three quarters of eight run");
        running.truncate(5);
        let next = next.try_recv().expect("its turn");
        for _ in 0..100 {
            limit.note_lateness(LATE);
        }
        drop((running, next));
        let _always = [permit(limit.enter()), permit(limit.enter())];
        wait(limit.enter());
    }

    #[test]
    fn a_runtime_in_time_soon_lets_everybody_in() {
        let limit = TransferLimit::with_always(100, 2);
        let running: Vec<_> = (0..3).map(|_| permit(limit.enter())).collect();
        limit.note_lateness(LATE);
        let mut waiting: Vec<_> = (0..150).map(|_| wait(limit.enter()).1).collect();
        limit.note_lateness(LATE);
        assert_eq!(limit.count(), (3, 150));
        // Neither late nor in time.
        limit.note_lateness((LATE + IN_TIME) / 2);
        limit.note_lateness((LATE + IN_TIME) / 2);
        assert_eq!(limit.count(), (4, 149));
        for _ in 0..20 {
            limit.note_lateness(IN_TIME);
        }
        assert_eq!(limit.count(), (100, 53), "what max-transfers allows");
        let admitted = waiting
            .iter_mut()
            .take(97)
            .all(|turn| turn.try_recv().is_ok());
        assert!(admitted, "in the order of asking");
        drop(running);
    }
}
