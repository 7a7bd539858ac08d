//! One broker, as the server sees it: sockets to it, each for one call at a time.

use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStringExt as _;
use std::path::PathBuf;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant};

use gridhaul_storage::StorageError;
use rustix::io::Errno;
use tracing::{debug, warn};

use super::talk::{self, Broken, Discarded};
use super::{AccountError, AccountRequest, Shared};
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
}

#[derive(Debug)]
struct State {
    running: Option<Running>,
    /// Counts the processes there were, so that what belongs to an earlier one is known.
    generation: u64,
    home: PathBuf,
}

/// A process.
#[derive(Debug)]
struct Running {
    pid: u32,
    started: Instant,
    used: Instant,
    free: Vec<OwnedFd>,
    /// Sockets of calls whose answer did not come in time. They can be used again when it has come.
    overdue: Vec<OwnedFd>,
    /// Since when calls fail at once: the last one that was tried had no answer in time.
    silent: Option<Instant>,
    /// Calls that wait for an answer.
    calls: usize,
    /// Listings under way.
    listings: usize,
}

/// The right to make one call.
struct Lease {
    socket: OwnedFd,
    generation: u64,
}

/// The answer, the descriptors with it, and the process that gave it.
pub(super) struct Answered {
    pub(super) reply: Reply,
    pub(super) descriptors: Vec<OwnedFd>,
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
        }
    }

    /// Starts the process if it does not run.
    pub(super) fn start(&self) -> Result<(), AccountError> {
        self.started(self.state()).map(drop)
    }

    /// Why the root of the process that runs is not that of new logins; `None` if it is, or none runs: one that is
    /// started opens the root as it is then.
    pub(super) fn root_has_gone(&self) -> Option<StorageError> {
        self.pid()?;
        let error = self.call("stat", Request::CheckRoot, Repeat::Safe).err()?;
        // If the process cannot be asked, the login will hear why.
        let has_gone = matches!(
            error.errno,
            Errno::STALE | Errno::NOENT | Errno::NOTDIR | Errno::ACCESS | Errno::LOOP
        );
        has_gone.then_some(error)
    }

    /// Where the account's sessions begin.
    pub(super) fn home(&self) -> PathBuf {
        self.state().home.clone()
    }

    /// The process, if there is one now.
    pub(super) fn pid(&self) -> Option<u32> {
        self.state().running.as_ref().map(|running| running.pid)
    }

    /// Whether what it knows of its account is older than this. One that does not run will look it up
    /// again.
    pub(super) fn is_stale(&self, age: Duration) -> bool {
        let Ok(state) = self.state.try_lock() else {
            return false;
        };
        let running = state.running.as_ref();
        running.is_some_and(|running| running.started.elapsed() >= age)
    }

    /// Whether there is a process, or soon will be.
    pub(super) fn counts(&self) -> bool {
        // It is locked for long only while it starts.
        self.state
            .try_lock()
            .map_or(true, |state| state.running.is_some())
    }

    /// Since when it has had nothing to do; `None` if it has, or does not run.
    pub(super) fn idle_since(&self) -> Option<Instant> {
        let state = self.state.try_lock().ok()?;
        let running = state.running.as_ref()?;
        (running.calls == 0 && running.listings == 0).then_some(running.used)
    }

    /// Ends the process if it has had nothing to do for this long.
    pub(super) fn end_if_idle(&self, idle: Duration) -> bool {
        let Ok(mut state) = self.state.try_lock() else {
            return false;
        };
        let ended = state.running.take_if(|running| {
            running.calls == 0 && running.listings == 0 && running.used.elapsed() >= idle
        });
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
        &self,
        call: &'static str,
        request: Request<'_>,
        repeat: Repeat,
    ) -> Result<Answered, StorageError> {
        self.exchange(call, request, repeat, &mut [0; SHORT_REPLY], None)
    }

    /// Makes a call whose answer may be long.
    pub(super) fn call_for_much(
        &self,
        call: &'static str,
        request: Request<'_>,
        repeat: Repeat,
    ) -> Result<Answered, StorageError> {
        self.exchange(call, request, repeat, &mut vec![0; REPLY_BYTES], None)
    }

    /// Makes a call that the broker gives up when `cancelled` says so.
    pub(super) fn call_until(
        &self,
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
        }
    }

    fn exchange(
        &self,
        call: &'static str,
        request: Request<'_>,
        repeat: Repeat,
        buffer: &mut [u8],
        cancelled: Option<&dyn Fn() -> bool>,
    ) -> Result<Answered, StorageError> {
        let message =
            postcard::to_stdvec(&request).map_err(|_| StorageError::new(call, Errno::INVAL))?;
        let deadline = Instant::now() + self.time;
        let mut tries = 2;
        loop {
            tries -= 1;
            let lease = self
                .lease(repeat, deadline)
                .map_err(|error| self.unavailable(call, &error))?;
            let Some(lease) = lease else {
                return Err(StorageError::new(call, Errno::IO));
            };
            let broken = match talk::ask(&lease.socket, &message, buffer, self.time, cancelled) {
                Ok((reply, descriptors)) => {
                    let generation = lease.generation;
                    self.give_back(lease, begins_listing(request, &reply));
                    return match reply {
                        Reply::Failed(failure) => Err(failure.into_error()),
                        reply => Ok(Answered {
                            reply,
                            descriptors,
                            generation,
                        }),
                    };
                }
                Err(Broken::Late) => {
                    self.park(lease);
                    return Err(StorageError::new(call, Errno::TIMEDOUT));
                }
                Err(broken) => broken,
            };
            // Whatever else comes from this process is not worth waiting for.
            self.lost(&lease);
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

    /// Waits for a socket that nobody uses. There is none if the process that is meant is gone.
    fn lease(&self, repeat: Repeat, deadline: Instant) -> Result<Option<Lease>, AccountError> {
        let mut state = self.state();
        loop {
            let gone = |wanted| state.running.is_none() || state.generation != wanted;
            if matches!(repeat, Repeat::NeverElsewhere(wanted) if gone(wanted)) {
                return Ok(None);
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
                    return Ok(Some(Lease { socket, generation }));
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
            let now = Instant::now();
            state.generation += 1;
            state.home = PathBuf::from(std::ffi::OsString::from_vec(ready.home));
            state.running = Some(Running {
                pid: ready.pid,
                started: now,
                used: now,
                free: sockets,
                overdue: Vec::new(),
                silent: None,
                calls: 0,
                listings: 0,
            });
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
            AccountError::Busy(_) => Errno::AGAIN,
            AccountError::Silent(_) | AccountError::Unresponsive(_) => Errno::TIMEDOUT,
            AccountError::Monitor(_) => Errno::IO,
        };
        StorageError::new(call, errno)
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // Every change of the state is whole, so a panic elsewhere does not spoil it.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Running {
    /// Whether calls fail at once. From time to time one of them is tried.
    fn is_silent(&mut self) -> bool {
        let Some(since) = self.silent else {
            return false;
        };
        let tries_one = since.elapsed() >= TRY_AGAIN;
        if tries_one {
            self.silent = Some(Instant::now());
        }
        !tries_one
    }

    /// Takes sockets back whose late answer has come.
    fn collect_overdue(&mut self) {
        for socket in std::mem::take(&mut self.overdue) {
            match talk::discard(&socket) {
                Discarded::NotYet => self.overdue.push(socket),
                Discarded::Answer => {
                    self.silent = None;
                    self.calls -= 1;
                    self.free.push(socket);
                }
                Discarded::End => self.calls -= 1,
            }
        }
    }
}

/// How often a call is tried at a broker that does not answer.
const TRY_AGAIN: Duration = Duration::from_secs(10);

/// Bytes of an answer without entries: facts with the longest link.
const SHORT_REPLY: usize = LONGEST_PATH + 512;

/// Whether more of a listing will be asked for. It counts from the first answer on, so that its process
/// is not taken for idle.
fn begins_listing(request: Request<'_>, reply: &Reply) -> bool {
    matches!(request, Request::List(_)) && matches!(reply, Reply::Entries { more: Some(_), .. })
}
