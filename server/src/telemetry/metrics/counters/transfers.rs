//! Counters of transfers.

use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Registry;

use super::family::{Labels, add_to, register, registered};
use super::{FAILURE, SUCCESS};
use crate::telemetry::event::{FailureCause, Transfer};
use crate::telemetry::metrics::organizations::Organizations;
use crate::transfer_verb::TransferVerb;

#[derive(Debug)]
pub(super) struct Transfers {
    all: Family<Labels<2>, Counter>,
    bytes: Family<Labels<1>, Counter>,
    seconds: Family<Labels<1>, Histogram, fn() -> Histogram>,
    ways: Family<Labels<1>, Counter>,
    refused_connections: Counter,
    failures: Family<Labels<1>, Counter>,
    organizations: Organizations,
    pub(super) ports_exhausted: Counter,
    pub(super) lost_lines: Counter,
}

/// The bounds of the histogram of durations: from a small file on a local network to a copy overnight.
const SECONDS: [f64; 8] = [0.01, 0.1, 1.0, 10.0, 60.0, 600.0, 3600.0, 36000.0];

impl Transfers {
    pub(super) fn register(registry: &mut Registry) -> Self {
        let seconds: fn() -> Histogram = || Histogram::new(SECONDS);
        let transfers = Self {
            all: registered(
                registry,
                "gridhaul_transfers_total",
                "Transfers that ended, by command",
            ),
            bytes: registered(
                registry,
                "gridhaul_transfer_bytes_total",
                "Bytes of files and listings, counted when a transfer ends, in success or not",
            ),
            seconds: register(
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
            refused_connections: registered(
                registry,
                "gridhaul_data_connections_refused_total",
                "Data connections from hosts that were not admitted, and failed handshakes",
            ),
            failures: registered(
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
            lost_lines: registered(
                registry,
                "gridhaul_transfer_log_failures_total",
                "Transfers that could not be recorded in the transfer log",
            ),
        };
        for cause in FailureCause::ALL {
            add_to(&transfers.failures, [("cause", cause.name())], 0);
        }
        transfers
    }

    pub(super) fn add(&self, transfer: &Transfer<'_>) {
        let result = if transfer.error.is_none() {
            SUCCESS
        } else {
            FAILURE
        };
        let labels = [("verb", transfer.verb.name()), ("result", result)];
        add_to(&self.all, labels, 1);
        if let Some(cause) = transfer.cause {
            add_to(&self.failures, [("cause", cause.name())], 1);
        }
        let direction = direction(transfer.verb);
        self.organizations
            .add(transfer.client.vo, direction, transfer.bytes);
        let direction = [("direction", direction)];
        self.bytes.get_or_create(&direction).inc_by(transfer.bytes);
        self.seconds
            .get_or_create(&direction)
            .observe(transfer.seconds());
        if let Some(movement) = transfer.movement {
            add_to(&self.ways, [("way", movement.way)], 1);
        }
        self.refused_connections.inc_by(transfer.refused as u64);
    }
}

fn organizations(registry: &mut Registry) -> Organizations {
    let organizations = Organizations::default();
    let bytes = organizations.bytes.clone();
    let help = "Bytes of transfers by virtual organization: the first 50, others, and none";
    register(registry, "gridhaul_vo_transfer_bytes_total", help, bytes);
    organizations
}

/// The direction of a transfer from the server's point of view.
fn direction(verb: TransferVerb) -> &'static str {
    use TransferVerb::{Appe, Eret, Esto, List, Mlsd, Mlsr, Nlst, Retr, Rrtr, Rstr, Stor, Stou};

    match verb {
        Stor | Stou | Appe | Esto | Rstr => "received",
        Retr | Eret | Rrtr | List | Nlst | Mlsd | Mlsr => "sent",
    }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, SystemTime};

    use super::super::family::page;
    use super::*;
    use crate::telemetry::Client;

    #[test]
    fn a_transfer_is_within_every_bound_that_it_keeps() {
        let mut registry = Registry::default();
        let transfers = Transfers::register(&mut registry);
        for seconds in [0.0, 0.05, 5.0, 1e9] {
            transfers.add(&sent(seconds));
        }
        let text = page(&registry);
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
            nodes: &[],
            refused: 0,
            last_refusal: None,
            buffer_bytes: 0,
            block_bytes: 0,
            movement: None,
            details: &[],
            counted: &[],
            checksums: &[],
            code: 226,
            error: None,
            cause: None,
            task_id: None,
        }
    }
}
