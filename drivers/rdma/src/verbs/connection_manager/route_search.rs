//! Searches for paths, each on a thread of its own.
//!
//! rdma_resolve_route(3) asks ibacm first, where that runs. It waits for the answer without a limit, with a lock of the process
//! (librdmacm: acm.c). So a search has a deadline, after which its thread is left to itself.

use std::io;
use std::net::IpAddr;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use gridhaul_stack::{Cancel, ChannelError, Operation};

use super::route::{Route, find};
use crate::verbs::timer::Timer;

/// The longest time of a search. Both ends may search one after the other within a handshake, which has 20 s.
const LONGEST: Duration = Duration::from_secs(5);

/// No search begins while librdmacm holds so many threads of earlier ones.
const MOST_LEFT: usize = 8;

/// The threads of searches that were given up and have not ended. Each belonged to a channel, and so channels bound those that
/// begin before the first one is given up.
static LEFT: AtomicUsize = AtomicUsize::new(0);

/// A search for the path from one address of IPoIB to another.
#[derive(Debug)]
pub(in crate::verbs) struct RouteSearch {
    shared: Arc<Shared>,
    deadline: Instant,
}

/// What the thread has as well.
#[derive(Debug)]
struct Shared {
    /// Expires at the deadline, or when the search has ended.
    timer: Timer,
    cancel: Cancel,
    state: Mutex<State>,
}

#[derive(Debug, Clone, Copy)]
enum State {
    Running,
    Ended(Option<Route>),
    /// The thread is left to itself.
    GivenUp,
}

impl RouteSearch {
    /// Begins a search.
    ///
    /// # Errors
    ///
    /// When there is no thread or descriptor for it, or too many earlier ones do not end.
    pub(in crate::verbs) fn start(local: IpAddr, peer: IpAddr) -> io::Result<Self> {
        Self::run(move |operation| find(local, peer, operation).ok().flatten())
    }

    fn run(
        find: impl FnOnce(&Operation<'_>) -> Option<Route> + Send + 'static,
    ) -> io::Result<Self> {
        if LEFT.load(Ordering::Relaxed) >= MOST_LEFT {
            return Err(io::Error::other("earlier searches for a path do not end"));
        }
        let deadline = Instant::now() + LONGEST;
        let timer = Timer::new()?;
        timer.set(Some(LONGEST))?;
        let shared = Arc::new(Shared {
            timer,
            cancel: Cancel::new(),
            state: Mutex::new(State::Running),
        });
        let theirs = Arc::clone(&shared);
        let search = move || {
            let operation = Operation {
                deadline: Some(deadline),
                cancel: &theirs.cancel,
            };
            theirs.end(find(&operation));
        };
        let thread = thread::Builder::new().name("rdma-route".to_owned());
        thread.spawn(search)?;
        Ok(Self { shared, deadline })
    }

    /// Readable when it is over.
    pub(in crate::verbs) fn descriptor(&self) -> BorrowedFd<'_> {
        self.shared.timer.as_fd()
    }

    /// The outcome, if it is over: a path, or none if it failed or took too long.
    pub(in crate::verbs) fn outcome(&self) -> Option<Option<Route>> {
        match *self.shared.state() {
            State::Ended(route) => Some(route),
            _ if Instant::now() >= self.deadline => Some(None),
            State::Running | State::GivenUp => None,
        }
    }
}

/// Ends a search that still runs as soon as librdmacm lets it.
impl Drop for RouteSearch {
    fn drop(&mut self) {
        let mut state = self.shared.state();
        if let State::Running = *state {
            *state = State::GivenUp;
            LEFT.fetch_add(1, Ordering::Relaxed);
            self.shared.cancel.cancel();
        }
    }
}

impl Shared {
    fn end(&self, found: Option<Route>) {
        let mut state = self.state();
        if let State::GivenUp = *state {
            LEFT.fetch_sub(1, Ordering::Relaxed);
            return;
        }
        *state = State::Ended(found);
        // It fails for no valid time.
        let _ = self.timer.set(Some(Duration::ZERO));
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // Each change is one assignment.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The path from one address of IPoIB to another; `None` if it is not found in time.
///
/// # Errors
///
/// When the operation ends before.
pub(in crate::verbs) fn route(
    local: IpAddr,
    peer: IpAddr,
    operation: &Operation<'_>,
) -> Result<Option<Route>, ChannelError> {
    let Ok(search) = RouteSearch::start(local, peer) else {
        return Ok(None);
    };
    loop {
        if let Some(route) = search.outcome() {
            return Ok(route);
        }
        operation.wait_readable(search.descriptor())?;
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;

    fn within<'a>(cancel: &'a Cancel, time: Duration) -> Operation<'a> {
        Operation {
            deadline: Some(Instant::now() + time),
            cancel,
        }
    }

    /// The count of threads belongs to the process, so this is one test.
    #[test]
    fn searches_that_do_not_end_are_left_up_to_a_number() {
        let cancel = Cancel::new();
        let (answer, answers) = mpsc::channel::<()>();
        let answers = Arc::new(Mutex::new(answers));
        let blocked = || {
            let answers = Arc::clone(&answers);
            RouteSearch::run(move |_| {
                let answers = answers.lock().unwrap();
                answers.recv().ok().and(None)
            })
        };
        let mut searches = Vec::new();
        for _ in 0..MOST_LEFT {
            let search = blocked().unwrap();
            assert!(search.outcome().is_none());
            let moment = within(&cancel, Duration::from_millis(1));
            moment.wait_readable(search.descriptor()).unwrap_err();
            searches.push(search);
        }
        drop(searches);
        blocked().expect_err("too many threads are left");
        for _ in 0..MOST_LEFT {
            answer.send(()).unwrap();
        }
        let enough = Instant::now() + Duration::from_secs(60);
        while LEFT.load(Ordering::Relaxed) > 0 {
            assert!(Instant::now() < enough, "the threads have not ended");
            thread::yield_now();
        }
        let search = blocked().unwrap();
        answer.send(()).unwrap();
        let operation = within(&cancel, Duration::from_secs(60));
        operation.wait_readable(search.descriptor()).unwrap();
        assert_eq!(search.outcome(), Some(None));
        drop(search);
        assert_eq!(LEFT.load(Ordering::Relaxed), 0, "it had ended");
    }
}
