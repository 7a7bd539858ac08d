//! Handshakes on accepted connections, several in parallel.
//!
//! A data port is open to every host. A peer with the expected identity is accepted; any other connection is
//! closed and counted, and the transfer continues to wait. A peer with another identity may be the intended host
//! with the wrong credential, and its user waits for the error message: so from then on the transfer waits for the
//! expected peer only for a short time.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use gridhaul_stack::{Channel, ChannelError, Incoming, Operation};

use super::semaphore::{Permit, Semaphore};
use crate::context::Context;
use crate::error::TransferError;
use crate::sync::lock;

/// Connections of one listener that were accepted and have no worker permit yet. Further ones wait in the
/// kernel's accept queue.
const MAX_PENDING: usize = 16;

/// After more failed handshakes a listener accepts no further peer, since each costs a signature. A
/// transfer without a channel fails then.
const MAX_FAILED: usize = 256;

/// The time limit of one handshake, far longer than a slow peer needs.
const MAX_TIME: Duration = Duration::from_secs(20);

/// How long a transfer waits for the expected peer after another one was refused.
const GRACE: Duration = Duration::from_secs(5);

/// The handshakes of one listener in one transfer.
#[derive(Debug)]
pub(crate) struct Handshakes {
    context: Context,
    slots: Arc<Semaphore>,
    /// A peer was accepted.
    has_succeeded: AtomicBool,
    failures: Mutex<Failures>,
}

#[derive(Debug, Default)]
struct Failures {
    count: usize,
    /// A peer with another identity was refused, so the time for the expected peer is limited.
    is_limited: bool,
    last: Option<ChannelError>,
}

impl Handshakes {
    pub(crate) fn new(context: &Context) -> Self {
        Self {
            context: context.clone(),
            slots: Semaphore::new(MAX_PENDING),
            has_succeeded: AtomicBool::new(false),
            failures: Mutex::default(),
        }
    }

    /// Takes a slot for a connection, held until it is served or closed.
    pub(crate) fn slot(&self) -> Result<Permit, ChannelError> {
        let accepting = &self.context.running.accepting;
        self.slots.take(1, accepting)
    }

    /// Waits until every connection with a slot is served or closed.
    pub(crate) fn settle(&self) -> Result<(), ChannelError> {
        let accepting = &self.context.running.accepting;
        self.slots.take(MAX_PENDING, accepting).map(drop)
    }

    /// Performs the handshake of a connection; `None` if it failed and the connection was closed, or if no
    /// further channel is needed.
    ///
    /// # Errors
    ///
    /// When the transfer must not wait any longer for another peer.
    pub(crate) fn establish(
        &self,
        incoming: Incoming,
    ) -> Result<Option<Box<dyn Channel>>, TransferError> {
        let peer = incoming.peer();
        if lock(&self.failures).count > MAX_FAILED {
            self.context.running.note_refused();
            return Ok(None);
        }
        let time = MAX_TIME.min(self.context.resources.data_timeout);
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

    /// The error if no peer was accepted within `waited`.
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
        let outcome = operation.sleep(GRACE.min(self.context.resources.data_timeout));
        if outcome.is_err() || self.has_succeeded.load(Ordering::Acquire) {
            return Ok(());
        }
        Err(error.into())
    }
}
