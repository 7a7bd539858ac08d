//! One broker, as the server sees it: sockets to it, each for one call at a time.

use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStringExt as _;
use std::path::PathBuf;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant};

use gridhaul_storage::StorageError;
use rustix::io::Errno;
use tracing::{debug, warn};

use super::running::Running;
use super::shared::Shared;
use super::talk::{self, Broken};
use super::{AccountError, AccountRequest};
use crate::messages::{LONGEST_PATH, REPLY_BYTES, Reply, Request};

/// What becomes of a call whose broker ended before it answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Repeat {
    /// It can be made again: it reads, or does the same a second time.
    Safe,
    /// It may have been carried out, and the second time would fail for that.
    Never,
    /// As well, and it means nothing to any process but that of this generation.
    NeverElsewhere(u64),
}

/// A broker that is started when it is needed.
#[derive(Debug)]
pub(crate) struct Broker {
    shared: Weak<Shared>,
    request: AccountRequest,
    /// What a call may take.
    time: Duration,
    state: Mutex<State>,
    /// A socket was given back.
    returned: Condvar,
    /// What serves the account's sessions since another one did: this one finishes what it began.
    successor: Mutex<Option<Arc<Self>>>,
}

#[derive(Debug)]
struct State {
    running: Option<Running>,
    /// Counts the processes there were, so that what belongs to an earlier one is known.
    generation: u64,
    home: PathBuf,
}

/// The right to make one call.
struct Lease {
    socket: OwnedFd,
    generation: u64,
}

/// What came of the wish to make a call.
enum Leased {
    Here(Lease),
    /// Another broker serves the account's sessions.
    By(Arc<Broker>),
    /// The process that is meant is gone.
    Gone,
}

/// The answer, the descriptors with it, and the process that gave it.
pub(super) struct Answered {
    pub(super) reply: Reply,
    pub(super) descriptors: Vec<OwnedFd>,
    pub(super) broker: Arc<Broker>,
    pub(super) generation: u64,
}

impl Broker {
    pub(super) fn new(shared: &Arc<Shared>, request: AccountRequest) -> Self {
        Self {
            shared: Arc::downgrade(shared),
            request,
            time: shared.limits.call,
            state: Mutex::new(State {
                running: None,
                generation: 0,
                home: PathBuf::from("/"),
            }),
            returned: Condvar::new(),
            successor: Mutex::default(),
        }
    }

    /// Whose files it opens.
    pub(super) fn request(&self) -> &AccountRequest {
        &self.request
    }

    /// Leaves the account's sessions to another broker. Its process ends when what it began is done.
    pub(super) fn retire(&self, successor: &Arc<Self>) {
        *lock(&self.successor) = Some(Arc::clone(successor));
        // Those who wait for a socket of it need not wait any longer.
        self.returned.notify_all();
        self.end_if_idle(Duration::ZERO);
    }

    fn successor(&self) -> Option<Arc<Self>> {
        lock(&self.successor).clone()
    }

    /// The one that serves the account's sessions.
    fn serving(self: &Arc<Self>) -> Arc<Self> {
        let mut serving = Arc::clone(self);
        while let Some(next) = serving.successor() {
            serving = next;
        }
        serving
    }

    /// Starts the process if it does not run.
    pub(super) fn start(self: &Arc<Self>) -> Result<(), AccountError> {
        let serving = self.serving();
        serving.started(serving.state()).map(drop)
    }

    /// Why the root of the process that runs is not that of new logins; `None` if it is, or none runs: one that is
    /// started opens the root as it is then.
    pub(super) fn root_has_gone(self: &Arc<Self>) -> Option<StorageError> {
        self.state().running.as_ref()?;
        let error = self.call("stat", Request::CheckRoot, Repeat::Safe).err()?;
        // If the process cannot be asked, the login will hear why.
        let has_gone = matches!(
            error.errno,
            Errno::STALE | Errno::NOENT | Errno::NOTDIR | Errno::ACCESS | Errno::LOOP
        );
        has_gone.then_some(error)
    }

    /// Where the account's sessions begin.
    pub(super) fn home(self: &Arc<Self>) -> PathBuf {
        self.serving().state().home.clone()
    }

    /// The process that serves, if there is one now.
    pub(super) fn pid(self: &Arc<Self>) -> Option<u32> {
        let serving = self.serving();
        let state = serving.state();
        state.running.as_ref().map(|running| running.pid)
    }

    /// When it looked its account up. One that does not run will do so again, and one that starts does so now.
    pub(super) fn started_at(&self) -> Option<Instant> {
        let state = self.state.try_lock().ok()?;
        state.running.as_ref().map(|running| running.started)
    }

