//! The front process's side: it hands clients over, and keeps their places.

use std::collections::HashMap;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::messages::{Handed, ToServing};
use super::outbox::Outbox;
use crate::admission::Place;
use crate::login::Proof;
use crate::status::RefusalStatus;

/// The state of a client that is being served, which stays in the front process.
#[derive(Debug)]
pub(crate) struct Kept {
    pub(crate) place: Option<Place>,
    /// Dropping it ends the exchange in the login process, unless the serving process has claimed it.
    pub(crate) _proof: Option<Arc<dyn Proof>>,
    /// Passwords and certificates that were refused.
    pub(crate) failures: u32,
    /// The client sent a line that is not a command.
    pub(crate) sent_garbage: bool,
}

/// The [`Kept`] states of all clients that are being served, by session.
#[derive(Debug, Clone, Default)]
pub(super) struct Served(Arc<Mutex<HashMap<u64, Kept>>>);

impl Served {
    /// Removes a client that is not served any more.
    pub(super) fn take_back(&self, session: u64) -> Option<Kept> {
        self.lock().remove(&session)
    }

    /// Every change under the lock is complete, so a panic elsewhere leaves no partial state.
    fn lock(&self) -> MutexGuard<'_, HashMap<u64, Kept>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The front process's connection to the serving process.
#[derive(Debug)]
pub(crate) struct Link {
    outbox: Outbox,
    served: Served,
}

impl Link {
    /// Starts the thread that sends.
    pub(crate) fn start(socket: Arc<OwnedFd>) -> io::Result<Self> {
        let served = Served::default();
        let lost = served.clone();
        let outbox = Outbox::start(socket, move |session| drop(lost.take_back(session)))?;
        Ok(Self { outbox, served })
    }

    /// Hands a client over. Its place stays taken until the client is gone.
    pub(crate) fn hand_over(&self, handed: Handed, connection: OwnedFd, kept: Kept) {
        let session = handed.session;
        self.served.lock().insert(session, kept);
        let message = ToServing::Handed(Box::new(handed));
        self.outbox
            .send_session(session, &message, vec![connection]);
    }

    /// Tells administrators of a refusal. While the serving process does not read, refusals are only in the log.
    pub(crate) fn report(&self, refusal: RefusalStatus) {
        /// As many as the serving process keeps.
        const MOST_WAITING: usize = 200;

        if self.outbox.waiting() < MOST_WAITING {
            let message = ToServing::Refused(Box::new(refusal));
            self.outbox.send(&message, Vec::new());
        }
    }

    /// Removes the state of a client that is not served any more.
    pub(crate) fn take_back(&self, session: u64) -> Option<Kept> {
        self.served.take_back(session)
    }
}
