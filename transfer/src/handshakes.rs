//! Handshakes on accepted connections: several at a time, and none holds up another.
//!
//! A data port is open to every host. A peer that proves the right identity is accepted; any other connection is
//! closed and counted, and the transfer continues to wait. A peer that proves an identity which is not the expected
//! one may be the right host with the wrong credential, and its user waits for the reason: so
//! from then on the right peer has little time left to come.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use gridhaul_stack::{Channel, ChannelError, Incoming, Operation};

use crate::error::TransferError;
use crate::local::Context;
use crate::sync::lock;
use crate::workers::{Permit, Permits};

/// Connections of one listener that were accepted and are not served yet. Further ones wait in the
/// kernel.
const MAX_PENDING: usize = 16;

/// A listener with more failed handshakes accepts no further peer, since each costs a signature. A
/// transfer that has no channel until then ends.
const MAX_FAILED: usize = 256;

/// The time that one handshake may take: far longer than the slowest honest one.
const MAX_TIME: Duration = Duration::from_secs(20);

/// How long the right peer may let itself be waited for after another one was refused.
const GRACE: Duration = Duration::from_secs(5);

/// The handshakes of one listener in one transfer.
#[derive(Debug)]
pub(crate) struct Handshakes {
    context: Context,
    slots: Arc<Permits>,
    /// A peer was accepted.
    has_succeeded: AtomicBool,
    failures: Mutex<Failures>,
}

#[derive(Debug, Default)]
struct Failures {
    count: usize,
    /// A peer with another identity was refused, and the remaining time for the right peer is limited.
    is_limited: bool,
    last: Option<ChannelError>,
}

impl Handshakes {
    pub(crate) fn new(context: &Context) -> Self {
        Self {
            context: context.clone(),
            slots: Permits::new(MAX_PENDING),
            has_succeeded: AtomicBool::new(false),
            failures: Mutex::default(),
        }
    }

    /// The right to accept a connection, held until it is served or closed.
    pub(crate) fn slot(&self) -> Result<Permit, ChannelError> {
        let accepting = &self.context.running.accepting;
        self.slots.take(1, accepting, &|_| {})
    }

    /// Waits until every connection that has a slot is served or closed.
    pub(crate) fn settle(&self) -> Result<(), ChannelError> {
        let accepting = &self.context.running.accepting;
        self.slots.take(MAX_PENDING, accepting, &|_| {}).map(drop)
    }

    /// Lets a connection prove itself; `None` if it did not, and was closed, or if no further channel
    /// is wanted.
    ///
    /// # Errors
    ///
    /// When the transfer must not wait any longer for a better one.
    pub(crate) fn establish(
        &self,
        incoming: Incoming,
    ) -> Result<Option<Box<dyn Channel>>, TransferError> {
        let peer = incoming.peer();
        if lock(&self.failures).count > MAX_FAILED {
            self.context.running.note_refused();
            return Ok(None);
        }
        let time = MAX_TIME.min(self.context.shared.config.data_timeout);
        let operation = Operation {
            deadline: Some(Instant::now() + time),
            cancel: &self.context.running.accepting,
        };
        match incoming.establish(&operation) {
            Ok(channel) => {
                self.has_succeeded.store(true, Ordering::Release);
                Ok(Some(channel))
            }
            Err(ChannelError::Cancelled) => Ok(None),
            Err(error) => self.fail(peer, error).map(|()| None),
        }
    }

    /// Why no peer was accepted within `waited`.
    pub(crate) fn none_accepted(&self, waited: Duration) -> TransferError {
        match lock(&self.failures).last.take() {
            Some(error) => error.into(),
            None => TransferError::NoConnection(waited),
        }
    }

    fn fail(&self, peer: SocketAddr, error: ChannelError) -> Result<(), TransferError> {
        let running = &self.context.running;
        running.note_failed_handshake(peer, &error);
        let mut failures = lock(&self.failures);
        failures.count += 1;
        if self.has_succeeded.load(Ordering::Acquire) {
            return Ok(());
        }
        if failures.count > MAX_FAILED {
            return Err(error.into());
        }
        let is_first_refused =
            matches!(error, ChannelError::Refused { .. }) && !failures.is_limited;
        if !is_first_refused {
            failures.last = Some(error);
            return Ok(());
        }
        failures.is_limited = true;
        drop(failures);
        let operation = Operation {
            deadline: None,
            cancel: &running.accepting,
        };
        let outcome = operation.sleep(GRACE.min(self.context.shared.config.data_timeout));
        if outcome.is_err() || self.has_succeeded.load(Ordering::Acquire) {
            return Ok(());
        }
        Err(error.into())
    }
}
