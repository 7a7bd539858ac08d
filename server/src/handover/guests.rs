//! The serving process's side: it takes clients over, and reports when they are gone.

use std::collections::HashSet;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;

use tokio::sync::Notify;
use tracing::error;

use super::messages::{Handed, ToFront, ToServing};
use super::outbox::{Outbox, follow};
use crate::status::RefusalStatus;
use crate::telemetry::{FrontCounts, tell};

/// The socket to the front process, before this process has threads.
#[derive(Debug)]
pub(crate) struct Serving {
    socket: Arc<OwnedFd>,
    pub(crate) counts: FrontCounts,
}

/// The connection to the front process.
#[derive(Debug)]
pub(crate) struct Front {
    outbox: Outbox,
    gone: Arc<Notify>,
}

/// A client that the front process handed over. Dropping it reports that the client is gone.
#[derive(Debug)]
pub(crate) struct Guest {
    session: u64,
    guests: Guests,
    outbox: Outbox,
    is_returned: bool,
}

impl Serving {
    pub(crate) fn new(socket: OwnedFd, counts: FrontCounts) -> Self {
        Self {
            socket: Arc::new(socket),
            counts,
        }
    }

    /// Lets the front process accept connections, and passes each client that it hands over to `take`, with its connection, or
    /// to `turn_away` if it cannot be served. `most` returns the present limit of connections. `refused` gets the refusals of the
    /// front process.
    ///
    /// # Errors
    ///
    /// When there is no thread.
    pub(crate) fn start(
        self,
        most: impl Fn() -> usize + Send + 'static,
        take: impl Fn(Handed, Vec<OwnedFd>, Guest) + Send + 'static,
        turn_away: impl Fn(&Handed, Vec<OwnedFd>) + Send + 'static,
        refused: impl Fn(RefusalStatus) + Send + 'static,
    ) -> io::Result<Front> {
        // A message that is lost on the way back closes its connection: the client is gone.
        let outbox = Outbox::start(Arc::clone(&self.socket), |_| {})?;
        outbox.send(&ToFront::Start, Vec::new());
        let outbox_of_guests = outbox.clone();
        let gone = Arc::<Notify>::default();
        let front = Front {
            outbox,
            gone: Arc::clone(&gone),
        };
        let receive = move || {
            let guests = Guests::default();
            follow(&self.socket, |message, descriptors| match message {
                ToServing::Handed(handed) => {
                    match guests.admit(handed.session, most(), &outbox_of_guests) {
                        Some(guest) => take(*handed, descriptors, guest),
                        None => {
                            tell_unadmitted();
                            turn_away(&handed, descriptors);
                        }
                    }
                }
                ToServing::Refused(refusal) => refused(*refusal),
                ToServing::Gone => gone.notify_one(),
            });
        };
        thread::Builder::new()
            .name("gridhaul-link".to_owned())
            .spawn(receive)?;
        Ok(front)
    }
}

fn tell_unadmitted() {
    if let Some(untold) = tell("guests") {
        error!(
            untold,
            "the process that listens has handed over a client that it cannot have"
        );
    }
}

/// The sessions of clients that the front process handed over, until they end.
#[derive(Debug, Clone, Default)]
struct Guests(Arc<Mutex<HashSet<u64>>>);

impl Guests {
    /// Adds a session. `None` if the number is taken, or if there are too many sessions and messages about their ends that the
    /// front process has not read. Only a compromised front process, or one that hangs, causes that.
    fn admit(&self, session: u64, most: usize, outbox: &Outbox) -> Option<Guest> {
        /// A client's place may be free for the next client before its session has ended here.
        const MORE: usize = 1000;

        let mut all = self.lock();
        // Each session leads to one message at its end, so both are bounded together.
        let all_and_ended = all.len().saturating_add(outbox.waiting());
        if all_and_ended >= most.saturating_add(MORE) || !all.insert(session) {
            return None;
        }
        Some(Guest {
            session,
            guests: self.clone(),
            outbox: outbox.clone(),
            is_returned: false,
        })
    }

    /// Every change under the lock is complete, so a panic elsewhere leaves no partial state.
    fn lock(&self) -> MutexGuard<'_, HashSet<u64>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Front {
    /// Completes when the front process has said that the only client has gone.
    pub(crate) fn client_gone(&self) -> impl Future<Output = ()> + use<> {
        let gone = Arc::clone(&self.gone);
        async move { gone.notified().await }
    }

    /// Makes the front process read this configuration file.
    pub(crate) fn reload(&self, file: Option<OwnedFd>) {
        let descriptors = file.into_iter().collect();
        self.outbox.send(&ToFront::Reload, descriptors);
    }

    /// Stops the front process from accepting. Clients may complete their logins.
    pub(crate) fn stop_accepting(&self) {
        self.outbox.send(&ToFront::StopAccepting, Vec::new());
    }

    /// Stops the front process from accepting, and ends sessions before login.
    pub(crate) fn drain(&self) {
        self.outbox.send(&ToFront::Drain, Vec::new());
    }
}

impl Guest {
    /// Returns the connection to the front process, with the input that the session has not used.
    pub(crate) fn give_back(mut self, connection: OwnedFd, input: Vec<u8>) {
        self.is_returned = true;
        // The same number may be handed over again at once.
        self.guests.lock().remove(&self.session);
        let message = ToFront::Returned {
            session: self.session,
            input,
        };
        self.outbox.send(&message, vec![connection]);
    }
}

impl Drop for Guest {
    fn drop(&mut self) {
        if !self.is_returned {
            self.guests.lock().remove(&self.session);
            self.outbox.send(&ToFront::Ended(self.session), Vec::new());
        }
    }
}

#[cfg(test)]
mod tests {
    use gridhaul_accounts::socket::pair;

    use super::*;

    #[test]
    fn a_front_process_that_does_not_read_gets_a_bounded_number_of_clients_served() {
        const MOST: usize = 10;

        let (here, _there) = pair().expect("sockets");
        let outbox = Outbox::start(Arc::new(here), |_| {}).expect("a thread");
        let guests = Guests::default();
        // The clients go at once, and their ends are not read.
        let admitted = (0..20_000).filter(|&session| {
            let guest = guests.admit(session, MOST, &outbox);
            assert!(outbox.waiting() <= MOST + 1000, "too many messages wait");
            guest.is_some()
        });
        assert!(admitted.count() < 2000);
        assert!(guests.lock().is_empty());
    }
}
