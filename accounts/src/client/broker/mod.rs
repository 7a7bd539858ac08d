//! One broker from the server's point of view: starts its process when it is needed, ends it when it is idle, and hands
//! its sessions over to a successor.

mod calls;

use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStringExt as _;
use std::path::PathBuf;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant};

use rustix::io::Errno;
use tracing::debug;

use super::counts::Counts;
use super::error::AccountError;
use super::exchange;
use super::process::BrokerProcess;
use super::source::AccountRequest;

pub(super) use self::calls::{Answered, Repeat};

/// Starts processes for brokers, within the limits for all of them.
pub(super) trait Launcher: Send + Sync {
    /// Has the process of a broker started, and returns the socket to it. May end an idle one first.
    fn launch(self: Arc<Self>, broker: &Broker) -> Result<OwnedFd, AccountError>;

    /// The counters of all brokers.
    fn counts(&self) -> &Counts;
}

/// A broker, whose process is started on demand.
#[derive(Debug)]
pub(crate) struct Broker {
    /// Weak, because the launcher holds its brokers.
    launcher: Weak<dyn Launcher>,
    request: AccountRequest,
    /// The time limit of a call.
    time: Duration,
    state: Mutex<State>,
    /// Wakes calls that wait for a free socket.
    returned: Condvar,
    /// The broker that has taken over the account's sessions. This one only finishes its calls and listings.
    successor: Mutex<Option<Arc<Self>>>,
}

#[derive(Debug)]
struct State {
    running: Option<BrokerProcess>,
    /// The number of processes so far. It tells sockets and listings of the present process from those of earlier ones.
    generation: u64,
    home: PathBuf,
    /// The time of the last message about calls that found no process.
    told: Option<Instant>,
}

impl Broker {
    /// A broker without a process. `time` is the limit of a call.
    pub(super) fn new(
        launcher: Weak<dyn Launcher>,
        request: AccountRequest,
        time: Duration,
    ) -> Self {
        Self {
            launcher,
            request,
            time,
            state: Mutex::new(State {
                running: None,
                generation: 0,
                home: PathBuf::from("/"),
                told: None,
            }),
            returned: Condvar::new(),
            successor: Mutex::default(),
        }
    }

    /// The account whose files it opens, and how.
    pub(super) fn request(&self) -> &AccountRequest {
        &self.request
    }

    /// Hands the account's sessions over to another broker. The process ends when its calls and listings are finished.
    pub(super) fn retire(&self, successor: &Arc<Self>) {
        *lock(&self.successor) = Some(Arc::clone(successor));
        // Calls that wait for a socket go to the successor.
        self.returned.notify_all();
        self.end_if_idle(Duration::ZERO);
    }

    fn successor(&self) -> Option<Arc<Self>> {
        lock(&self.successor).clone()
    }

    /// The broker that serves the account's sessions: the last of the successors.
    fn serving(self: &Arc<Self>) -> Arc<Self> {
        let mut serving = Arc::clone(self);
        while let Some(next) = serving.successor() {
            serving = next;
        }
        serving
    }

    /// Starts the process of the serving broker if it does not run.
    pub(super) fn start(self: &Arc<Self>) -> Result<(), AccountError> {
        let serving = self.serving();
        serving.started(serving.state()).map(drop)
    }

    /// The initial directory of the account's sessions.
    pub(super) fn home(self: &Arc<Self>) -> PathBuf {
        self.serving().state().home.clone()
    }

    /// The process id of the serving broker, if it runs now.
    pub(super) fn pid(self: &Arc<Self>) -> Option<u32> {
        let serving = self.serving();
        let state = serving.state();
        state.running.as_ref().map(|running| running.pid)
    }

    /// When the process looked its account up. `None` if it does not run or is about to start: then it will look the
    /// account up again.
    pub(super) fn started_at(&self) -> Option<Instant> {
        let state = self.state.try_lock().ok()?;
        state.running.as_ref().map(|running| running.started)
    }

    /// Whether a process runs or is being started.
    pub(super) fn counts(&self) -> bool {
        // The state is locked for long only during a start.
        self.state
            .try_lock()
            .map_or(true, |state| state.running.is_some())
    }

    /// Whether a process runs or is being started, and is not known to be idle.
    pub(super) fn is_busy(&self) -> bool {
        self.counts() && self.idle_since().is_none()
    }

    /// Since when the process is idle; `None` if it is busy or does not run.
    pub(super) fn idle_since(&self) -> Option<Instant> {
        let state = self.state.try_lock().ok()?;
        let running = state.running.as_ref()?;
        running.is_idle().then_some(running.used)
    }

    /// Ends the process if it has been idle for this long. Returns whether it has ended.
    pub(super) fn end_if_idle(&self, idle: Duration) -> bool {
        let Ok(mut state) = self.state.try_lock() else {
            return false;
        };
        let idle_for = |running: &mut BrokerProcess| {
            running.collect_overdue();
            running.is_idle() && running.used.elapsed() >= idle
        };
        self.end_if(&mut state, idle_for)
    }

    /// Ends the process of a broker with a successor, if its calls and listings are finished.
    fn end_if_finished(&self, state: &mut State) {
        if self.successor().is_some() {
            self.end_if(state, |running| running.is_idle());
        }
    }

    fn end_if(&self, state: &mut State, is_over: impl FnOnce(&mut BrokerProcess) -> bool) -> bool {
        let ended = state.running.take_if(is_over);
        if let Some(running) = &ended {
            debug!(
                account = self.request.account,
                pid = running.pid,
                "an idle broker ends"
            );
        }
        ended.is_some()
    }

    /// The state with a running process, which is started if necessary.
    fn started<'a>(
        &'a self,
        mut state: MutexGuard<'a, State>,
    ) -> Result<MutexGuard<'a, State>, AccountError> {
        if state.running.is_none() {
            let launcher = self.launcher.upgrade();
            let launcher = launcher.ok_or(AccountError::Monitor(Errno::SHUTDOWN))?;
            let begun = Arc::clone(&launcher).launch(self);
            let begun = begun.and_then(|socket| exchange::greet(&socket));
            match &begun {
                Ok(_) => launcher.counts().start(),
                Err(AccountError::Monitor(_) | AccountError::Silent(_)) => {
                    launcher.counts().failure();
                }
                // The account may not be used, or there is no room for it: nothing is out of order.
                Err(_) => {}
            }
            let (ready, sockets) = begun?;
            debug!(
                account = self.request.account,
                root = %self.request.root.display(),
                pid = ready.pid,
                "a broker started"
            );
            state.generation += 1;
            state.home = PathBuf::from(std::ffi::OsString::from_vec(ready.home));
            state.running = Some(BrokerProcess::new(ready.pid, sockets));
        }
        Ok(state)
    }

    /// Counts a process that ended during a call.
    fn count_death(&self) {
        if let Some(launcher) = self.launcher.upgrade() {
            launcher.counts().death();
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        lock(&self.state)
    }
}

/// Locks data that is consistent whenever its lock is released, so that poisoning is harmless.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
