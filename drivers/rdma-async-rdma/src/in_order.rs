//! Operations of async-rdma as a work queue: posted in sequence, and completed in that order.
//!
//! async-rdma returns a future for each operation, and the futures complete independently. A future posts its request with
//! its first poll, so each is polled once where it is created. After that only the oldest one is polled,
//! because a reliable connection completes requests in the order in which they were posted.

use std::collections::VecDeque;
use std::fmt;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use crate::signal::Signal;

/// Operations that were posted.
pub(crate) struct InOrder<T> {
    operations: VecDeque<(u64, Operation<T>)>,
    signal: Arc<Signal>,
    waker: Waker,
}

enum Operation<T> {
    Running(Pin<Box<dyn Future<Output = io::Result<T>> + Send>>),
    Done(io::Result<T>),
}

impl<T> InOrder<T> {
    /// `signal` becomes readable when [`InOrder::next`] should be called.
    pub(crate) fn new(signal: &Arc<Signal>) -> Self {
        Self {
            operations: VecDeque::new(),
            signal: Arc::clone(signal),
            waker: Waker::from(Arc::clone(signal)),
        }
    }

    /// Posts an operation; its result carries `id`.
    pub(crate) fn post(
        &mut self,
        id: u64,
        operation: impl Future<Output = io::Result<T>> + Send + 'static,
    ) {
        let mut operation = Operation::Running(Box::pin(operation));
        if operation.is_done(&self.waker) {
            self.signal.give();
        }
        self.operations.push_back((id, operation));
    }

    /// The oldest operation, if it is complete.
    pub(crate) fn next(&mut self) -> Option<(u64, io::Result<T>)> {
        let (_, oldest) = self.operations.front_mut()?;
        if !oldest.is_done(&self.waker) {
            return None;
        }
        match self.operations.pop_front() {
            Some((id, Operation::Done(result))) => Some((id, result)),
            _ => None,
        }
    }

    /// Operations that [`InOrder::next`] has not returned yet.
    pub(crate) fn len(&self) -> usize {
        self.operations.len()
    }
}

impl<T> Operation<T> {
    fn is_done(&mut self, waker: &Waker) -> bool {
        if let Self::Running(future) = self
            && let Poll::Ready(result) = future.as_mut().poll(&mut Context::from_waker(waker))
        {
            *self = Self::Done(result);
        }
        matches!(self, Self::Done(_))
    }
}

impl<T> fmt::Debug for InOrder<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("InOrder")
            .field("operations", &self.operations.len())
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::iter;

    use tokio::sync::oneshot;

    use super::*;

    #[test]
    fn what_ends_in_any_order_is_returned_in_that_of_posting() {
        let mut queue = InOrder::new(&Signal::new().unwrap());
        let mut senders = Vec::new();
        for id in 0..3 {
            let (sender, receiver) = oneshot::channel();
            senders.push(sender);
            queue.post(id, async { receiver.await.map_err(io::Error::other) });
        }
        queue.post(3, async { Err(io::Error::other("at once")) });
        let mut next = || queue.next().map(|(id, result)| (id, result.ok()));
        assert_eq!(next(), None);
        for (id, sender) in senders.into_iter().enumerate().rev() {
            assert_eq!(next(), None);
            sender.send(10 * id).unwrap();
        }
        let all: Vec<_> = iter::from_fn(next).collect();
        assert_eq!(all, [(0, Some(0)), (1, Some(10)), (2, Some(20)), (3, None)]);
    }
}
