//! Waiting for a queued request, as a future or on a thread.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{self, Thread};
use std::time::{Duration, Instant};

use crate::grant::Grant;
use crate::request::Request;
use crate::shared::Shared;
use crate::source::Source;

/// How often a blocked thread checks whether it is cancelled.
const CANCEL_INTERVAL: Duration = Duration::from_millis(50);

/// A queued request. Dropping it withdraws the request, or returns the units that it got in the meantime.
#[derive(Debug)]
#[must_use = "dropping it withdraws the request"]
pub struct Waiting {
    shared: Shared,
    source: Source,
    request: Arc<Request>,
    /// The units were moved to a grant.
    is_over: bool,
}

/// Why a blocking wait ended without units.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WaitError {
    /// The callback returned true.
    Cancelled,
    /// The deadline passed.
    TimedOut,
}

impl Waiting {
    pub(crate) fn new(shared: Shared, source: Source, request: Arc<Request>) -> Self {
        Self {
            shared,
            source,
            request,
            is_over: false,
        }
    }

    /// The number of requests that will be served before this one, as estimated from the present state.
    pub fn ahead(&self) -> usize {
        self.shared.lock().ahead(&self.source, &self.request)
    }

    /// Blocks the thread until the request is served, `is_cancelled` returns true (it is called every 50 ms), or the
    /// deadline passes.
    ///
    /// # Errors
    ///
    /// When it is cancelled or the deadline passes.
    pub fn wait(
        mut self,
        deadline: Option<Instant>,
        is_cancelled: impl Fn() -> bool,
    ) -> Result<Grant, WaitError> {
        let waker = Waker::from(Arc::new(Unpark(thread::current())));
        let mut context = Context::from_waker(&waker);
        loop {
            if let Poll::Ready(grant) = Pin::new(&mut self).poll(&mut context) {
                return Ok(grant);
            }
            if is_cancelled() {
                return Err(WaitError::Cancelled);
            }
            let now = Instant::now();
            let left = deadline.map(|deadline| deadline.saturating_duration_since(now));
            if left.is_some_and(|left| left.is_zero()) {
                return Err(WaitError::TimedOut);
            }
            thread::park_timeout(left.map_or(CANCEL_INTERVAL, |left| left.min(CANCEL_INTERVAL)));
        }
    }

    fn granted(&mut self) -> Option<Grant> {
        let units = self.request.granted()?;
        self.is_over = true;
        Some(Grant::new(self.shared.clone(), self.source.clone(), units))
    }
}

impl Future for Waiting {
    type Output = Grant;

    /// # Panics
    ///
    /// When it is polled again after it was ready.
    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Grant> {
        assert!(!self.is_over, "polled after it was ready");
        if let Some(grant) = self.granted() {
            return Poll::Ready(grant);
        }
        self.request.set_waker(context.waker().clone());
        // The request may have been served before the waker was set.
        self.granted().map_or(Poll::Pending, Poll::Ready)
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        if !self.is_over {
            self.shared.withdraw(&self.source, &self.request);
        }
    }
}

/// Wakes a parked thread.
struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}
