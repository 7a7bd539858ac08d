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

/// The number of clients that wait until the serving process takes them. Each has a descriptor and 16 KiB of memory. It takes
/// thousands in a second.
const MOST_HANDED: usize = 500;

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

    /// Whether another client may be handed over. If not, it is refused: the serving process does not read, and clients would
    /// wait without a reply.
    pub(crate) fn has_room(&self) -> bool {
        self.outbox.waiting() < MOST_HANDED
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

    /// Tells that the only client has gone.
    pub(crate) fn end(&self) {
        self.outbox.send(&ToServing::Gone, Vec::new());
    }

    /// Removes the state of a client that is not served any more.
    pub(crate) fn take_back(&self, session: u64) -> Option<Kept> {
        self.served.take_back(session)
    }
}

#[cfg(test)]
mod tests {
    use gridhaul_accounts::socket::pair;

    use super::*;
    use crate::handover::{HandedProof, HandedProtection, follow};

    #[test]
    fn refusals_do_not_pile_up_while_the_serving_process_does_not_read() {
        let (here, _there) = pair().expect("sockets");
        let link = Link::start(Arc::new(here)).expect("a thread");
        let refusal = RefusalStatus {
            time: String::new(),
            event: "login failed".to_owned(),
            peer: "192.0.2.1".to_owned(),
            user: Some("x".repeat(1000)),
            identity: None,
            reason: "y".repeat(1000),
        };
        for _ in 0..20_000 {
            link.report(refusal.clone());
            assert!(link.outbox.waiting() <= 200, "too many wait");
        }
    }

    #[test]
    fn clients_do_not_pile_up_while_the_serving_process_does_not_read() {
        let (here, there) = pair().expect("sockets");
        let here = Arc::new(here);
        let link = Link::start(Arc::clone(&here)).expect("a thread");
        let mut handed = 0;
        while link.has_room() {
            let kept = Kept {
                place: None,
                _proof: None,
                failures: 0,
                sent_garbage: false,
            };
            let client = Handed {
                session: handed,
                name: "anonymous".to_owned(),
                proof: HandedProof::Anonymous,
                protection: HandedProtection::Clear,
                agreed: Vec::new(),
                input: Vec::new(),
            };
            let (connection, _client) = pair().expect("sockets");
            link.hand_over(client, connection, kept);
            handed += 1;
            assert!(handed < 2000, "without end");
        }
        assert!(link.outbox.waiting() <= MOST_HANDED);
        // It reads again.
        let reading = std::thread::spawn(move || follow(&there, |_: ToServing, _| {}));
        while !link.has_room() {
            std::thread::yield_now();
        }
        rustix::net::shutdown(&*here, rustix::net::Shutdown::Both).expect("ended");
        reading.join().expect("no panic");
    }
}
