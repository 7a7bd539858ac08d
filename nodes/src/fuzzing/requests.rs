//! What a control server may send a node.

use std::path::{Component, Path};
use std::sync::Arc;

use gridhaul_protocol::ranges::RangeSet;
use gridhaul_transfer::{Companions, LineSource, TransferError};
use prost::Message as _;

use super::message_of;
use crate::generated::{self as message, session_request::Body, storage_call::Call};
use crate::wire::{self, ToRestore};

/// The directory that the node of this test serves.
const ROOT: &str = "/srv/data";

/// Checks the account of an arbitrary session, and the plan of an arbitrary transfer.
pub fn requests(input: &[u8]) {
    if let Some(changed) = changed_transfer(input) {
        plan(changed);
    }
    let Some(sent) = message_of::<message::SessionRequest>(input, 2..=13) else {
        return;
    };
    match sent.body {
        Some(Body::Attach(attach)) => account(&attach),
        Some(Body::Transfer(transfer)) => plan(transfer),
        Some(Body::Storage(call)) => path(call),
        _ => {}
    }
}

/// A correct transfer whose fields the input replaces: of two values of a field, the later one counts.
fn changed_transfer(input: &[u8]) -> Option<message::Transfer> {
    let file = message::ReceiveFile {
        path: b"/file".to_vec(),
        placement: Some(message::receive_file::Placement::At(5)),
        ..message::ReceiveFile::default()
    };
    let mut bytes = message::Transfer {
        task: Some(message::transfer::Task::ReceiveFile(file)),
        parallelism: 4,
        share: Some(message::Share {
            stripes: vec![1],
            total: 3,
            lead: true,
        }),
        ..message::Transfer::default()
    }
    .encode_to_vec();
    bytes.extend_from_slice(input);
    message::Transfer::decode(bytes.as_slice()).ok()
}

/// No session leaves the root of the node.
fn account(sent: &message::Attach) {
    let Ok(account) = wire::account(sent, Path::new(ROOT)) else {
        return;
    };
    let goes_up = account
        .root
        .components()
        .any(|part| part == Component::ParentDir);
    assert!(account.root.starts_with(ROOT) && !goes_up, "{account:?}");
}

/// A plan that a node accepts is one that a control server could have meant: sent again, it is the same plan.
fn plan(sent: message::Transfer) {
    let Ok(plan) = wire::to_plan(sent, to_restore()) else {
        return;
    };
    if let Some(share) = &plan.share {
        let distinct = share
            .stripes
            .iter()
            .collect::<std::collections::HashSet<_>>();
        assert!(
            share.stripes.iter().all(|stripe| *stripe < share.total),
            "{share:?}"
        );
        assert_eq!(distinct.len(), share.stripes.len(), "{share:?}");
    }
    let (first, _) = wire::transfer(&plan);
    let again = wire::to_plan(first.clone(), to_restore()).expect("a plan that was accepted");
    assert_eq!(wire::transfer(&again).0, first);
}

/// A path has no NUL and at most the kernel's bytes.
fn path(sent: message::StorageCall) {
    let Some(Call::Stat(of) | Call::RemoveFile(of)) = sent.call else {
        return;
    };
    if let Ok(path) = wire::to_path(&of.path) {
        assert!(!of.path.contains(&0) && of.path.len() <= 4096, "{path:?}");
        assert_eq!(wire::path(&path), of.path);
    }
}

fn to_restore() -> ToRestore {
    ToRestore {
        lines: LineSource {
            open: Arc::new(|_| Ok(Box::new(std::iter::empty()))),
        },
        companions: Arc::new(Alone),
    }
}

/// The companions of a transfer that does not run.
struct Alone;

impl Companions for Alone {
    fn opened(&self, _: &Path) {}

    fn wait(&self) -> Result<RangeSet, TransferError> {
        Ok(RangeSet::new())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fuzzing::tests::over_arbitrary_bytes;

    #[test]
    fn a_stripe_given_twice_is_refused() {
        // The field `share` with another stripe 1, which joins the one of the correct transfer.
        let changed = changed_transfer(&[0x4a, 2, 8, 1]).expect("a transfer");
        let stripes = changed.share.clone().expect("a share").stripes;
        assert_eq!(stripes, [1, 1]);
        wire::to_plan(changed, to_restore()).expect_err("twice");
    }

    #[test]
    fn arbitrary_requests_make_correct_values_or_none() {
        over_arbitrary_bytes(requests);
    }
}
