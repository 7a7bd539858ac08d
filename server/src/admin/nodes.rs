//! The data nodes of the server: what is known of them, and drains by administrators.

use gridhaul_nodes::cluster::{Cluster, MemberReport, MemberState, NoMember};
use gridhaul_nodes::{CardLoad, NodeFacts, Traffic};
use serde::Deserialize;
use tracing::warn;

use crate::config::NodeAddress;
use crate::status::{
    CardStatus, NodeError, NodeLoadStatus, NodeState, NodeStatus, NodeTold, NodeTraffic, utc,
};

/// The body of `/api/nodes/drain` and `/api/nodes/resume`.
#[derive(Debug, Deserialize)]
pub(super) struct Named {
    node: String,
}

/// Drains a node for this server, or ends that. The error is for the administrator.
pub(super) fn set_drained(
    cluster: Option<&Cluster>,
    named: &Named,
    drained: bool,
    by: &str,
) -> Result<NodeStatus, String> {
    let cluster =
        cluster.ok_or("this server has no data nodes: its configuration has no key nodes")?;
    let set = |name: &str| match drained {
        true => cluster.drain(name),
        false => cluster.resume(name),
    };
    let node = set(&named.node)
        .or_else(|error| with_port(&named.node, error, set))
        .map_err(|error| error.to_string())?;
    let (name, sessions, transfers) = (&node.name, node.sessions, node.transfers);
    if drained {
        warn!(
            node = name,
            sessions, transfers, by, "an administrator drains a data node"
        );
    } else {
        warn!(node = name, by, "an administrator resumes a data node");
    }
    Ok(status(node))
}

/// The name may lack the port, as in the configuration.
fn with_port<T>(
    name: &str,
    error: NoMember,
    set: impl Fn(&str) -> Result<T, NoMember>,
) -> Result<T, NoMember> {
    match name.parse::<NodeAddress>() {
        Ok(address) => set(&address.to_string()),
        Err(_) => Err(error),
    }
}

/// All nodes.
pub(super) fn list(cluster: &Cluster) -> Vec<NodeStatus> {
    cluster.members().into_iter().map(status).collect()
}

fn status(member: MemberReport) -> NodeStatus {
    let (state, reason) = state(&member);
    let since = match (state, member.drained) {
        (NodeState::Draining, Some(drained)) => drained,
        _ => member.since,
    };
    NodeStatus {
        state,
        since: utc(since),
        reason,
        drained: member.drained.is_some(),
        last_error: member.last_error.as_ref().map(|error| NodeError {
            time: utc(error.time),
            reason: error.reason.clone(),
        }),
        losses: member.losses,
        addresses: member.facts.as_ref().map_or_else(Vec::new, |facts| {
            facts.addresses.iter().map(ToString::to_string).collect()
        }),
        told: member.facts.as_deref().map(told),
        sessions: member.sessions,
        transfers: member.transfers,
        bytes_per_second: traffic(member.bytes_per_second),
        bytes: traffic(member.bytes),
        load: load(&member),
        name: member.name,
    }
}

fn state(member: &MemberReport) -> (NodeState, Option<String>) {
    match &member.state {
        MemberState::Down { reason, .. } => (NodeState::Down, Some(reason.clone())),
        MemberState::Same { name } => (NodeState::Same, Some(format!("the same node as {name}"))),
        MemberState::Draining => (NodeState::Draining, Some("the node is ending".to_owned())),
        MemberState::Up if member.drained.is_some() => (
            NodeState::Draining,
            Some(
                "an administrator of this server has drained it: until nodes resume, or a restart or upgrade of this server"
                    .to_owned(),
            ),
        ),
        MemberState::Up => (NodeState::Up, None),
    }
}

fn told(facts: &NodeFacts) -> NodeTold {
    NodeTold {
        version: facts.version.clone(),
        host: facts.host.clone(),
        stack: facts.stack.clone(),
        drivers: facts.drivers.clone(),
        clock_ahead_seconds: facts.clock_ahead_ms as f64 / 1000.0,
    }
}

fn load(member: &MemberReport) -> NodeLoadStatus {
    let (load, machine) = (&member.load, &member.machine);
    NodeLoadStatus {
        sessions: machine.sessions,
        transfers: machine.transfers,
        senders_busy: load.senders.busy,
        receivers_busy: load.receivers.busy,
        workers_limit: load.senders.limit,
        workers_awaited: load.senders.awaited.saturating_add(load.receivers.awaited),
        buffer_bytes: load.buffer_bytes,
        buffer_bytes_limit: load.buffer_bytes_limit,
        ring_bytes: machine.ring_bytes,
        ring_bytes_limit: machine.ring_bytes_limit,
        cards: machine.cards.iter().map(card).collect(),
    }
}

fn card(card: &CardLoad) -> CardStatus {
    CardStatus {
        name: card.name.clone(),
        bytes_per_second: traffic(card.traffic),
        link_bytes_per_second: card.link,
    }
}

fn traffic(moved: Traffic) -> NodeTraffic {
    NodeTraffic {
        received: moved.received,
        sent: moved.sent,
    }
}
