//! Signals events of an endpoint through a file descriptor.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::Wake;

use rustix::event::{EventfdFlags, eventfd};

/// A waker of futures that makes a descriptor readable.
#[derive(Debug)]
pub(crate) struct Signal {
    descriptor: OwnedFd,
    /// The descriptor is readable or about to be, so that many wake-ups cost one system call.
    is_given: AtomicBool,
}

impl Signal {
    /// A signal that is not set.
    ///
    /// # Errors
    ///
    /// If the process has no descriptor left.
    pub(crate) fn new() -> io::Result<Arc<Self>> {
        let flags = EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK;
        Ok(Arc::new(Self {
            descriptor: eventfd(0, flags)?,
            is_given: AtomicBool::new(false),
        }))
    }

    pub(crate) fn descriptor(&self) -> BorrowedFd<'_> {
        self.descriptor.as_fd()
    }

    /// Sets it: the descriptor becomes readable.
    pub(crate) fn give(&self) {
        if !self.is_given.swap(true, Ordering::AcqRel) {
            // It can fail only if the descriptor is readable already.
            let _ = rustix::io::write(&self.descriptor, &1_u64.to_ne_bytes());
        }
    }

    /// Clears it. The caller then checks for earlier events; later events set it again.
    pub(crate) fn take(&self) {
        // There may be no byte to read yet; then the event causes one spurious wake-up.
        let _ = rustix::io::read(&self.descriptor, &mut [0_u8; 8]);
        // An event between the two steps was not written to the descriptor; the caller checks for it after this.
        self.is_given.swap(false, Ordering::AcqRel);
    }
}

impl Wake for Signal {
    fn wake(self: Arc<Self>) {
        self.give();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.give();
    }
}

#[cfg(test)]
mod tests {
    use rustix::event::{PollFd, PollFlags, Timespec, poll};

    use super::*;

    fn is_readable(signal: &Signal) -> bool {
        let mut descriptors = [PollFd::new(&signal.descriptor, PollFlags::IN)];
        let no_time = Timespec {
            tv_sec: 0,
            tv_nsec: 0,
        };
        poll(&mut descriptors, Some(&no_time)).unwrap() == 1
    }

    #[test]
    fn what_is_given_is_seen_until_it_is_taken() {
        let signal = Signal::new().unwrap();
        assert!(!is_readable(&signal));
        for _ in 0..2 {
            signal.give();
            Arc::clone(&signal).wake();
            assert!(is_readable(&signal));
            signal.take();
            assert!(!is_readable(&signal));
        }
    }
}
