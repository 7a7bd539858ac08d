//! The share of the front process in the counters: it counts in memory that it shares with the serving process, which adds the
//! difference to its own counters when a scraper asks.

use std::sync::{Mutex, PoisonError};

use super::counters::{Counters, FAILURE, MECHANISMS, OTHER, SUCCESS};
use crate::telemetry::event::Event;
use crate::telemetry::front_counts::FrontCounts;
use crate::telemetry::shared_memory::Counter;

/// The counts of the front process, in the serving process.
#[derive(Debug)]
pub(super) struct FrontShare {
    counts: FrontCounts,
    /// The values that the counters include already, in the order of [`FrontShare::merge_into`].
    added: Mutex<Added>,
}

type Added = [u64; 4 + 2 * (MECHANISMS.len() + 1)];

impl FrontShare {
    pub(super) fn new(counts: FrontCounts) -> Self {
        let added = Mutex::new(Added::default());
        Self { counts, added }
    }

    pub(super) fn counts(&self) -> &FrontCounts {
        &self.counts
    }

    /// Adds to `counters` the events that the front process has counted since the last call.
    pub(super) fn merge_into(&self, counters: &Counters) {
        let Self { counts, added } = self;
        // After a panic, at worst some events are added twice or not at all.
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
        // As without a front process, these time series begin with their first event.
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
    use prometheus_client::encoding::prometheus_text::encode;
    use prometheus_client::registry::Registry;

    use super::*;

    #[test]
    fn events_of_the_front_process_are_added_once() {
        let counts = FrontCounts::new().expect("memory");
        let share = FrontShare::new(counts);
        let mut registry = Registry::default();
        let counters = Counters::register(&mut registry);
        let page = || {
            share.merge_into(&counters);
            let mut text = String::new();
            encode(&mut text, &registry).expect("a String takes every line");
            text
        };
        assert!(!page().contains("gridhaul_logins_total{"), "no event yet");
        let [gssapi, tls, other] = &counts.authentications;
        let expected = [
            (&counts.sessions, "gridhaul_sessions_opened_total"),
            (
                &counts.connections_refused,
                "gridhaul_connections_refused_total",
            ),
            (&counts.commands_refused, "gridhaul_commands_refused_total"),
            (
                &counts.logins_failed,
                "gridhaul_logins_total{result=\"failure\"}",
            ),
            (&gssapi[0], &authentications("GSSAPI", SUCCESS)),
            (&gssapi[1], &authentications("GSSAPI", FAILURE)),
            (&tls[0], &authentications("TLS", SUCCESS)),
            (&tls[1], &authentications("TLS", FAILURE)),
            (&other[0], &authentications("other", SUCCESS)),
            (&other[1], &authentications("other", FAILURE)),
        ];
        for (events, (count, _)) in (1..).zip(&expected) {
            (0..events).for_each(|_| count.add_one());
        }
        page();
        counts.sessions.add_one();
        let page = page();
        for (events, (_, name)) in (1..).zip(&expected) {
            let events = events + u32::from(*name == expected[0].1);
            assert!(
                page.contains(&format!("{name} {events}\n")),
                "{name} in {page}"
            );
        }
    }

    fn authentications(mechanism: &str, result: &str) -> String {
        let labels = format!("mechanism=\"{mechanism}\",result=\"{result}\"");
        format!("gridhaul_authentications_total{{{labels}}}")
    }
}
