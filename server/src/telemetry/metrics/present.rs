//! The gauges: values at the moment when a scraper asks.

use std::time::SystemTime;

use gridhaul_accounts::BrokerCounts;
use prometheus_client::metrics::counter::{ConstCounter, Counter};
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::{ConstGauge, Gauge};
use prometheus_client::metrics::info::Info;
use prometheus_client::registry::Registry;

use gridhaul_nodes::cluster::MemberReport;
use gridhaul_shares::Load;
use gridhaul_stack::GaugeValues;
use gridhaul_transfer::NodeLoad;

use super::counters::seconds_since_1970;
use super::gauge::gauge_value;
use super::{nodes, process};
use crate::machine::{ProcessFacts, Usage};
use crate::version::VERSION_NUMBER;

/// The present values of what is not counted by events.
#[derive(Debug)]
pub(crate) struct Snapshot {
    /// Control connections.
    pub(crate) sessions: usize,
    /// Control connections that have not logged in.
    pub(crate) sessions_before_login: usize,
    pub(crate) transfers_running: usize,
    pub(crate) transfers_waiting: usize,
    pub(crate) node: NodeLoad,
    /// Data nodes on other machines.
    pub(crate) nodes: Vec<MemberReport>,
    /// Threads for work on files.
    pub(crate) file_threads: Load,
    /// Values that drivers report.
    pub(crate) drivers: Vec<gridhaul_stack::Gauge>,
    /// Processes that act for local accounts.
    pub(crate) brokers: usize,
    /// What has happened to those processes since the start.
    pub(crate) broker_counts: BrokerCounts,
    /// When certificates and revocation lists end, by kind.
    pub(crate) expiries: Vec<ExpirySummary>,
    /// Log lines that could not be written.
    pub(crate) log_lines_lost: u64,
    pub(crate) process: ProcessFacts,
    /// What the processes of the server take, by role.
    pub(crate) usage: Vec<(String, Usage)>,
}

/// The certificates or revocation lists of one kind.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct ExpirySummary {
    /// The label.
    pub(crate) kind: &'static str,
    /// The soonest end; of authorities and lists, the soonest in the future.
    pub(crate) soonest: Option<SystemTime>,
    /// Those that end later.
    pub(crate) ok: usize,
    /// Those that should have been renewed by now.
    pub(crate) soon: usize,
    pub(crate) expired: usize,
}

/// The gauges with the values of `now`.
pub(super) fn registry(now: &Snapshot) -> Registry {
    let mut gauges = Gauges::default();
    let version = Info::new([("version", VERSION_NUMBER)]);
    // The encoder appends the suffix.
    let name = "gridhaul_build_info".trim_end_matches("_info");
    let help = "The version of the server; always 1";
    gauges.0.register(name, help, version);
    sessions(&mut gauges, now);
    workers(&mut gauges, &now.node);
    file_threads(&mut gauges, &now.file_threads);
    nodes::register(&mut gauges.0, &now.nodes);
    drivers(&mut gauges, &now.drivers);
    gauges.single(
        "gridhaul_brokers",
        "Processes that act for local accounts",
        now.brokers,
    );
    expiries(&mut gauges, &now.expiries);
    counts(&mut gauges.0, now);
    process::register(&mut gauges.0, &now.process);
    process::register_usage(&mut gauges.0, &now.usage);
    gauges.0
}

fn sessions(gauges: &mut Gauges, now: &Snapshot) {
    gauges.single(
        "gridhaul_sessions_open",
        "Control connections",
        now.sessions,
    );
    gauges.single(
        "gridhaul_sessions_before_login",
        "Control connections that have not logged in",
        now.sessions_before_login,
    );
    gauges.single(
        "gridhaul_transfers_running",
        "Transfers and listings that run",
        now.transfers_running,
    );
    gauges.single(
        "gridhaul_transfers_waiting",
        "Transfers that wait because max-transfers, or as many as the processors can serve, are running",
        now.transfers_waiting,
    );
}

fn workers(gauges: &mut Gauges, load: &NodeLoad) {
    gauges.by(
        ("gridhaul_movers_busy", "direction"),
        "Data channels that have a worker thread",
        [
            ("send", load.senders.busy),
            ("receive", load.receivers.busy),
        ],
    );
    gauges.by(
        ("gridhaul_movers_awaited", "direction"),
        "Transfers that wait for a worker thread",
        [
            ("send", load.senders.awaited),
            ("receive", load.receivers.awaited),
        ],
    );
    gauges.single(
        "gridhaul_movers_limit",
        "Worker threads that may be busy in each direction",
        load.senders.limit,
    );
    gauges.single(
        "gridhaul_buffer_bytes",
        "Memory of buffers that worker threads hold, in bytes",
        load.buffer_bytes,
    );
    gauges.single(
        "gridhaul_buffer_bytes_limit",
        "Memory that buffers may take together, in bytes",
        load.buffer_bytes_limit,
    );
    gauges.single(
        "gridhaul_buffers_awaited",
        "Data channels that wait for a buffer",
        load.buffers_awaited,
    );
}

