//! The front process's side: it hands clients over, and keeps their places.

use std::collections::HashMap;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::messages::{Handed, ToServing};
use super::outbox::Outbox;
use crate::admission::Place;
use crate::login::Proof;

/// What the front process keeps of a client who is served.
#[derive(Debug)]
pub(crate) struct Kept {
    pub(crate) place: Option<Place>,
    /// Ends the exchange in the login process if the serving process has not claimed it.
    pub(crate) _proof: Option<Arc<dyn Proof>>,
    /// Passwords and certificates that were refused.
    pub(crate) failures: u32,
    /// Something came that is no command.
    pub(crate) sent_garbage: bool,
}

/// What the front process keeps of all clients who are served, by session.
#[derive(Debug, Clone, Default)]
pub(super) struct Served(Arc<Mutex<HashMap<u64, Kept>>>);

impl Served {
    /// The client is served no more.
    pub(super) fn take_back(&self, session: u64) -> Option<Kept> {
        self.lock().remove(&session)
    }

    /// Every change under the lock is whole, so a panic elsewhere does not spoil it.
    fn lock(&self) -> MutexGuard<'_, HashMap<u64, Kept>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The front process's way to the serving one.
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

    /// Hands a client over. It keeps its place until it is gone.
    pub(crate) fn hand_over(&self, handed: Handed, connection: OwnedFd, kept: Kept) {
        let session = handed.session;
        self.served.lock().insert(session, kept);
        let message = ToServing::Handed(Box::new(handed));
        self.outbox
            .send_session(session, &message, vec![connection]);
    }

    /// What was kept of a client who is served no more.
    pub(crate) fn take_back(&self, session: u64) -> Option<Kept> {
        self.served.take_back(session)
    }
}
