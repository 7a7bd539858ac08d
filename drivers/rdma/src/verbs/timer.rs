//! A timer with a descriptor.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;

use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create,
    timerfd_settime,
};

/// A timer, whose descriptor is readable once it has expired, until it is set again.
#[derive(Debug)]
pub(super) struct Timer(OwnedFd);

impl Timer {
    /// One that does not expire yet.
    ///
    /// # Errors
    ///
    /// When the process has no free descriptor.
    pub(super) fn new() -> io::Result<Self> {
        let flags = TimerfdFlags::CLOEXEC | TimerfdFlags::NONBLOCK;
        Ok(Self(timerfd_create(TimerfdClockId::Monotonic, flags)?))
    }

    /// Lets it expire once after this time, or never.
    ///
    /// # Errors
    ///
    /// For no time that [`Timespec`] has.
    pub(super) fn set(&self, after: Option<Duration>) -> io::Result<()> {
        let zero = Timespec {
            tv_sec: 0,
            tv_nsec: 0,
        };
        // Zero would mean never.
        let after = after.map(|after| after.max(Duration::from_nanos(1)));
        let value = after.and_then(|after| Timespec::try_from(after).ok());
        let times = Itimerspec {
            it_interval: zero,
            it_value: value.unwrap_or(zero),
        };
        timerfd_settime(&self.0, TimerfdTimerFlags::empty(), &times)?;
        Ok(())
    }
}

impl AsFd for Timer {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}