    /// Whether there is a process, or soon will be.
    pub(super) fn counts(&self) -> bool {
        // It is locked for long only while it starts.
        self.state
            .try_lock()
            .map_or(true, |state| state.running.is_some())
    }

    /// Whether there is a process that has something to do, or may have.
    pub(super) fn is_at_work(&self) -> bool {
        self.counts() && self.idle_since().is_none()
    }

    /// Since when it has had nothing to do; `None` if it has, or does not run.
    pub(super) fn idle_since(&self) -> Option<Instant> {
        let state = self.state.try_lock().ok()?;
        let running = state.running.as_ref()?;
        running.is_idle().then_some(running.used)
    }

    /// Ends the process if it has had nothing to do for this long.
    pub(super) fn end_if_idle(&self, idle: Duration) -> bool {
        let Ok(mut state) = self.state.try_lock() else {
            return false;
        };
        let idle_for = |running: &mut Running| {
            running.collect_overdue();
            running.is_idle() && running.used.elapsed() >= idle
        };
        self.end_if(&mut state, idle_for)
    }

    /// Ends the process of one that serves no more, if what it began is done.
    fn end_if_finished(&self, state: &mut State) {
        if self.successor().is_some() {
            self.end_if(state, |running| running.is_idle());
        }
    }

    fn end_if(&self, state: &mut State, is_over: impl FnOnce(&mut Running) -> bool) -> bool {
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

    /// Makes a call. `call` is its name in errors.
    pub(super) fn call(
        self: &Arc<Self>,
        call: &'static str,
        request: Request<'_>,
        repeat: Repeat,
    ) -> Result<Answered, StorageError> {
        self.exchange(call, request, repeat, &mut [0; SHORT_REPLY], None)
    }

    /// Makes a call whose answer may be long.
    pub(super) fn call_for_much(
        self: &Arc<Self>,
        call: &'static str,
        request: Request<'_>,
        repeat: Repeat,
    ) -> Result<Answered, StorageError> {
        self.exchange(call, request, repeat, &mut vec![0; REPLY_BYTES], None)
    }

    /// Makes a call that the broker gives up when `cancelled` says so.
    pub(super) fn call_until(
        self: &Arc<Self>,
        call: &'static str,
        request: Request<'_>,
        cancelled: &dyn Fn() -> bool,
    ) -> Result<Answered, StorageError> {
        let buffer = &mut [0; SHORT_REPLY];
        self.exchange(call, request, Repeat::Never, buffer, Some(cancelled))
    }

    /// A listing of the process of this generation is over.
    pub(super) fn end_listing(&self, generation: u64) {
        let mut state = self.state();
        if state.generation == generation
            && let Some(running) = &mut state.running
        {
            running.listings -= 1;
            running.used = Instant::now();
            self.end_if_finished(&mut state);
        }
    }

    fn exchange(
        self: &Arc<Self>,
        call: &'static str,
        request: Request<'_>,
        repeat: Repeat,
        buffer: &mut [u8],
        cancelled: Option<&dyn Fn() -> bool>,
    ) -> Result<Answered, StorageError> {
        let message =
            postcard::to_stdvec(&request).map_err(|_| StorageError::new(call, Errno::INVAL))?;
        let deadline = Instant::now() + self.time;
        let mut broker = Arc::clone(self);
        let mut tries = 2;
        loop {
            let leased = broker
                .lease(repeat, deadline)
                .map_err(|error| broker.unavailable(call, &error))?;
            let lease = match leased {
                Leased::Here(lease) => lease,
                Leased::By(successor) => {
                    broker = successor;
                    continue;
                }
                Leased::Gone => return Err(StorageError::new(call, Errno::IO)),
            };
            tries -= 1;
            let broken = match talk::ask(&lease.socket, &message, buffer, self.time, cancelled) {
                Ok((reply, descriptors)) => {
                    let generation = lease.generation;
                    broker.give_back(lease, begins_listing(request, &reply));
                    return match reply {
                        Reply::Failed(failure) => Err(failure.into_error()),
                        reply => Ok(Answered {
                            reply,
                            descriptors,
                            broker,
                            generation,
                        }),
                    };
                }
                Err(Broken::Late) => {
                    broker.park(lease);
                    return Err(StorageError::new(call, Errno::TIMEDOUT));
                }
                Err(broken) => broken,
            };
            // Whatever else comes from this process is not worth waiting for.
            broker.lost(&lease);
            let again = match broken {
                Broken::Unsent => true,
                Broken::Unanswered => repeat == Repeat::Safe,
                Broken::Garbled | Broken::Late => false,
            };
            if tries == 0 || !again {
                return Err(StorageError::new(call, Errno::IO));
            }
        }
    }

    /// Waits for a free socket. Fails if the process that is meant is gone.
    fn lease(&self, repeat: Repeat, deadline: Instant) -> Result<Leased, AccountError> {
        let mut state = self.state();
        loop {
            let gone = |wanted| state.running.is_none() || state.generation != wanted;
            match repeat {
                Repeat::NeverElsewhere(wanted) if gone(wanted) => return Ok(Leased::Gone),
                Repeat::NeverElsewhere(_) => {}
                Repeat::Safe | Repeat::Never => {
                    if let Some(successor) = self.successor() {
                        return Ok(Leased::By(successor));
                    }
                }
            }
            state = self.started(state)?;
            let generation = state.generation;
            if let Some(running) = &mut state.running {
                running.collect_overdue();
                if running.is_silent() {
                    return Err(AccountError::Unresponsive(self.time));
                }
                if let Some(socket) = running.free.pop() {
                    running.calls += 1;
                    return Ok(Leased::Here(Lease { socket, generation }));
                }
            }
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(AccountError::Unresponsive(self.time));
            }
            let waited = self.returned.wait_timeout(state, left);
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    fn give_back(&self, lease: Lease, begins_listing: bool) {
        let mut state = self.state();
        if state.generation == lease.generation
            && let Some(running) = &mut state.running
        {
            running.calls -= 1;
            running.listings += usize::from(begins_listing);
            running.used = Instant::now();
            running.silent = None;
            running.free.push(lease.socket);
            self.returned.notify_one();
            self.end_if_finished(&mut state);
        }
    }

    /// A call had no answer in time.
    fn park(&self, lease: Lease) {
        let mut state = self.state();
        if state.generation == lease.generation
            && let Some(running) = &mut state.running
        {
            if running.silent.is_none() {
                warn!(
                    account = self.request.account,
                    pid = running.pid,
                    "a broker does not answer: the account's files may hang"
                );
            }
            running.silent = Some(Instant::now());
            running.overdue.push(lease.socket);
        }
        // Those who wait for a socket of it need not wait any longer.
        self.returned.notify_all();
    }

    /// The process is gone, or cannot be relied on.
    fn lost(&self, lease: &Lease) {
        let mut state = self.state();
        if state.generation == lease.generation
            && let Some(running) = state.running.take()
        {
            warn!(
                account = self.request.account,
                pid = running.pid,
                "a broker has died; the next call starts another"
            );
        }
        self.returned.notify_all();
    }

    /// The state with a process that runs.
    fn started<'a>(
        &'a self,
        mut state: MutexGuard<'a, State>,
    ) -> Result<MutexGuard<'a, State>, AccountError> {
        if state.running.is_none() {
            let shared = self.shared.upgrade();
            let shared = shared.ok_or(AccountError::Monitor(Errno::SHUTDOWN))?;
            let socket = shared.start(self, &self.request)?;
            let (ready, sockets) = talk::greet(&socket)?;
            debug!(
                account = self.request.account,
                root = %self.request.root.display(),
                pid = ready.pid,
                "a broker started"
            );
            state.generation += 1;
            state.home = PathBuf::from(std::ffi::OsString::from_vec(ready.home));
            state.running = Some(Running::new(ready.pid, sockets));
        }
        Ok(state)
    }

