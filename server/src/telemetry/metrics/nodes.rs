//! Data nodes. The label is the name that the administrator gave a node.

use std::sync::atomic::AtomicU64;

use gridhaul_nodes::Traffic;
use gridhaul_nodes::cluster::{MemberReport, MemberState};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::{Metric, Registry};

use super::gauge::gauge_value;

/// Names and values of `N` labels.
type Labels<const N: usize> = [(&'static str, String); N];

/// Adds the metrics of nodes. A server without nodes has none.
pub(super) fn register(registry: &mut Registry, nodes: &[MemberReport]) {
    if nodes.is_empty() {
        return;
    }
    let mut all = NodeMetrics { registry, nodes };
    all.state();
    all.load();
    all.traffic();
}

struct NodeMetrics<'a> {
    registry: &'a mut Registry,
    nodes: &'a [MemberReport],
}

impl NodeMetrics<'_> {
    fn state(&mut self) {
        self.gauges(
            "gridhaul_node_up",
            "Whether the data node answers, and is used under this name",
            |node| matches!(node.state, MemberState::Up | MemberState::Draining).into(),
        );
        self.gauges(
            "gridhaul_node_draining",
            "Whether the data node gets no new sessions and transfers, because it ends or an administrator of this server has drained it",
            |node| (node.state == MemberState::Draining || node.drained.is_some()).into(),
        );
        self.counters(
            "gridhaul_node_losses_total",
            "How often the data node was lost after it had answered",
            |node| node.losses,
        );
        let clocks = Family::<Labels<1>, Gauge<f64, AtomicU64>>::default();
        for node in self.nodes {
            if let Some(facts) = &node.facts {
                let seconds = facts.clock_ahead_ms as f64 / 1000.0;
                clocks.get_or_create(&label(node)).set(seconds);
            }
        }
        self.registry.register(
            "gridhaul_node_clock_ahead_seconds",
            "How far the clock of the data node was ahead of that of this machine when it was connected to",
            clocks,
        );
    }

    fn load(&mut self) {
        self.gauges(
            "gridhaul_node_sessions",
            "Sessions of this server whose files the data node opens",
            |node| gauge_value(node.sessions),
        );
        self.gauges(
            "gridhaul_node_transfers",
            "Transfers of this server on the data node, and data ports that wait for one",
            |node| gauge_value(node.transfers),
        );
        self.directions(
            "gridhaul_node_movers_busy",
            "Data channels that have a worker thread on the data node, of all control servers",
            ["receive", "send"],
            |node| {
                [
                    node.load.receivers.busy as u64,
                    node.load.senders.busy as u64,
                ]
            },
        );
        self.gauges(
            "gridhaul_node_movers_limit",
            "Worker threads of the data node that may be busy in each direction",
            |node| gauge_value(node.load.senders.limit),
        );
        self.gauges(
            "gridhaul_node_buffer_bytes",
            "Memory of buffers on the data node, in bytes",
            |node| gauge_value(node.load.buffer_bytes),
        );
        self.gauges(
            "gridhaul_node_buffer_bytes_limit",
            "Memory that buffers of the data node may take, in bytes",
            |node| gauge_value(node.load.buffer_bytes_limit),
        );
        self.gauges(
            "gridhaul_node_ring_bytes",
            "Memory of RDMA rings on the data node, in bytes",
            |node| gauge_value(node.machine.ring_bytes),
        );
        self.gauges(
            "gridhaul_node_ring_bytes_limit",
            "Memory that RDMA rings of the data node may take, in bytes",
            |node| gauge_value(node.machine.ring_bytes_limit),
        );
    }

    fn traffic(&mut self) {
        const DIRECTIONS: [&str; 2] = ["received", "sent"];
        let both = |traffic: Traffic| [traffic.received, traffic.sent];
        let family = Family::<Labels<2>, Counter>::default();
        for node in self.nodes {
            for (direction, bytes) in DIRECTIONS.into_iter().zip(both(node.ended_bytes)) {
                let counter = family.get_or_create(&direction_of(node, direction));
                counter.inc_by(bytes);
            }
        }
        self.counter(
            "gridhaul_node_transfer_bytes_total",
            "Bytes of transfers of this server on the data node that have ended",
            family,
        );
        self.directions(
            "gridhaul_node_bytes_per_second",
            "Bytes per second of transfers of this server on the data node, over the last seconds",
            DIRECTIONS,
            |node| both(node.bytes_per_second),
        );
        self.directions(
            "gridhaul_node_card_bytes_per_second",
            "Bytes per second of the network cards that have the data addresses of the data node, with other traffic",
            DIRECTIONS,
            |node| {
                let cards = node.machine.cards.iter().map(|card| card.traffic);
                both(cards.fold(Traffic::default(), Traffic::plus))
            },
        );
    }

    fn gauges(&mut self, name: &str, help: &str, value: impl Fn(&MemberReport) -> i64) {
        let family = Family::<Labels<1>, Gauge<i64>>::default();
        for node in self.nodes {
            family.get_or_create(&label(node)).set(value(node));
        }
        self.registry.register(name, help, family);
    }

    fn counters(&mut self, name: &str, help: &str, value: impl Fn(&MemberReport) -> u64) {
        let family = Family::<Labels<1>, Counter>::default();
        for node in self.nodes {
            family.get_or_create(&label(node)).inc_by(value(node));
        }
        self.counter(name, help, family);
    }

    fn counter(&mut self, name: &str, help: &str, counter: impl Metric) {
        // The encoder appends the suffix.
        let name = name.trim_end_matches("_total");
        self.registry.register(name, help, counter);
    }

    fn directions(
        &mut self,
        name: &str,
        help: &str,
        directions: [&'static str; 2],
        values: impl Fn(&MemberReport) -> [u64; 2],
    ) {
        let family = Family::<Labels<2>, Gauge<i64>>::default();
        for node in self.nodes {
            for (direction, value) in directions.into_iter().zip(values(node)) {
                let gauge = family.get_or_create(&direction_of(node, direction));
                gauge.set(gauge_value(value));
            }
        }
        self.registry.register(name, help, family);
    }
}

fn label(node: &MemberReport) -> Labels<1> {
    [("node", node.name.clone())]
}

fn direction_of(node: &MemberReport, direction: &str) -> Labels<2> {
    let [node] = label(node);
    [node, ("direction", direction.to_owned())]
}
