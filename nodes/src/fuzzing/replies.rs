//! What a node may answer a control server.

use gridhaul_storage::StorageError;
use gridhaul_transfer::{AttachError, ListenFailure, TransferError};

use super::message_of;
use crate::generated::{self as message, session_reply::Body, transfer_event::Event};
use crate::wire::{self, Moving, Sent};

/// Checks arbitrary errors, metadata, events and outcomes.
pub fn replies(input: &[u8]) {
    let Some(sent) = message_of::<message::SessionReply>(input, 2..=10) else {
        return;
    };
    match sent.body {
        Some(Body::Failure(failure)) => {
            comes_back::<StorageError>(&failure);
            comes_back::<AttachError>(&failure);
            comes_back::<ListenFailure>(&failure);
            comes_back::<TransferError>(&failure);
        }
        Some(Body::Metadata(sent)) => metadata(sent),
        Some(Body::Run(run)) => {
            for entry in run.entries {
                let name = entry.name.clone();
                if wire::to_entry(entry).is_ok() {
                    assert!(!name.is_empty() && !name.contains(&b'/'), "{name:?}");
                }
            }
        }
        Some(Body::Transfer(event)) => match event.event {
            Some(Event::Finished(sent)) => outcome(sent),
            Some(Event::Moving(sent)) => drop(Moving::try_from(sent)),
            _ => {}
        },
        _ => {}
    }
}

/// An error that was understood is understood as the same when it is sent again.
fn comes_back<E: Sent + ToString>(failure: &message::Failure) {
    let Ok(error) = failure.clone().restore::<E>() else {
        return;
    };
    let sent = message::Failure::of(&error);
    let again = sent.clone().restore::<E>();
    let again = again.unwrap_or_else(|wrong| panic!("{sent:?}: {wrong}"));
    assert_eq!(message::Failure::of(&again), sent);
}

fn metadata(sent: message::Metadata) {
    let Ok(metadata) = wire::to_metadata(sent) else {
        return;
    };
    let first = wire::metadata(&metadata);
    let again = wire::to_metadata(first.clone()).expect("metadata that was accepted");
    assert_eq!(wire::metadata(&again), first);
}

fn outcome(sent: message::Outcome) {
    let Ok(outcome) = wire::to_outcome(sent) else {
        return;
    };
    let first = wire::outcome(&outcome);
    let again = wire::to_outcome(first.clone()).expect("an outcome that was accepted");
    assert_eq!(wire::outcome(&again), first);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fuzzing::tests::over_arbitrary_bytes;

    #[test]
    fn arbitrary_replies_make_correct_values_or_none() {
        over_arbitrary_bytes(replies);
    }
}
