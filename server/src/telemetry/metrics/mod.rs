//! Metrics for Prometheus: counters from events, and present values from a [`Snapshot`].
//!
//! `prometheus-client` counts and writes the text. Label values are constants of the program and names of devices, never names or
//! addresses that a client chose, so that the number of time series is bounded. Data nodes have the names that the administrator
//! gave them.

mod counters;
mod front;
mod gauge;
mod nodes;
mod organizations;
mod present;
mod process;

use std::time::SystemTime;

use gridhaul_stack::Detail;
use prometheus_client::encoding::prometheus_text::encode;
use prometheus_client::registry::Registry;

use counters::Counters;
use front::FrontShare;

pub(crate) use present::{ExpirySummary, Snapshot};

use super::event::Event;
use super::front_counts::FrontCounts;

/// The counters of a process, from its start on.
#[derive(Debug)]
pub(crate) enum Metrics {
    /// The front process counts in memory that it shares with the serving process.
    Front(FrontCounts),
    /// The serving process counts, and answers scrapers.
    Serving(Box<Serving>),
}

/// The metrics of the serving process.
#[derive(Debug)]
pub(crate) struct Serving {
    registry: Registry,
    counters: Counters,
    /// The counts of the front process, if there is one.
    front: Option<FrontShare>,
}

impl Default for Metrics {
    fn default() -> Self {
        Self::with_front(None)
    }
}

impl Metrics {
    /// The metrics of the serving process, with the counters of the front process if there is one.
    pub(crate) fn with_front(front: Option<FrontCounts>) -> Self {
        let mut registry = Registry::default();
        let counters = Counters::register(&mut registry);
        Self::Serving(Box::new(Serving {
            registry,
            counters,
            front: front.map(FrontShare::new),
        }))
    }

    /// The counters of the front process, in the serving process.
    pub(crate) fn front(&self) -> Option<&FrontCounts> {
        match self {
            Self::Front(_) => None,
            Self::Serving(serving) => serving.front.as_ref().map(FrontShare::counts),
        }
    }

    /// Adds an event to the counters.
    pub(crate) fn count(&self, event: &Event<'_>) {
        match self {
            Self::Front(counts) => front::count(counts, event),
            Self::Serving(serving) => serving.counters.add(event),
        }
    }

    /// Counts a reload. Only the serving process does.
    pub(crate) fn count_reload(&self, is_good: bool) {
        if let Self::Serving(serving) = self {
            serving.counters.add_reload(is_good, SystemTime::now());
        }
    }

    /// Counts what drivers have counted for running transfers since the last call.
    pub(crate) fn count_channel_events(&self, events: &[Detail]) {
        if let Self::Serving(serving) = self {
            serving.counters.add_channel_events(events);
        }
    }

    /// Counts a transfer without a line in the transfer log.
    pub(super) fn count_lost_transfer_line(&self) {
        if let Self::Serving(serving) = self {
            serving.counters.add_lost_transfer_line();
        }
    }

    /// The page for a scraper: the counters, and the values of `now`. The front process has none.
    pub(crate) fn page(&self, now: &Snapshot) -> String {
        let mut text = String::new();
        if let Self::Serving(serving) = self {
            if let Some(front) = &serving.front {
                front.merge_into(&serving.counters);
            }
            for registry in [&serving.registry, &present::registry(now)] {
                encode(&mut text, registry).expect("a String takes every line");
            }
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use gridhaul_accounts::BrokerCounts;
    use gridhaul_shares::Load;
    use gridhaul_transfer::{NodeLoad, WorkerLoad};

    use super::*;
    use crate::machine::ProcessFacts;
    use crate::version::VERSION_NUMBER;

    #[test]
    fn a_page_has_the_text_format_of_prometheus() {
        let load = Load {
            capacity: 8,
            held: 1,
            waiting: 0,
        };
        let workers = WorkerLoad {
            busy: 2,
            limit: 16,
            awaited: 3,
        };
        let page = Metrics::default().page(&Snapshot {
            sessions: 5,
            sessions_before_login: 1,
            transfers_running: 2,
            transfers_waiting: 3,
            node: NodeLoad {
                senders: workers,
                receivers: workers,
                buffer_bytes: 0,
                buffer_bytes_limit: 0,
                buffers_awaited: 0,
            },
            nodes: Vec::new(),
            file_threads: load,
            drivers: Vec::new(),
            brokers: 4,
            broker_counts: BrokerCounts {
                started: 6,
                not_started: 1,
                died: 2,
            },
            expiries: vec![ExpirySummary {
                kind: "host",
                soonest: Some(SystemTime::UNIX_EPOCH + Duration::from_secs(2_000_000_000)),
                ok: 2,
                soon: 0,
                expired: 0,
            }],
            usage: vec![(
                "front".to_owned(),
                crate::machine::Usage {
                    processor_time: Duration::from_millis(1500),
                    resident_bytes: 4096,
                },
            )],
            log_lines_lost: 3,
            process: ProcessFacts {
                open_descriptors: Some(17),
                ..ProcessFacts::default()
            },
        });
        let version = format!("gridhaul_build_info{{version=\"{VERSION_NUMBER}\"}} 1\n");
        for lines in [
            version.as_str(),
            "# HELP gridhaul_sessions_opened_total Sessions that clients opened.\n\
             # TYPE gridhaul_sessions_opened_total counter\n\
             gridhaul_sessions_opened_total 0\n",
            "# HELP gridhaul_sessions_open Control connections.\n\
             # TYPE gridhaul_sessions_open gauge\n\
             gridhaul_sessions_open 5\n",
            "# TYPE gridhaul_movers_busy gauge\n",
            "gridhaul_movers_busy{direction=\"send\"} 2\n",
            "gridhaul_movers_awaited{direction=\"receive\"} 3\n",
            "gridhaul_brokers 4\n",
            "gridhaul_brokers_started_total 6\n",
            "gridhaul_broker_failures_total{failure=\"died\"} 2\n",
            "gridhaul_certificate_expiry_timestamp_seconds{kind=\"host\"} 2000000000\n",
            "gridhaul_certificates{kind=\"host\",state=\"ok\"} 2\n",
            "gridhaul_process_cpu_seconds_total{role=\"front\"} 1.5\n",
            "gridhaul_process_resident_memory_bytes{role=\"front\"} 4096\n",
            "gridhaul_log_lines_lost_total 3\n",
            "process_open_fds 17\n",
        ] {
            assert!(page.contains(lines), "{lines} in {page}");
        }
    }
}
