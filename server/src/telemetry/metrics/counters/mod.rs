//! The counters, and how events add to them.

mod channels;
mod checksums;
mod family;
mod reloads;
mod transfers;

use std::time::SystemTime;

use gridhaul_stack::Detail;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::registry::Registry;

use channels::Channels;
use checksums::Checksums;
use family::{Labels, add_to, registered};
use reloads::Reloads;
use transfers::Transfers;

use crate::telemetry::event::{Event, Transfer};

/// The counters. The time series whose labels are known begin with 0, so that a scraper sees the increase to the first event.
#[derive(Debug)]
pub(super) struct Counters {
    pub(super) sessions: Counter,
    pub(super) connections_refused: Counter,
    authentications: Family<Labels<2>, Counter>,
    logins: Family<Labels<1>, Counter>,
    pub(super) commands_refused: Counter,
    transfers: Transfers,
    channels: Channels,
    checksums: Checksums,
    reloads: Reloads,
}

/// The mechanisms of `AUTH` that are counted by name.
pub(super) const MECHANISMS: [&str; 2] = ["GSSAPI", "TLS"];
/// The label of all other mechanisms.
pub(super) const OTHER: &str = "other";

pub(super) const SUCCESS: &str = "success";
pub(super) const FAILURE: &str = "failure";

impl Counters {
    /// Creates the counters as metrics of `registry`.
    pub(super) fn register(registry: &mut Registry) -> Self {
        Self {
            sessions: registered(
                registry,
                "gridhaul_sessions_opened_total",
                "Sessions that clients opened",
            ),
            connections_refused: registered(
                registry,
                "gridhaul_connections_refused_total",
                "Control connections past max-connections, max-connections-per-address or max-startups, or with penalties",
            ),
            authentications: registered(
                registry,
                "gridhaul_authentications_total",
                "Security handshakes of control connections",
            ),
            logins: registered(registry, "gridhaul_logins_total", "Logins"),
            commands_refused: registered(
                registry,
                "gridhaul_commands_refused_total",
                "Protected commands that failed verification",
            ),
            transfers: Transfers::register(registry),
            channels: Channels::register(registry),
            checksums: Checksums::register(registry),
            reloads: Reloads::register(registry, SystemTime::now()),
        }
    }

    /// Adds a reload.
    pub(super) fn add_reload(&self, is_good: bool, now: SystemTime) {
        self.reloads.add(is_good, now);
    }

    pub(super) fn add_lost_transfer_line(&self) {
        self.transfers.lost_lines.inc();
    }

    /// Adds what drivers have counted for running transfers.
    pub(super) fn add_channel_events(&self, events: &[Detail]) {
        self.channels.add_events(events);
    }

    /// Adds an event.
    pub(super) fn add(&self, event: &Event<'_>) {
        match event {
            Event::SessionOpened { .. } => {
                self.sessions.inc();
            }
            Event::ConnectionRefused { .. } => {
                self.connections_refused.inc();
            }
            Event::Authenticated { mechanism, .. } => {
                self.add_authentications(known_mechanism(mechanism), SUCCESS, 1);
            }
            Event::AuthenticationFailed { mechanism, .. } => {
                self.add_authentications(known_mechanism(mechanism), FAILURE, 1);
            }
            Event::LoggedIn { .. } => self.add_logins(SUCCESS, 1),
            Event::LoginFailed { .. } => self.add_logins(FAILURE, 1),
            Event::ProtectionBroken { .. } => {
                self.commands_refused.inc();
            }
            Event::PortsExhausted { .. } => {
                self.transfers.ports_exhausted.inc();
            }
            Event::TransferFinished(transfer) => self.add_transfer(transfer),
            Event::ChecksumFound {
                algorithm,
                found,
                took,
                ..
            } => self.checksums.add(*algorithm, found, *took),
            _ => {}
        }
    }

    pub(super) fn add_authentications(
        &self,
        mechanism: &'static str,
        result: &'static str,
        count: u64,
    ) {
        let labels = [("mechanism", mechanism), ("result", result)];
        add_to(&self.authentications, labels, count);
    }

    pub(super) fn add_logins(&self, result: &'static str, count: u64) {
        add_to(&self.logins, [("result", result)], count);
    }

    fn add_transfer(&self, transfer: &Transfer<'_>) {
        self.transfers.add(transfer);
        self.channels
            .add_finished(transfer.details, transfer.counted);
        for (algorithm, _) in transfer.checksums {
            self.checksums.add_on_arrival(*algorithm);
        }
    }
}

/// Whole seconds, as gauges have them; 0 before 1970.
pub(super) fn seconds_since_1970(time: SystemTime) -> i64 {
    let since = time.duration_since(SystemTime::UNIX_EPOCH);
    i64::try_from(since.unwrap_or_default().as_secs()).unwrap_or(i64::MAX)
}

/// The mechanism as in `AUTH`, or `other`: clients may ask for any name.
fn known_mechanism(mechanism: &str) -> &'static str {
    MECHANISMS
        .into_iter()
        .find(|known| *known == mechanism)
        .unwrap_or(OTHER)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_from_clients_are_no_labels() {
        assert_eq!(known_mechanism("TLS"), "TLS");
        assert_eq!(known_mechanism("x\"} 1"), "other");
    }
}
