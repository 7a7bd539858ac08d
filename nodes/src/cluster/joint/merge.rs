//! One outcome, and one survey, of those of several members.

use std::net::IpAddr;

use gridhaul_stack::{Detail, Details};
use gridhaul_transfer::{NodePart, Outcome, Survey, TransferError};

use super::super::single::{FAILED_NODE, NODE_DETAIL};

/// The maximum number of peer addresses in the log.
const MAX_PEERS: usize = 64;

/// A transfer that has ended, for the outcome of the whole one.
#[derive(Default)]
pub(super) struct Concluded {
    /// Bytes of the upload are lost, and the lead ended before it knew.
    pub(super) is_upload_wrong: bool,
    pub(super) failure: Option<(TransferError, Option<String>)>,
    pub(super) stripes: usize,
    /// Of the members that have started, with their names; whether it is the lead.
    pub(super) outcomes: Vec<(String, bool, Box<Outcome>)>,
}

impl Concluded {
    /// A transfer of which only the failure is known.
    pub(super) fn failed(error: TransferError) -> Self {
        Self {
            failure: Some((error, None)),
            stripes: 1,
            ..Self::default()
        }
    }
}

/// The outcome of the whole transfer.
pub(super) fn merge(concluded: Concluded) -> Outcome {
    let Concluded {
        failure,
        stripes,
        outcomes,
        is_upload_wrong: _,
    } = concluded;
    let (result, failed) = match failure {
        Some((error, node)) => (Err(error), node),
        None => (Ok(()), None),
    };
    let mut merged = Outcome {
        result,
        bytes: 0,
        channels: 0,
        stripes,
        peers: Vec::new(),
        buffer_bytes: 0,
        block_bytes: 0,
        movement: None,
        details: Details::default(),
        checksums: Vec::new(),
        refused: 0,
        last_refusal: None,
        nodes: Vec::new(),
    };
    for (name, is_lead, outcome) in outcomes {
        merged.nodes.push(NodePart {
            name: name.clone(),
            peer: outcome.peers.first().copied(),
        });
        add(&mut merged, *outcome, is_lead);
        merged.details.add(&[Detail::text(NODE_DETAIL, name)], &[]);
    }
    if let Some(name) = failed {
        merged.details.add(&[Detail::text(FAILED_NODE, name)], &[]);
    }
    merged
}

fn add(merged: &mut Outcome, outcome: Outcome, is_lead: bool) {
    merged.bytes += outcome.bytes;
    merged.channels += outcome.channels;
    add_peers(&mut merged.peers, outcome.peers);
    merged.buffer_bytes = merged.buffer_bytes.max(outcome.buffer_bytes);
    merged.block_bytes = merged.block_bytes.max(outcome.block_bytes);
    if let Some(movement) = outcome.movement {
        merged.movement.get_or_insert(movement);
    }
    merged.details.add(outcome.details.as_slice(), &[]);
    if is_lead {
        merged.checksums = outcome.checksums;
    }
    merged.refused += outcome.refused;
    if outcome.last_refusal.is_some() {
        merged.last_refusal = outcome.last_refusal;
    }
}

/// What is known of the whole transfer so far.
pub(super) fn merge_surveys<'a>(
    surveys: impl Iterator<Item = Survey>,
    names: impl Iterator<Item = &'a str>,
) -> Survey {
    let mut merged = Survey::default();
    for survey in surveys {
        // A sender knows the total of its stripes; of the receivers only the lead knows one.
        if let Some(bytes) = survey.total_bytes {
            let total = merged.total_bytes.unwrap_or(0);
            merged.total_bytes = Some(total.saturating_add(bytes));
        }
        merged.channels += survey.channels;
        add_peers(&mut merged.peers, survey.peers);
        merged.details.add(survey.details.as_slice(), &[]);
    }
    for name in names {
        merged
            .details
            .add(&[Detail::text(NODE_DETAIL, name.to_owned())], &[]);
    }
    merged
}

fn add_peers(merged: &mut Vec<IpAddr>, peers: Vec<IpAddr>) {
    for peer in peers {
        if merged.len() < MAX_PEERS && !merged.contains(&peer) {
            merged.push(peer);
        }
    }
}
