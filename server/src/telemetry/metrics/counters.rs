//! The counters, and how events add to them.

use std::borrow::Cow;
use std::sync::atomic::AtomicU64;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, SystemTime};

use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::{Metric, Registry};

use gridhaul_stack::{Detail, DetailValue};
use gridhaul_storage::{ChecksumAlgorithm, ChecksumSource, FoundChecksum};

use super::organizations::Organizations;
use crate::telemetry::event::{Event, FailureCause, Transfer, source_name};
use crate::transfer_verb::TransferVerb;

/// Names and values of `N` labels.
type Labels<const N: usize> = [(&'static str, &'static str); N];

/// A label whose value a driver made, such as the name of a device.
type Choice = [(&'static str, Cow<'static, str>); 2];

type Seconds = Counter<f64, AtomicU64>;

/// The counters.
#[derive(Debug)]
pub(super) struct Counters {
    pub(super) sessions: Counter,
    pub(super) connections_refused: Counter,
    authentications: Family<Labels<2>, Counter>,
    logins: Family<Labels<1>, Counter>,
    pub(super) commands_refused: Counter,
    transfers: Family<Labels<2>, Counter>,
    transfer_bytes: Family<Labels<1>, Counter>,
    transfer_seconds: Family<Labels<1>, Histogram, fn() -> Histogram>,
    ways: Family<Labels<1>, Counter>,
    choices: Family<Choice, Counter>,
    /// The number of `choices`.
    choice_count: Mutex<usize>,
    channel_counts: Family<Labels<1>, Counter>,
    device_counts: Family<Labels<1>, Counter>,
    data_connections_refused: Counter,
    checksums: Family<Labels<2>, Counter>,
    checksum_bytes: Family<Labels<1>, Counter>,
    checksum_seconds: Family<Labels<1>, Seconds>,
    transfer_failures: Family<Labels<1>, Counter>,
    organizations: Organizations,
    ports_exhausted: Counter,
    reloads: Family<Labels<1>, Counter>,
    last_reload_successful: Gauge,
    last_successful_reload: Gauge,
    transfer_lines_lost: Counter,
}

/// The bounds of the histogram of durations: from a small file on a local network to a copy overnight.
const SECONDS: [f64; 8] = [0.01, 0.1, 1.0, 10.0, 60.0, 600.0, 3600.0, 36000.0];

/// The mechanisms of `AUTH` that are counted by name.
pub(super) const MECHANISMS: [&str; 2] = ["GSSAPI", "TLS"];
/// The label of all other mechanisms.
pub(super) const OTHER: &str = "other";

pub(super) const SUCCESS: &str = "success";
pub(super) const FAILURE: &str = "failure";

/// The source of a checksum that was computed while the file arrived.
const ON_ARRIVAL: &str = "arrival";

