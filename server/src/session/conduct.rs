//! The behaviour of a client before login, and its place among the connections.

use std::future::pending;
use std::sync::Arc;
use std::time::Instant;

use super::end::End;
use crate::admission::{Misconduct, Place};
use crate::handover::Kept;
use crate::login::Proof;

/// What counts for or against a client that has not logged in. `REIN` does not reset it, so that a client cannot get
/// more attempts by starting over.
#[derive(Debug, Default)]
pub(super) struct Conduct {
    /// The place among the connections of the listeners. A session that another program or process started has none.
    place: Option<Place>,
    /// Passwords, certificates and identities that were refused.
    failures: u32,
    /// A line before login was not a command.
    sent_garbage: bool,
    /// `REIN` ended a login.
    had_login: bool,
}

impl Conduct {
    pub(super) fn at(place: Place) -> Self {
        Self {
            place: Some(place),
            ..Self::default()
        }
    }

    /// The conduct of a client that was served by the other process and returned with `REIN`.
    pub(super) fn of_returned(kept: Kept) -> Self {
        Self {
            place: kept.place,
            failures: kept.failures,
            sent_garbage: kept.sent_garbage,
            had_login: true,
        }
    }

    /// What the front process keeps while the other process serves the client.
    pub(super) fn keep(&mut self, proof: Option<Arc<dyn Proof>>) -> Kept {
        Kept {
            place: self.place.take(),
            _proof: proof,
            failures: self.failures,
            sent_garbage: self.sent_garbage,
        }
    }

    /// Waits until the place is given to another client.
    pub(super) fn displaced(&self) -> impl Future<Output = ()> + Send + use<> {
        let displaced = self.place.as_ref().map(Place::displaced);
        async {
            match displaced {
                Some(displaced) => displaced.await,
                None => pending().await,
            }
        }
    }

    /// From now on the connection counts as one of a user, if there is room for one more.
    pub(super) fn log_in(&mut self, proved: bool) -> Result<(), End> {
        let Some(place) = &mut self.place else {
            return Ok(());
        };
        let kept = place.logged_in(proved, Instant::now());
        kept.map_err(|refusal| End::TryLater(refusal.to_string()))
    }

    /// `REIN` ended a login.
    pub(super) fn log_out(&mut self) {
        self.had_login = true;
    }

    pub(super) fn note_garbage(&mut self) {
        self.sent_garbage = true;
    }

    /// Counts a refused password, certificate or identity.
    pub(super) fn count_failure(&mut self) {
        self.failures += 1;
    }

    /// Whether a password, certificate or identity was refused.
    pub(super) fn has_failures(&self) -> bool {
        self.failures > 0
    }

    /// Ends the session of a client that was refused too often.
    pub(super) fn check_failures(&self, most: u32) -> Result<(), End> {
        if self.failures >= most {
            return Err(End::WrongLogins);
        }
        Ok(())
    }

    /// Counts misconduct against the client's network.
    pub(super) fn penalize(&self, misconduct: Misconduct) {
        if let Some(place) = &self.place {
            place.penalize(misconduct, Instant::now());
        }
    }

    /// Counts a session that ended without a login against the client's network.
    pub(super) fn penalize_end(&self, end: &End) {
        let misconduct = match end {
            End::Shutdown
            | End::Administrator
            | End::Displaced
            | End::TryLater(_)
            | End::Undecided
            | End::NotServed => None,
            _ if self.sent_garbage => Some(Misconduct::Garbage),
            End::Idle => Some(Misconduct::Timeout),
            // Refused logins were counted at once.
            _ => (self.failures == 0 && !self.had_login).then_some(Misconduct::NoLogin),
        };
        if let Some(misconduct) = misconduct {
            self.penalize(misconduct);
        }
    }
}