fn file_threads(gauges: &mut Gauges, load: &Load) {
    gauges.single(
        "gridhaul_file_threads_busy",
        "Threads that work on files, apart from transfers",
        load.held,
    );
    gauges.single(
        "gridhaul_file_threads_awaited",
        "Commands that wait for a thread that works on files",
        load.waiting,
    );
    gauges.single(
        "gridhaul_file_threads_limit",
        "Threads that may work on files",
        load.capacity,
    );
}

fn expiries(gauges: &mut Gauges, expiries: &[ExpirySummary]) {
    let ends = expiries
        .iter()
        .filter_map(|one| Some((one.kind, seconds_since_1970(one.soonest?))));
    gauges.by(
        ("gridhaul_certificate_expiry_timestamp_seconds", "kind"),
        "The soonest end of a certificate of the host, of an authority, of a revocation list and of a delegated credential, \
         in seconds since 1970; expired authorities and lists are left out",
        ends,
    );
    let family = Family::<[(&str, &str); 2], Gauge<i64>>::default();
    for one in expiries {
        for (state, count) in [("ok", one.ok), ("soon", one.soon), ("expired", one.expired)] {
            let gauge = family.get_or_create(&[("kind", one.kind), ("state", state)]);
            gauge.set(gauge_value(count));
        }
    }
    let help =
        "Certificates and revocation lists by state; soon: they should have been renewed by now";
    gauges.0.register("gridhaul_certificates", help, family);
}

/// Counters that other parts of the server keep.
fn counts(registry: &mut Registry, now: &Snapshot) {
    let mut counter = |name: &str, help: &str, value| {
        // The encoder appends the suffix.
        let name = name.trim_end_matches("_total");
        registry.register(name, help, ConstCounter::new(value));
    };
    counter(
        "gridhaul_log_lines_lost_total",
        "Log lines of the serving process that could not be written",
        now.log_lines_lost,
    );
    counter(
        "gridhaul_brokers_started_total",
        "Processes that were started to act for local accounts",
        now.broker_counts.started,
    );
    let failures = Family::<[(&str, &str); 1], Counter>::default();
    for (failure, count) in [
        ("start", now.broker_counts.not_started),
        ("died", now.broker_counts.died),
    ] {
        failures
            .get_or_create(&[("failure", failure)])
            .inc_by(count);
    }
    let name = "gridhaul_broker_failures_total".trim_end_matches("_total");
    let help = "Processes for local accounts that could not be started, or died during a call";
    registry.register(name, help, failures);
}

/// The values that drivers report.
fn drivers(gauges: &mut Gauges, reported: &[gridhaul_stack::Gauge]) {
    for gauge in reported {
        match gauge.values {
            GaugeValues::Single(value) => gauges.single(gauge.name, gauge.help, value),
            GaugeValues::Count(events) => gauges.count(gauge.name, gauge.help, events),
            GaugeValues::ByLabel(label, ref values) => {
                let values = values.iter().copied();
                gauges.by((gauge.name, label), gauge.help, values);
            }
        }
    }
}

/// A registry of gauges.
#[derive(Debug, Default)]
struct Gauges(Registry);

impl Gauges {
    /// Adds a gauge.
    fn single(&mut self, name: &str, help: &str, value: impl TryInto<i64>) {
        self.0
            .register(name, help, ConstGauge::new(gauge_value(value)));
    }

    /// Adds a counter, whose name ends with `_total`.
    fn count(&mut self, name: &str, help: &str, events: u64) {
        // The encoder appends it.
        let name = name.trim_end_matches("_total");
        self.0.register(name, help, ConstCounter::new(events));
    }

    /// Adds gauges that one label tells apart.
    fn by(
        &mut self,
        (name, label): (&str, &'static str),
        help: &str,
        values: impl IntoIterator<Item = (&'static str, impl TryInto<i64>)>,
    ) {
        let family = Family::<[(&str, &str); 1], Gauge<i64>>::default();
        for (word, value) in values {
            let gauge = family.get_or_create(&[(label, word)]);
            gauge.set(gauge_value(value));
        }
        self.0.register(name, help, family);
    }
}
