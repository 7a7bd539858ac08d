//! Operations: the deadline and the cancellation of blocking calls.

use std::fmt;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use rustix::io::Errno;

use crate::ChannelError;

/// The limits of a driver's blocking call.
#[derive(Debug, Clone, Copy)]
pub struct Operation<'a> {
    /// When the call must end. `None` is no deadline.
    pub deadline: Option<Instant>,
    /// Ends the call from another thread.
    pub cancel: &'a Cancel,
}

/// How often a driver that cannot poll [`Cancel::descriptor`] checks [`Cancel::is_cancelled`].
pub(crate) const CANCEL_TICK: Duration = Duration::from_millis(25);

/// The longest single poll; longer waits are divided.
const LONGEST_SLEEP: Duration = Duration::from_secs(3600);

impl Operation<'_> {
    /// Fails if the operation was cancelled or its deadline has passed.
    pub fn check(&self) -> Result<(), ChannelError> {
        self.time_left().map(drop)
    }

    /// As [`Operation::check`], for a caller that has just read the clock.
    ///
    /// # Errors
    ///
    /// When the operation was cancelled or its deadline had passed at `now`.
    pub fn check_at(&self, now: Instant) -> Result<(), ChannelError> {
        self.time_left_at(|| now).map(drop)
    }

    /// The time left, `None` if there is no deadline.
    pub fn remaining(&self) -> Option<Duration> {
        self.deadline
            .map(|deadline| deadline.saturating_duration_since(Instant::now()))
    }

    /// Sleeps until `descriptor` is readable, at the end of its stream, or has an error.
    ///
    /// # Errors
    ///
    /// When the operation is cancelled or its deadline passes first.
    pub fn wait_readable(&self, descriptor: BorrowedFd<'_>) -> Result<(), ChannelError> {
        self.wait(&[PollFd::from_borrowed_fd(descriptor, PollFlags::IN)])
    }

    /// As [`Operation::wait_readable`], for either of two descriptors.
    ///
    /// # Errors
    ///
    /// When the operation is cancelled or its deadline passes first.
    pub fn wait_either_readable(
        &self,
        one: BorrowedFd<'_>,
        other: BorrowedFd<'_>,
    ) -> Result<(), ChannelError> {
        self.wait(&[one, other].map(|either| PollFd::from_borrowed_fd(either, PollFlags::IN)))
    }

    /// Sleeps until `descriptor` is writable or has an error.
    ///
    /// # Errors
    ///
    /// When the operation is cancelled or its deadline passes first.
    pub fn wait_writable(&self, descriptor: BorrowedFd<'_>) -> Result<(), ChannelError> {
        self.wait(&[PollFd::from_borrowed_fd(descriptor, PollFlags::OUT)])
    }

    /// Sleeps until `descriptor` has an error, or a message in its error queue.
    ///
    /// # Errors
    ///
    /// When the operation is cancelled or its deadline passes first.
    pub fn wait_error(&self, descriptor: BorrowedFd<'_>) -> Result<(), ChannelError> {
        self.wait(&[PollFd::from_borrowed_fd(descriptor, PollFlags::empty())])
    }

    /// Sleeps for `duration`.
    ///
    /// # Errors
    ///
    /// When the operation is cancelled or its deadline passes first.
    pub fn sleep(&self, duration: Duration) -> Result<(), ChannelError> {
        let end = Instant::now() + duration;
        loop {
            self.check()?;
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Ok(());
            }
            let left = self.remaining().map_or(left, |other| left.min(other));
            match self.cancel.descriptor() {
                Ok(switch) => {
                    poll_for(&mut [PollFd::from_borrowed_fd(switch, PollFlags::IN)], left)?;
                }
                Err(_) => std::thread::sleep(left.min(CANCEL_TICK)),
            }
        }
    }

    /// As [`Operation::check`], but returns the time left, or `None` without a deadline.
    fn time_left(&self) -> Result<Option<Duration>, ChannelError> {
        self.time_left_at(Instant::now)
    }

    fn time_left_at(
        &self,
        now: impl FnOnce() -> Instant,
    ) -> Result<Option<Duration>, ChannelError> {
        if self.cancel.is_cancelled() {
            return Err(ChannelError::Cancelled);
        }
        let Some(deadline) = self.deadline else {
            return Ok(None);
        };
        match deadline.checked_duration_since(now()) {
            None | Some(Duration::ZERO) => Err(ChannelError::DeadlineExceeded),
            left => Ok(left),
        }
    }

    /// Polls one or two descriptors together with the cancellation. A short wait uses no event descriptor: creating and closing it
    /// costs more than moving a small file.
    fn wait(&self, subjects: &[PollFd<'_>]) -> Result<(), ChannelError> {
        let left = self.time_left()?;
        let switch = match left {
            Some(left) if left <= CANCEL_TICK => None,
            _ => self.cancel.descriptor().ok(),
        };
        self.wait_beside(switch, subjects, left)
    }

    /// Polls one or two descriptors together with the event descriptor `switch`. Without one (a process may have no free descriptor, which
    /// must not fail running transfers) it checks the flag periodically.
    fn wait_beside(
        &self,
        switch: Option<BorrowedFd<'_>>,
        subjects: &[PollFd<'_>],
        mut left: Option<Duration>,
    ) -> Result<(), ChannelError> {
        let longest = match switch {
            Some(_) => LONGEST_SLEEP,
            None => CANCEL_TICK,
        };
        loop {
            let sleep = left.unwrap_or(longest).min(longest);
            // At most two, and the switch.
            let mut polled: [_; 3] =
                std::array::from_fn(|at| subjects[at.min(subjects.len() - 1)].clone());
            let mut count = subjects.len();
            if let Some(switch) = switch {
                polled[count] = PollFd::from_borrowed_fd(switch, PollFlags::IN);
                count += 1;
            }
            poll_for(&mut polled[..count], sleep)?;
            let mut ready = polled[..subjects.len()].iter();
            if ready.any(|subject| !subject.revents().is_empty()) {
                return Ok(());
            }
            left = self.time_left()?;
        }
    }
}

fn poll_for(descriptors: &mut [PollFd<'_>], longest: Duration) -> Result<usize, ChannelError> {
    let longest = Timespec::try_from(longest.min(LONGEST_SLEEP)).expect("an hour fits");
    match poll(descriptors, Some(&longest)) {
        Ok(ready) => Ok(ready),
        Err(Errno::INTR) => Ok(0),
        Err(error) => Err(ChannelError::Network(error.into())),
    }
}

/// A cancellation token for blocking calls. Clones are the same token.
///
/// A driver that polls descriptors includes [`Cancel::descriptor`]; any other driver checks [`Cancel::is_cancelled`] at least
/// every 50 ms.
#[derive(Clone, Default)]
pub struct Cancel {
    state: Arc<State>,
}

#[derive(Default)]
struct State {
    cancelled: AtomicBool,
    /// Created by the first call that polls it, so an idle session uses no descriptor.
    event: OnceLock<OwnedFd>,
}

impl Cancel {
    /// A token that is not cancelled.
    pub fn new() -> Self {
        Self::default()
    }

    /// Ends every call with this token, now and in the future.
    pub fn cancel(&self) {
        self.state.cancelled.store(true, Ordering::SeqCst);
        if let Some(event) = self.state.event.get() {
            signal(event);
        }
    }

    /// Whether [`Cancel::cancel`] was called.
    pub fn is_cancelled(&self) -> bool {
        self.state.cancelled.load(Ordering::SeqCst)
    }

    /// A descriptor that becomes readable on cancellation, and stays so.
    ///
    /// # Errors
    ///
    /// When the process has no free descriptor.
    pub fn descriptor(&self) -> std::io::Result<BorrowedFd<'_>> {
        if self.state.event.get().is_none() {
            let event = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
            // If another thread was first, this one is closed again.
            let _ = self.state.event.set(event);
        }
        let event = self
            .state
            .event
            .get()
            .expect("set above, and never removed");
        // `cancel` may have run just before the descriptor was set.
        if self.is_cancelled() {
            signal(event);
        }
        Ok(event.as_fd())
    }
}

impl fmt::Debug for Cancel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Cancel")
            .field("cancelled", &self.is_cancelled())
            .finish_non_exhaustive()
    }
}

