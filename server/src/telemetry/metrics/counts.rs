//! The counters, and how events add to them.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::time::Duration;

use gridhaul_stack::DetailValue;
use gridhaul_storage::{ChecksumAlgorithm, ChecksumSource, FoundChecksum};

use crate::telemetry::event::{Event, Transfer, source_name};
use crate::telemetry::front_counts::FrontCounts;
use crate::transfer_verb::TransferVerb;

/// Counters by the values of two labels.
type Pairs = BTreeMap<[&'static str; 2], u64>;

/// The counters.
#[derive(Debug, Clone, Default)]
pub(super) struct Counts {
    pub(super) sessions: u64,
    pub(super) connections_refused: u64,
    /// By mechanism and result.
    pub(super) authentications: Pairs,
    /// By result.
    pub(super) logins: BTreeMap<&'static str, u64>,
    pub(super) commands_refused: u64,
    /// By verb and result.
    pub(super) transfers: Pairs,
    /// By direction.
    pub(super) directions: BTreeMap<&'static str, Moved>,
    /// By the way that drivers chose.
    pub(super) ways: BTreeMap<&'static str, u64>,
    /// By what drivers chose for channels, in words.
    pub(super) choices: BTreeMap<(&'static str, Cow<'static, str>), u64>,
    /// What drivers counted on channels.
    pub(super) channel_counts: BTreeMap<&'static str, u64>,
    /// What was counted of devices that others use as well.
    pub(super) device_counts: BTreeMap<&'static str, u64>,
    pub(super) data_connections_refused: u64,
    /// By algorithm and where they come from.
    pub(super) checksums: Pairs,
    /// By algorithm.
    pub(super) read_for_checksums: BTreeMap<&'static str, Read>,
}

/// The bytes that were read for checksums of one algorithm.
#[derive(Debug, Clone, Default)]
pub(super) struct Read {
    pub(super) bytes: u64,
    pub(super) seconds: f64,
}

/// All transfers of one direction.
#[derive(Debug, Clone, Default)]
pub(super) struct Moved {
    pub(super) bytes: u64,
    pub(super) seconds: f64,
    /// Transfers within each bound of [`SECONDS`]; the last one counts all.
    pub(super) within: [u64; SECONDS.len() + 1],
}

/// The bounds of the histogram of durations: from a small file on a local network to a copy overnight.
pub(super) const SECONDS: [f64; 8] = [0.01, 0.1, 1.0, 10.0, 60.0, 600.0, 3600.0, 36000.0];

const MECHANISMS: [&str; 2] = ["GSSAPI", "TLS"];
const OTHER: &str = "other";

const SUCCESS: &str = "success";
const FAILURE: &str = "failure";

/// The source of a checksum that was computed while the file arrived.
const ON_ARRIVAL: &str = "arrival";

impl Counts {
    /// Adds an event.
    pub(super) fn add(&mut self, event: &Event<'_>) {
        match event {
            Event::SessionOpened { .. } => self.sessions += 1,
            Event::ConnectionRefused { .. } => self.connections_refused += 1,
            Event::Authenticated { mechanism, .. } => {
                let labels = [known_mechanism(mechanism), SUCCESS];
                *self.authentications.entry(labels).or_default() += 1;
            }
            Event::AuthenticationFailed { mechanism, .. } => {
                let labels = [known_mechanism(mechanism), FAILURE];
                *self.authentications.entry(labels).or_default() += 1;
            }
            Event::LoggedIn { .. } => *self.logins.entry(SUCCESS).or_default() += 1,
            Event::LoginFailed { .. } => *self.logins.entry(FAILURE).or_default() += 1,
            Event::ProtectionBroken { .. } => self.commands_refused += 1,
            Event::TransferFinished(transfer) => self.add_transfer(transfer),
            Event::ChecksumFound {
                algorithm,
                found,
                took,
                ..
            } => self.add_checksum(*algorithm, found, *took),
            _ => {}
        }
    }

    /// These counters with those of the front process.
    pub(super) fn with(mut self, front: &FrontCounts) -> Self {
        self.sessions += front.sessions.value();
        self.connections_refused += front.connections_refused.value();
        self.commands_refused += front.commands_refused.value();
        let mechanisms = MECHANISMS.into_iter().chain([OTHER]);
        for (mechanism, results) in mechanisms.zip(&front.authentications) {
            for (result, count) in [SUCCESS, FAILURE].into_iter().zip(results) {
                // A row is there when something was counted.
                if count.value() > 0 {
                    *self.authentications.entry([mechanism, result]).or_default() += count.value();
                }
            }
        }
        if front.logins_failed.value() > 0 {
            *self.logins.entry(FAILURE).or_default() += front.logins_failed.value();
        }
        self
    }

    fn add_transfer(&mut self, transfer: &Transfer<'_>) {
        let result = if transfer.error.is_none() {
            SUCCESS
        } else {
            FAILURE
        };
        let labels = [transfer.verb.name(), result];
        *self.transfers.entry(labels).or_default() += 1;
        let direction = self.directions.entry(direction(transfer.verb));
        direction
            .or_default()
            .add(transfer.bytes, transfer.seconds());
        if let Some(movement) = transfer.movement {
            *self.ways.entry(movement.way).or_default() += 1;
        }
        for detail in transfer.details {
            match &detail.value {
                DetailValue::Text(text) => self.count_choice(detail.name, text.clone()),
                DetailValue::Count(count) => {
                    *self.channel_counts.entry(detail.name).or_default() += count;
                }
                DetailValue::Shared(count) => {
                    *self.device_counts.entry(detail.name).or_default() += count;
                }
                DetailValue::Setting(_) | DetailValue::Holding(_) => {}
            }
        }
        self.data_connections_refused += transfer.refused as u64;
        for (algorithm, _) in transfer.checksums {
            *self
                .checksums
                .entry([algorithm.name(), ON_ARRIVAL])
                .or_default() += 1;
        }
    }

    fn add_checksum(
        &mut self,
        algorithm: ChecksumAlgorithm,
        found: &FoundChecksum,
        took: Duration,
    ) {
        let name = algorithm.name();
        let labels = [name, source_name(found.source)];
        *self.checksums.entry(labels).or_default() += 1;
        if found.source == ChecksumSource::Content {
            let read = self.read_for_checksums.entry(name).or_default();
            read.bytes += found.read_bytes;
            read.seconds += took.as_secs_f64();
        }
    }

    fn count_choice(&mut self, name: &'static str, text: Cow<'static, str>) {
        /// A bound on the time series. Machines have fewer devices, and drivers fewer other choices.
        const MOST: usize = 1000;

        let choice = (name, text);
        if self.choices.len() < MOST || self.choices.contains_key(&choice) {
            *self.choices.entry(choice).or_default() += 1;
        }
    }
}

impl Moved {
    fn add(&mut self, bytes: u64, seconds: f64) {
        self.bytes += bytes;
        self.seconds += seconds;
        let bounds = SECONDS.iter().copied().chain([f64::INFINITY]);
        for (count, bound) in self.within.iter_mut().zip(bounds) {
            *count += u64::from(seconds <= bound);
        }
    }
}

/// Where the bytes of a transfer go, as the server sees it.
fn direction(verb: TransferVerb) -> &'static str {
    use TransferVerb::{Appe, Eret, Esto, List, Mlsd, Mlsr, Nlst, Retr, Rrtr, Rstr, Stor, Stou};

    match verb {
        Stor | Appe | Esto | Rstr => "received",
        Retr | Eret | Rrtr | Stou | List | Nlst | Mlsd | Mlsr => "sent",
    }
}

/// Counts an event of the front process.
pub(super) fn count_in_front(counts: &FrontCounts, event: &Event<'_>) {
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
    fn a_transfer_is_within_every_bound_that_it_keeps() {
        let mut moved = Moved::default();
        for seconds in [0.0, 0.05, 5.0, 1e9] {
            moved.add(10, seconds);
        }
        assert_eq!(moved.bytes, 40);
        assert_eq!(moved.within, [1, 2, 2, 3, 3, 3, 3, 3, 4]);
    }

    #[test]
    fn what_clients_make_up_is_no_label() {
        assert_eq!(known_mechanism("TLS"), "TLS");
        assert_eq!(known_mechanism("x\"} 1"), "other");
    }
}
