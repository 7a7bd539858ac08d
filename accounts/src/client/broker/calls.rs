//! Calls to a broker: they wait for a free socket, exchange messages, and repeat what is safe to repeat.

use std::os::fd::OwnedFd;
use std::sync::{Arc, PoisonError};
use std::time::{Duration, Instant};

use gridhaul_storage::StorageError;
use rustix::io::Errno;
use tracing::warn;

use super::Broker;
use crate::client::error::AccountError;
use crate::client::exchange::{self, Broken};
use crate::messages::{LONGEST_PATH, REPLY_BYTES, Reply, Request};

/// Whether a call is repeated if its broker ended before it answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::client) enum Repeat {
    /// It is repeated: it only reads, or is idempotent.
    Safe,
    /// It is not repeated: it may have been carried out, and would fail the second time.
    Never,
    /// It is not repeated, and is made only to the process of this generation.
    SameProcess(u64),
}

/// Bytes of the longest answer without entries: the facts of a symbolic link with the longest target.
const SHORT_REPLY: usize = LONGEST_PATH + 512;

/// How long a call waits while its account, or the server, has no room for its process, and how often it looks.
const ROOM: Duration = Duration::from_secs(1);
const ROOM_PAUSE: Duration = Duration::from_millis(5);

/// The right to make one call.
struct Lease {
    socket: OwnedFd,
    generation: u64,
}

/// The result of waiting for a socket.
enum Leased {
    Socket(Lease),
    /// Another broker serves the account's sessions now.
    Successor(Arc<Broker>),
    /// The process of the required generation has ended.
    Gone,
}

/// An answer with its descriptors, and the process that sent it.
pub(in crate::client) struct Answered {
    pub(in crate::client) reply: Reply,
    pub(in crate::client) descriptors: Vec<OwnedFd>,
    pub(in crate::client) broker: Arc<Broker>,
    pub(in crate::client) generation: u64,
}

impl Broker {
    /// Checks whether the root's path still leads to the directory that the process has opened; returns the error if it
    /// does not. `None` if no process runs: a new one opens the present directory.
    pub(in crate::client) fn root_has_gone(self: &Arc<Self>) -> Option<StorageError> {
        self.state().running.as_ref()?;
        let error = self.call("stat", Request::CheckRoot, Repeat::Safe).err()?;
        // Other errors mean that the process does not answer, which the login will find out.
        let has_gone = matches!(
            error.errno,
            Errno::STALE | Errno::NOENT | Errno::NOTDIR | Errno::ACCESS | Errno::LOOP
        );
        has_gone.then_some(error)
    }

    /// Makes a call. `call` is the name of the system call in errors.
    pub(in crate::client) fn call(
        self: &Arc<Self>,
        call: &'static str,
        request: Request<'_>,
        repeat: Repeat,
    ) -> Result<Answered, StorageError> {
        self.exchange(call, request, repeat, &mut [0; SHORT_REPLY], None)
    }

    /// Makes a call whose answer may contain entries of a directory.
    pub(in crate::client) fn call_with_long_answer(
        self: &Arc<Self>,
        call: &'static str,
        request: Request<'_>,
        repeat: Repeat,
    ) -> Result<Answered, StorageError> {
        self.exchange(call, request, repeat, &mut vec![0; REPLY_BYTES], None)
    }

    /// Makes a call that the broker abandons when `cancelled` returns true.
    pub(in crate::client) fn call_until(
        self: &Arc<Self>,
        call: &'static str,
        request: Request<'_>,
        cancelled: &dyn Fn() -> bool,
    ) -> Result<Answered, StorageError> {
        let buffer = &mut [0; SHORT_REPLY];
        self.exchange(call, request, Repeat::Never, buffer, Some(cancelled))
    }

    /// Counts a listing of the process of this generation as ended.
    pub(in crate::client) fn end_listing(&self, generation: u64) {
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
                Leased::Socket(lease) => lease,
                Leased::Successor(successor) => {
                    broker = successor;
                    continue;
                }
                Leased::Gone => return Err(StorageError::new(call, Errno::IO)),
            };
            tries -= 1;
            let broken = match exchange::ask(&lease.socket, &message, buffer, self.time, cancelled)
            {
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

    /// Waits for a free socket, until `deadline`, and a moment for the room for a process.
    fn lease(&self, repeat: Repeat, deadline: Instant) -> Result<Leased, AccountError> {
        let room_until = deadline.min(Instant::now() + ROOM);
        let mut state = self.state();
        loop {
            let gone = |wanted| state.running.is_none() || state.generation != wanted;
            match repeat {
                Repeat::SameProcess(wanted) if gone(wanted) => return Ok(Leased::Gone),
                Repeat::SameProcess(_) => {}
                Repeat::Safe | Repeat::Never => {
                    if let Some(successor) = self.successor() {
                        return Ok(Leased::Successor(successor));
                    }
                }
            }
            state = match self.started(state) {
                Ok(state) => state,
                // A login that has ended the idle process of this broker to make room takes its calls over in a moment.
                Err(AccountError::Busy(_) | AccountError::AccountBusy(_))
                    if Instant::now() < room_until =>
                {
                    let waited = self.returned.wait_timeout(self.state(), ROOM_PAUSE);
                    state = waited.unwrap_or_else(PoisonError::into_inner).0;
                    continue;
                }
                Err(error) => return Err(error),
            };
            let generation = state.generation;
            if let Some(running) = &mut state.running {
                running.collect_overdue();
                if running.is_silent() {
                    return Err(AccountError::Unresponsive(self.time));
                }
                if let Some(socket) = running.free.pop() {
                    running.calls += 1;
                    return Ok(Leased::Socket(Lease { socket, generation }));
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

    /// Keeps the socket of a call that exceeded its time limit until the late answer arrives.
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
        // Calls that wait for a socket fail now.
        self.returned.notify_all();
    }

    /// Drops the process: it has ended, or violated the protocol.
    fn lost(&self, lease: &Lease) {
        let mut state = self.state();
        if state.generation == lease.generation
            && let Some(running) = state.running.take()
        {
            self.count_death();
            warn!(
                account = self.request.account,
                pid = running.pid,
                "a broker has died; the next call starts another"
            );
        }
        self.returned.notify_all();
    }

    /// Whether a message about a call without a process is due: a client can cause many.
    fn tells_now(&self) -> bool {
        const INTERVAL: Duration = Duration::from_secs(30);

        let mut state = self.state();
        let now = Instant::now();
        let is_due = state
            .told
            .is_none_or(|told| now.duration_since(told) >= INTERVAL);
        if is_due {
            state.told = Some(now);
        }
        is_due
    }

    /// The error of a call when no broker is available.
    fn unavailable(&self, call: &'static str, error: &AccountError) -> StorageError {
        // A file system that hangs was logged when it was detected.
        if !matches!(error, AccountError::Unresponsive(_)) && self.tells_now() {
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
}

/// Whether the answer begins a listing of several messages. Such a listing counts from its first answer on, so that its
/// process is not taken for idle.
fn begins_listing(request: Request<'_>, reply: &Reply) -> bool {
    matches!(request, Request::List(_)) && matches!(reply, Reply::Entries { more: Some(_), .. })
}