fn signal(event: &OwnedFd) {
    // The counter cannot overflow: each token is signalled a few times. After a failed write, calls would still end at their
    // deadline.
    let _ = rustix::io::write(event, &1_u64.to_ne_bytes());
}

#[cfg(test)]
mod tests {
    use std::thread;

    use rustix::pipe::pipe;

    use super::*;

    #[test]
    fn a_wait_ends_on_cancellation() {
        let (reader, _writer) = pipe().unwrap();
        for with_descriptor in [true, false] {
            let cancel = Cancel::new();
            let operation = Operation {
                deadline: None,
                cancel: &cancel,
            };
            let switch = with_descriptor.then(|| cancel.descriptor().unwrap());
            let outcome = thread::scope(|scope| {
                let subjects = [PollFd::new(&reader, PollFlags::IN)];
                let waiter = scope.spawn(move || operation.wait_beside(switch, &subjects, None));
                cancel.cancel();
                waiter.join().unwrap()
            });
            assert!(matches!(outcome, Err(ChannelError::Cancelled)));
        }
    }

    #[test]
    fn a_cancellation_before_the_descriptor_exists_is_seen() {
        let cancel = Cancel::new();
        cancel.cancel();
        let switch = cancel.descriptor().unwrap();
        let mut descriptors = [PollFd::from_borrowed_fd(switch, PollFlags::IN)];
        assert_eq!(poll_for(&mut descriptors, Duration::ZERO).unwrap(), 1);
    }

