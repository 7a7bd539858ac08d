//! Events and the state of a transfer.

use std::borrow::Cow;
use std::net::IpAddr;
use std::time::Duration;

use gridhaul_stack::{Detail, DetailValue, Details, Movement};
use gridhaul_transfer::{Outcome, Progress, Refusal, RunningTransfer, Survey};

use super::plan::{sums, to_sums};
use super::values::{self, WireError};
use crate::generated::{self as message, detail};
use crate::limits::FACTS;

/// The state of a running transfer.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Moving {
    pub(crate) progress: Progress,
    pub(crate) survey: Survey,
    pub(crate) settling: bool,
    pub(crate) waited: Duration,
}

impl Moving {
    pub(crate) fn of(running: &dyn RunningTransfer) -> Self {
        Self {
            progress: running.progress(),
            survey: running.survey(),
            settling: running.is_settling(),
            waited: running.waited(),
        }
    }

    /// The bytes of all stripes.
    pub(crate) fn bytes(&self) -> u64 {
        let stripes = self.progress.stripes.iter();
        stripes.fold(0, |sum, bytes| sum.saturating_add(*bytes))
    }
}

pub(crate) fn moving(state: &Moving, received: Vec<message::Range>) -> message::Moving {
    let micros = state.waited.as_micros();
    message::Moving {
        stripes: state.progress.stripes.clone(),
        received,
        total_bytes: state.survey.total_bytes,
        channels: state.survey.channels as u64,
        peers: peers(&state.survey.peers),
        details: details(&state.survey.details),
        settling: state.settling,
        waited_microseconds: u64::try_from(micros).unwrap_or(u64::MAX),
    }
}

impl TryFrom<message::Moving> for Moving {
    type Error = WireError;

    fn try_from(sent: message::Moving) -> Result<Self, WireError> {
        Ok(Self {
            progress: Progress {
                stripes: sent.stripes,
            },
            survey: Survey {
                total_bytes: sent.total_bytes,
                channels: size(sent.channels),
                peers: to_peers(&sent.peers)?,
                details: to_details(sent.details),
            },
            settling: sent.settling,
            waited: Duration::from_micros(sent.waited_microseconds),
        })
    }
}

pub(crate) fn outcome(outcome: &Outcome) -> message::Outcome {
    message::Outcome {
        failure: outcome.result.as_ref().err().map(message::Failure::of),
        bytes: outcome.bytes,
        channels: outcome.channels as u64,
        stripes: outcome.stripes as u64,
        peers: peers(&outcome.peers),
        buffer_bytes: outcome.buffer_bytes as u64,
        block_bytes: outcome.block_bytes as u64,
        movement: outcome.movement.as_ref().map(|movement| message::Movement {
            way: movement.way.to_owned(),
            reason: movement.reason.clone().into_owned(),
        }),
        details: details(&outcome.details),
        checksums: sums(&outcome.checksums),
        refused: outcome.refused as u64,
        last_refusal: outcome
            .last_refusal
            .as_ref()
            .map(|refusal| message::Refusal {
                peer: Some(values::address(refusal.peer)),
                reason: refusal.reason.clone(),
            }),
    }
}

pub(crate) fn to_outcome(sent: message::Outcome) -> Result<Outcome, WireError> {
    let last_refusal = sent.last_refusal.map(|refusal| {
        let peer = refusal
            .peer
            .as_ref()
            .ok_or_else(|| WireError::missing("peer"))?;
        Ok(Refusal {
            peer: values::to_address(peer)?,
            reason: refusal.reason,
        })
    });
    Ok(Outcome {
        result: match sent.failure {
            None => Ok(()),
            Some(failure) => Err(failure.restore()?),
        },
        bytes: sent.bytes,
        channels: size(sent.channels),
        stripes: size(sent.stripes),
        peers: to_peers(&sent.peers)?,
        buffer_bytes: size(sent.buffer_bytes),
        block_bytes: size(sent.block_bytes),
        movement: sent
            .movement
            .and_then(|movement| Movement::received(&movement.way, movement.reason)),
        details: to_details(sent.details),
        checksums: to_sums(sent.checksums)?,
        refused: size(sent.refused),
        last_refusal: last_refusal.transpose()?,
        // The cluster knows them.
        nodes: Vec::new(),
    })
}

fn size(sent: u64) -> usize {
    usize::try_from(sent).unwrap_or(usize::MAX)
}

fn peers(peers: &[IpAddr]) -> Vec<message::IpAddress> {
    let peers = peers.iter().take(FACTS).copied();
    peers.map(values::ip).collect()
}

fn to_peers(sent: &[message::IpAddress]) -> Result<Vec<IpAddr>, WireError> {
    sent.iter().map(values::to_ip).collect()
}

fn details(details: &Details) -> Vec<message::Detail> {
    let details = details.as_slice().iter().take(FACTS);
    details
        .map(|one| message::Detail {
            name: one.name.to_owned(),
            value: Some(match &one.value {
                DetailValue::Text(text) => detail::Value::Text(text.clone().into_owned()),
                DetailValue::Setting(number) => detail::Value::Setting(*number),
                DetailValue::Holding(number) => detail::Value::Holding(*number),
                DetailValue::Count(number) => detail::Value::Count(*number),
                DetailValue::Shared(number) => detail::Value::Shared(*number),
            }),
        })
        .collect()
}

/// A detail without a value, of a later version, is left out.
fn to_details(sent: Vec<message::Detail>) -> Details {
    let known = sent.into_iter().filter_map(|one| {
        let value = match one.value? {
            detail::Value::Text(text) => DetailValue::Text(Cow::Owned(text)),
            detail::Value::Setting(number) => DetailValue::Setting(number),
            detail::Value::Holding(number) => DetailValue::Holding(number),
            detail::Value::Count(number) => DetailValue::Count(number),
            detail::Value::Shared(number) => DetailValue::Shared(number),
        };
        Detail::received(&one.name, value)
    });
    Details::received(known)
}