impl Counters {
    /// Creates the counters as metrics of `registry`.
    pub(super) fn register(registry: &mut Registry) -> Self {
        let seconds: fn() -> Histogram = || Histogram::new(SECONDS);
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
            transfers: registered(
                registry,
                "gridhaul_transfers_total",
                "Transfers that ended, by command",
            ),
            transfer_bytes: registered(
                registry,
                "gridhaul_transfer_bytes_total",
                "Bytes of files and listings, counted when a transfer ends, in success or not",
            ),
            transfer_seconds: register(
                registry,
                "gridhaul_transfer_seconds",
                "Duration of transfers",
                Family::new_with_constructor(seconds),
            ),
            ways: registered(
                registry,
                "gridhaul_transfer_ways_total",
                "Transfers by the system call that moved the bytes, where the driver had a choice",
            ),
            choices: registered(
                registry,
                "gridhaul_transfer_choices_total",
                "Transfers by what their driver chose for their channels: its provider, a device",
            ),
            choice_count: Mutex::new(0),
            channel_counts: registered(
                registry,
                "gridhaul_channel_counts_total",
                "Counters of drivers for data channels, added when a transfer ends",
            ),
            device_counts: registered(
                registry,
                "gridhaul_device_counts_total",
                "Counters of devices while transfers used them, added when a transfer ends; simultaneous transfers each add them",
            ),
            data_connections_refused: registered(
                registry,
                "gridhaul_data_connections_refused_total",
                "Data connections from hosts that were not admitted, and failed handshakes",
            ),
            checksums: registered(
                registry,
                "gridhaul_checksums_total",
                "Checksums by source: computed on arrival of the file, from memory, from its attribute, from its content",
            ),
            checksum_bytes: registered(
                registry,
                "gridhaul_checksum_bytes_total",
                "Bytes that were read for checksums",
            ),
            checksum_seconds: registered(
                registry,
                "gridhaul_checksum_seconds_total",
                "Time to read and compute checksums, without the time in the queue",
            ),
            transfer_failures: registered(
                registry,
                "gridhaul_transfer_failures_total",
                "Transfers that failed, by the side that made them fail",
            ),
            organizations: organizations(registry),
            ports_exhausted: registered(
                registry,
                "gridhaul_data_ports_exhausted_total",
                "Data ports that could not be opened because no port was free",
            ),
            reloads: registered(
                registry,
                "gridhaul_reloads_total",
                "Reloads of the configuration",
            ),
            last_reload_successful: registered(
                registry,
                "gridhaul_last_reload_successful",
                "Whether the last reload succeeded; 1 at the start",
            ),
            last_successful_reload: registered(
                registry,
                "gridhaul_last_successful_reload_timestamp_seconds",
                "When the configuration was read successfully the last time, in seconds since 1970",
            ),
            transfer_lines_lost: registered(
                registry,
                "gridhaul_transfer_log_failures_total",
                "Transfers that could not be recorded in the transfer log",
            ),
        }
        .begun(SystemTime::now())
    }

    /// Begins the time series whose labels are known, so that a scraper sees the increase to the first event. The start has
    /// read the configuration.
    fn begun(self, now: SystemTime) -> Self {
        for cause in FailureCause::ALL {
            add_to(&self.transfer_failures, [("cause", cause.name())], 0);
        }
        for result in [SUCCESS, FAILURE] {
            add_to(&self.reloads, [("result", result)], 0);
        }
        self.note_reload(true, now);
        self
    }

    /// Adds a reload.
    pub(super) fn add_reload(&self, is_good: bool, now: SystemTime) {
        let result = if is_good { SUCCESS } else { FAILURE };
        add_to(&self.reloads, [("result", result)], 1);
        self.note_reload(is_good, now);
    }

    fn note_reload(&self, is_good: bool, now: SystemTime) {
        self.last_reload_successful.set(i64::from(is_good));
        if is_good {
            self.last_successful_reload.set(seconds_since_1970(now));
        }
    }

    pub(super) fn add_lost_transfer_line(&self) {
        self.transfer_lines_lost.inc();
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
                self.ports_exhausted.inc();
            }
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
        let result = if transfer.error.is_none() {
            SUCCESS
        } else {
            FAILURE
        };
        let labels = [("verb", transfer.verb.name()), ("result", result)];
        add_to(&self.transfers, labels, 1);
        if let Some(cause) = transfer.cause {
            add_to(&self.transfer_failures, [("cause", cause.name())], 1);
        }
        let direction = direction(transfer.verb);
        self.organizations
            .add(transfer.client.vo, direction, transfer.bytes);
        let direction = [("direction", direction)];
        self.transfer_bytes
            .get_or_create(&direction)
            .inc_by(transfer.bytes);
        self.transfer_seconds
            .get_or_create(&direction)
            .observe(transfer.seconds());
        if let Some(movement) = transfer.movement {
            add_to(&self.ways, [("way", movement.way)], 1);
        }
        for detail in transfer.details {
            self.add_detail(detail);
        }
        self.data_connections_refused
            .inc_by(transfer.refused as u64);
        for (algorithm, _) in transfer.checksums {
            let labels = [("algorithm", algorithm.name()), ("source", ON_ARRIVAL)];
            add_to(&self.checksums, labels, 1);
        }
    }

    fn add_detail(&self, detail: &Detail) {
        match &detail.value {
            DetailValue::Text(text) => self.add_choice(detail.name, text.clone()),
            DetailValue::Count(count) => {
                add_to(&self.channel_counts, [("count", detail.name)], *count);
            }
            DetailValue::Shared(count) => {
                add_to(&self.device_counts, [("count", detail.name)], *count);
            }
            DetailValue::Setting(_) | DetailValue::Holding(_) => {}
        }
    }

    fn add_checksum(&self, algorithm: ChecksumAlgorithm, found: &FoundChecksum, took: Duration) {
        let name = algorithm.name();
        let source = source_name(found.source);
        let labels = [("algorithm", name), ("source", source)];
        add_to(&self.checksums, labels, 1);
        if found.source == ChecksumSource::Content {
            let labels = [("algorithm", name)];
            let bytes = self.checksum_bytes.get_or_create(&labels);
            bytes.inc_by(found.read_bytes);
            let seconds = self.checksum_seconds.get_or_create(&labels);
            seconds.inc_by(took.as_secs_f64());
        }
    }

    fn add_choice(&self, choice: &'static str, value: Cow<'static, str>) {
        /// A bound on the time series. Machines have fewer devices, and drivers fewer other choices.
        const MOST: usize = 1000;

        let labels = [("choice", Cow::Borrowed(choice)), ("value", value)];
        // Under the lock, a new choice is counted once. A panic cannot leave a wrong count.
        let mut count = self
            .choice_count
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        let is_known = self.choices.get(&labels).is_some();
        if !is_known && *count == MOST {
            return;
        }
        *count += usize::from(!is_known);
        self.choices.get_or_create(&labels).inc();
    }
}