    #[test]
    fn a_wait_ends_at_the_deadline_and_not_before() {
        let (reader, writer) = pipe().unwrap();
        let cancel = Cancel::new();
        let deadline = Instant::now() + Duration::from_millis(20);
        let operation = Operation {
            deadline: Some(deadline),
            cancel: &cancel,
        };
        operation.wait_writable(writer.as_fd()).unwrap();
        let outcome = operation.wait_readable(reader.as_fd());
        assert!(matches!(outcome, Err(ChannelError::DeadlineExceeded)));
        assert!(Instant::now() >= deadline);
        assert!(
            cancel.state.event.get().is_none(),
            "a short wait needs no descriptor"
        );
        let outcome = operation.sleep(Duration::from_secs(60));
        assert!(matches!(outcome, Err(ChannelError::DeadlineExceeded)));
    }

    #[test]
    fn a_wait_for_two_ends_with_either() {
        let pipes = [pipe().unwrap(), pipe().unwrap()];
        let [one, other] = [&pipes[0].0, &pipes[1].0].map(AsFd::as_fd);
        let cancel = Cancel::new();
        for (reader, writer) in &pipes {
            for milliseconds in [1, 1000] {
                let operation = Operation {
                    deadline: Some(Instant::now() + Duration::from_millis(milliseconds)),
                    cancel: &cancel,
                };
                if milliseconds == 1 {
                    let outcome = operation.wait_either_readable(one, other);
                    assert!(matches!(outcome, Err(ChannelError::DeadlineExceeded)));
                } else {
                    rustix::io::write(writer, &[0]).unwrap();
                    operation.wait_either_readable(one, other).unwrap();
                    rustix::io::read(reader, &mut [0; 1]).unwrap();
                }
            }
        }
    }

    #[test]
    fn a_sleep_lasts_for_its_duration() {
        let cancel = Cancel::new();
        let operation = Operation {
            deadline: None,
            cancel: &cancel,
        };
        let start = Instant::now();
        operation.sleep(Duration::from_millis(10)).unwrap();
        assert!(start.elapsed() >= Duration::from_millis(10));
        cancel.cancel();
        let outcome = operation.sleep(Duration::from_secs(60));
        assert!(matches!(outcome, Err(ChannelError::Cancelled)));
    }
}
