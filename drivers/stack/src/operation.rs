//! Deadlines and cancellation belong to the operation, not to the driver.

use std::fmt;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use rustix::event::{EventfdFlags, eventfd};

use crate::ChannelError;

/// What a blocking call of a driver may use while it lasts.
#[derive(Debug, Clone, Copy)]
pub struct Operation<'a> {
    /// When the call has to end, done or not. `None` waits as long as the peer does.
    pub deadline: Option<Instant>,
    /// Ends the call from another thread.
    pub cancel: &'a Cancel,
}

impl Operation<'_> {
    /// Fails if the operation was cancelled or its deadline has passed.
    pub fn check(&self) -> Result<(), ChannelError> {
        if self.cancel.is_cancelled() {
            return Err(ChannelError::Cancelled);
        }
        match self.deadline {
            Some(deadline) if Instant::now() >= deadline => Err(ChannelError::DeadlineExceeded),
            _ => Ok(()),
        }
    }

    /// The time left, `None` if there is no deadline.
    pub fn remaining(&self) -> Option<Duration> {
        self.deadline
            .map(|deadline| deadline.saturating_duration_since(Instant::now()))
    }
}

/// A switch that ends blocking calls, shared by all who may throw it.
///
/// A driver that sleeps in the kernel waits for [`Cancel::descriptor`] beside its own descriptors;
/// one that waits in memory asks [`Cancel::is_cancelled`] at least every 50 ms.
#[derive(Clone, Default)]
pub struct Cancel {
    state: Arc<State>,
}

#[derive(Default)]
struct State {
    cancelled: AtomicBool,
    /// Made when somebody first wants to sleep on it: an idle session costs no descriptor.
    event: OnceLock<OwnedFd>,
}

impl Cancel {
    /// A switch that nobody has thrown.
    pub fn new() -> Self {
        Self::default()
    }

    /// Ends every call that uses this switch, now and in future.
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

    /// A descriptor that becomes readable when the switch is thrown, and stays so.
    ///
    /// # Errors
    ///
    /// When the process has no descriptor left.
    pub fn descriptor(&self) -> std::io::Result<BorrowedFd<'_>> {
        if self.state.event.get().is_none() {
            let event = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
            // Another thread may have been first; then this one is closed again.
            let _ = self.state.event.set(event);
        }
        let event = self
            .state
            .event
            .get()
            .expect("set above, and never taken out");
        // `cancel` may have looked for the descriptor just before it was there.
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
    // The counter cannot overflow: each Cancel is signalled a handful of times. A failed write would
    // leave sleepers to their deadline, which is all that could be done about it.
    let _ = rustix::io::write(event, &1_u64.to_ne_bytes());
}