    /// Why a session that was let in gets no broker any more.
    fn unavailable(&self, call: &'static str, error: &AccountError) -> StorageError {
        // That they hang was said when it was noticed.
        if !matches!(error, AccountError::Unresponsive(_)) {
            warn!(account = self.request.account, %error, "an account's files cannot be reached");
        }
        let errno = match error {
            AccountError::Refused(_) | AccountError::NotOurs { .. } => Errno::ACCESS,
            AccountError::Busy(_) | AccountError::AccountBusy(_) | AccountError::Finishing(_) => {
                Errno::AGAIN
            }
            AccountError::Silent(_) | AccountError::Unresponsive(_) => Errno::TIMEDOUT,
            AccountError::Monitor(Errno::AGAIN) => Errno::AGAIN,
            AccountError::Monitor(_) => Errno::IO,
        };
        StorageError::new(call, errno)
    }

    fn state(&self) -> MutexGuard<'_, State> {
        lock(&self.state)
    }
}

/// Bytes of an answer without entries: facts with the longest link.
const SHORT_REPLY: usize = LONGEST_PATH + 512;

/// Whether more of a listing will be asked for. It counts from the first answer on, so that its process
/// is not taken for idle.
fn begins_listing(request: Request<'_>, reply: &Reply) -> bool {
    matches!(request, Request::List(_)) && matches!(reply, Reply::Entries { more: Some(_), .. })
}

/// What is held is whole after every change, so a panic elsewhere does not spoil it.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