fn organizations(registry: &mut Registry) -> Organizations {
    let organizations = Organizations::default();
    let bytes = organizations.bytes.clone();
    let help = "Bytes of transfers by virtual organization: the first 50, others, and none";
    register(registry, "gridhaul_vo_transfer_bytes_total", help, bytes);
    organizations
}

/// Whole seconds, as gauges have them; 0 before 1970.
pub(super) fn seconds_since_1970(time: SystemTime) -> i64 {
    let since = time.duration_since(SystemTime::UNIX_EPOCH);
    i64::try_from(since.unwrap_or_default().as_secs()).unwrap_or(i64::MAX)
}

/// A new metric of `registry`.
fn registered<M: Metric + Clone + Default>(registry: &mut Registry, name: &str, help: &str) -> M {
    register(registry, name, help, M::default())
}

fn register<M: Metric + Clone>(registry: &mut Registry, name: &str, help: &str, metric: M) -> M {
    // The encoder appends the suffix of counters.
    let name = name.strip_suffix("_total").unwrap_or(name);
    registry.register(name, help, metric.clone());
    metric
}

/// Adds to one counter of a family. Adding 0 begins its time series, so that a scraper sees the increase to the first event.
fn add_to<const N: usize>(family: &Family<Labels<N>, Counter>, labels: Labels<N>, count: u64) {
    family.get_or_create(&labels).inc_by(count);
}

