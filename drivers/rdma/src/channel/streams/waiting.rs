//! Waits for an event, or until the pacer allows the next message.

use std::os::fd::BorrowedFd;
use std::time::Instant;

use gridhaul_direct::IoQueue;
use gridhaul_stack::{ChannelError, Operation};

use super::Streams;
use crate::channel::timers::{Spinner, wake_in_time};
use crate::clock;

impl Streams {
    /// Sleeps until an event, or until the pacer allows the next message. Before a message that a sleep
    /// would miss it polls.
    pub(super) fn wait(&mut self, operation: &Operation<'_>) -> Result<(), ChannelError> {
        self.wait_beside(operation, None)
    }

    /// The same, or until a request of a disk has completed, or until `wake_at`. Requests that the kernel has not accepted are not
    /// in flight: if no others are, the descriptor of the queue stays quiet, so the wait ends when it is time to submit them again.
    pub(super) fn wait_with_disk(
        &mut self,
        queue: &dyn IoQueue,
        wake_at: Option<Instant>,
        operation: &Operation<'_>,
    ) -> Result<(), ChannelError> {
        let retry_at = queue.retry_in().map(|delay| Instant::now() + delay);
        let ends = [operation.deadline, wake_at, retry_at];
        let until = Operation {
            deadline: ends.into_iter().flatten().min(),
            cancel: operation.cancel,
        };
        match self.wait_beside(&until, queue.descriptor()) {
            Err(ChannelError::DeadlineExceeded) => operation.check(),
            waited => waited,
        }
    }

    /// As [`Streams::wait`], or until a further descriptor is readable.
    fn wait_beside(
        &mut self,
        operation: &Operation<'_>,
        other: Option<BorrowedFd<'_>>,
    ) -> Result<(), ChannelError> {
        let exchange = &self.opened.exchange;
        // What is sent in user space over TCP leaves when TCP wants it.
        let polls = self.opened.endpoint.limits().needs_polling;
        let spin_time = exchange.spin_time().filter(|_| !polls);
        let next = exchange.next_at(self.now);
        if let (Some(at), Some(spin_time)) = (next, spin_time)
            && at <= self.now + spin_time
            && let Some(_spinner) = Spinner::take()
        {
            while self.now < at && !self.opened.exchange.is_over() {
                std::hint::spin_loop();
                self.advance()?;
            }
            return operation.check_at(clock::instant(self.now));
        }
        self.watch()?;
        let Some(paced_until) = self.opened.exchange.next_at(self.now) else {
            return self.sleep(operation, other);
        };
        wake_in_time();
        let paced_until = clock::instant(paced_until.saturating_sub(spin_time.unwrap_or_default()));
        let until = Operation {
            deadline: Some(
                operation
                    .deadline
                    .map_or(paced_until, |end| end.min(paced_until)),
            ),
            cancel: operation.cancel,
        };
        match self.sleep(&until, other) {
            Err(ChannelError::DeadlineExceeded) => operation.check(),
            outcome => outcome,
        }
    }

    fn sleep(
        &self,
        operation: &Operation<'_>,
        other: Option<BorrowedFd<'_>>,
    ) -> Result<(), ChannelError> {
        match other {
            Some(other) => operation.wait_either_readable(self.descriptor(), other),
            None => operation.wait_readable(self.descriptor()),
        }
    }
}
