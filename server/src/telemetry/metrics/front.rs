//! The share of the front process in the counters: it counts in memory that it shares with the serving process, which adds the
//! difference to its own counters when a scraper asks.

use std::sync::{Mutex, PoisonError};

use super::counters::{Counters, FAILURE, MECHANISMS, OTHER, SUCCESS};
use crate::telemetry::event::Event;
use crate::telemetry::front_counts::{Counter, FrontCounts};

/// Which of the two processes this is.
#[derive(Debug)]
pub(super) enum FrontSide {
    /// There is no front process.
    None,
    /// This is the front process.
    This(FrontCounts),
    /// This is the serving process.
    Other {
        counts: FrontCounts,
        /// The values that the counters have already.
        added: Mutex<Added>,
    },
}

/// Values of counters of the front process, in the order of [`FrontSide::add_to`].
pub(super) type Added = [u64; 4 + 2 * (MECHANISMS.len() + 1)];

impl FrontSide {
    pub(super) fn other(counts: FrontCounts) -> Self {
        let added = Mutex::new(Added::default());
        Self::Other { counts, added }
    }

    /// The counters of the front process, in the serving process.
    pub(super) fn counts(&self) -> Option<&FrontCounts> {
        match self {
            Self::Other { counts, .. } => Some(counts),
            Self::None | Self::This(_) => None,
        }
    }

    /// Adds to `counters` the events that the front process has counted since the last call.
    pub(super) fn add_to(&self, counters: &Counters) {
        let Self::Other { counts, added } = self else {
            return;
        };
        let mut added = added.lock().unwrap_or_else(PoisonError::into_inner);
        let mut added = added.iter_mut();
        let mut new = |count: &Counter| {
            let value = count.value();
            let before = added.next().map(|added| std::mem::replace(added, value));
            // A front process that was taken over may write any value.
            value.saturating_sub(before.unwrap_or(value))
        };
        counters.sessions.inc_by(new(&counts.sessions));
        let refused = new(&counts.connections_refused);
        counters.connections_refused.inc_by(refused);
        let commands = new(&counts.commands_refused);
        counters.commands_refused.inc_by(commands);
        let failed = new(&counts.logins_failed);
        // These time series begin with their first event.
        if failed > 0 {
            counters.add_logins(FAILURE, failed);
        }
        let mechanisms = MECHANISMS.into_iter().chain([OTHER]);
        for (mechanism, results) in mechanisms.zip(&counts.authentications) {
            for (result, count) in [SUCCESS, FAILURE].into_iter().zip(results) {
                let new = new(count);
                if new > 0 {
                    counters.add_authentications(mechanism, result, new);
                }
            }
        }
    }
}

/// Counts an event of the front process.
pub(super) fn count(counts: &FrontCounts, event: &Event<'_>) {
    let of = |mechanism| {
        let known = MECHANISMS.iter().position(|known| *known == mechanism);
        &counts.authentications[known.unwrap_or(MECHANISMS.len())]
    };
    match event {
        Event::SessionOpened { .. } => counts.sessions.add_one(),
        Event::ConnectionRefused { .. } => counts.connections_refused.add_one(),
        Event::Authenticated { mechanism, .. } => of(*mechanism)[0].add_one(),
        Event::AuthenticationFailed { mechanism, .. } => of(*mechanism)[1].add_one(),
        Event::LoginFailed { .. } => counts.logins_failed.add_one(),
        Event::ProtectionBroken { .. } => counts.commands_refused.add_one(),
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use prometheus_client::registry::Registry;

    use super::*;

    #[test]
    fn events_of_the_front_process_are_added_once() {
        let counts = FrontCounts::new().expect("memory");
        let side = FrontSide::other(counts);
        let counters = Counters::register(&mut Registry::default());
        counts.sessions.add_one();
        counts.authentications[1][0].add_one();
        side.add_to(&counters);
        side.add_to(&counters);
        counts.sessions.add_one();
        side.add_to(&counters);
        assert_eq!(counters.sessions.get(), 2);
        assert_eq!(counters.authentications_of("TLS", SUCCESS), Some(1));
        assert_eq!(counters.authentications_of("TLS", FAILURE), None);
    }
}