/// The direction of a transfer from the server's point of view.
fn direction(verb: TransferVerb) -> &'static str {
    use TransferVerb::{Appe, Eret, Esto, List, Mlsd, Mlsr, Nlst, Retr, Rrtr, Rstr, Stor, Stou};

    match verb {
        Stor | Stou | Appe | Esto | Rstr => "received",
        Retr | Eret | Rrtr | List | Nlst | Mlsd | Mlsr => "sent",
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
    use prometheus_client::encoding::prometheus_text::encode;

    use super::*;
    use crate::telemetry::Client;

    #[test]
    fn a_transfer_is_within_every_bound_that_it_keeps() {
        let mut registry = Registry::default();
        let counters = Counters::register(&mut registry);
        for seconds in [0.0, 0.05, 5.0, 1e9] {
            counters.add(&Event::TransferFinished(&sent(seconds)));
        }
        let mut text = String::new();
        encode(&mut text, &registry).expect("a String takes all");
        let bounds = SECONDS.map(|bound| bound.to_string());
        let bounds = bounds.iter().map(String::as_str).chain(["+Inf"]);
        for (bound, count) in bounds.zip([1, 2, 2, 3, 3, 3, 3, 3, 4]) {
            let line = format!("_bucket{{direction=\"sent\",le=\"{bound}\"}} {count}\n");
            assert!(text.contains(&line), "{line} in {text}");
        }
        for line in [
            "gridhaul_transfer_bytes_total{direction=\"sent\"} 40\n",
            "gridhaul_vo_transfer_bytes_total{vo=\"atlas\",direction=\"sent\"} 40\n",
            "gridhaul_transfer_seconds_sum{direction=\"sent\"} 1000000005.05\n",
            "gridhaul_transfer_seconds_count{direction=\"sent\"} 4\n",
        ] {
            assert!(text.contains(line), "{line} in {text}");
        }
    }

    /// A finished `RETR` of 10 bytes.
    fn sent(seconds: f64) -> Transfer<'static> {
        let started = SystemTime::UNIX_EPOCH;
        Transfer {
            session: 1,
            user: "alice",
            client: Client {
                vo: Some("atlas"),
                ..Client::LOCAL
            },
            verb: TransferVerb::Retr,
            path: "/file",
            started,
            finished: started + Duration::from_secs_f64(seconds),
            bytes: 10,
            channels: 1,
            stripes: 1,
            peers: &[],
            refused: 0,
            last_refusal: None,
            buffer_bytes: 0,
            block_bytes: 0,
            movement: None,
            details: &[],
            checksums: &[],
            code: 226,
            error: None,
            cause: None,
            task_id: None,
        }
    }

    #[test]
    fn a_failed_reload_keeps_the_time_of_the_last_good_one() {
        let mut registry = Registry::default();
        let counters = Counters::register(&mut registry);
        let at = |seconds| SystemTime::UNIX_EPOCH + Duration::from_secs(seconds);
        counters.add_reload(true, at(1000));
        counters.add_reload(false, at(2000));
        let mut text = String::new();
        encode(&mut text, &registry).expect("a String takes all");
        for line in [
            "gridhaul_reloads_total{result=\"success\"} 1\n",
            "gridhaul_reloads_total{result=\"failure\"} 1\n",
            "gridhaul_last_reload_successful 0\n",
            "gridhaul_last_successful_reload_timestamp_seconds 1000\n",
        ] {
            assert!(text.contains(line), "{line} in {text}");
        }
    }

    #[test]
    fn choices_are_bounded() {
        let mut registry = Registry::default();
        let counters = Counters::register(&mut registry);
        for number in 0..1100 {
            counters.add_choice("device", format!("mlx5_{number}").into());
        }
        counters.add_choice("device", "mlx5_0".into());
        let mut text = String::new();
        encode(&mut text, &registry).expect("a String takes all");
        let name = "gridhaul_transfer_choices_total{";
        assert_eq!(
            text.lines().filter(|line| line.starts_with(name)).count(),
            1000
        );
        assert!(
            text.contains("value=\"mlx5_0\"} 2\n"),
            "known choices count on"
        );
    }

    #[test]
    fn a_count_of_drivers_is_0_before_its_first_event() {
        let mut registry = Registry::default();
        let counters = Counters::register(&mut registry);
        counters.add_detail(&Detail::count("stalls", 0));
        counters.add_detail(&Detail::shared("retries", 0));
        let mut text = String::new();
        encode(&mut text, &registry).expect("a String takes all");
        for line in [
            "gridhaul_channel_counts_total{count=\"stalls\"} 0\n",
            "gridhaul_device_counts_total{count=\"retries\"} 0\n",
        ] {
            assert!(text.contains(line), "{line} in {text}");
        }
    }

    #[test]
    fn names_from_clients_are_no_labels() {
        assert_eq!(known_mechanism("TLS"), "TLS");
        assert_eq!(known_mechanism("x\"} 1"), "other");
    }
}
