//! A transfer on one member: its plan is passed on as it is, and its transfer handed out as it is.

use std::sync::{Arc, Mutex};

use gridhaul_stack::Detail;
use gridhaul_transfer::{
    Event, EventSink, NodePart, Outcome, Plan, RunningTransfer, TransferError,
};

use super::attachments::Attached;
use super::member::Counted;
use super::meter::Way;
use crate::sync::lock;

/// The name of the detail with the members of a transfer, for the log.
pub const NODE_DETAIL: &str = "node";

/// The name of the detail with the member that failed first.
pub(super) const FAILED_NODE: &str = "failed-node";

/// Where a transfer starts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Start {
    /// [`gridhaul_transfer::NodeSession::transfer`].
    Anywhere,
    /// [`gridhaul_transfer::NodeSession::transfer_here`].
    LocalAddress,
}

/// Starts a transfer on a member. `counted` is dropped at its end.
pub(super) fn run(
    attached: &Attached,
    counted: Counted,
    (plan, start): (Plan, Start),
    events: EventSink,
) -> Arc<dyn RunningTransfer> {
    let record = &attached.record;
    let ticket = record.meter.begin(Way::of(&plan));
    let ticket = Arc::new(Mutex::new(Some((ticket, counted))));
    let at_end = Arc::clone(&ticket);
    let name = record.name.clone();
    let sink: EventSink = Box::new(move |event| match event {
        Event::Finished(mut outcome) => {
            if let Some((ticket, _)) = lock(&at_end).take() {
                ticket.end(outcome.bytes);
            }
            note_node(&mut outcome, &name);
            events(Event::Finished(outcome));
        }
        event => events(event),
    });
    let transfer = match start {
        Start::Anywhere => attached.session.transfer(plan, sink),
        Start::LocalAddress => attached.session.transfer_here(plan, sink),
    };
    if let Some((ticket, _)) = &*lock(&ticket) {
        ticket.attach(&transfer);
    }
    transfer
}

fn note_node(outcome: &mut Outcome, name: &str) {
    let mut details = vec![Detail::text(NODE_DETAIL, name.to_owned())];
    let result = std::mem::replace(&mut outcome.result, Ok(()));
    outcome.result = result.map_err(|error| {
        details.push(Detail::text(FAILED_NODE, name.to_owned()));
        named(error, name)
    });
    outcome.details.add(&details, &[]);
    outcome.nodes = vec![NodePart {
        name: name.to_owned(),
        peer: outcome.peers.first().copied(),
    }];
}

/// An error with the name of the member that it occurred on, where its text is this server's own. Clients decide by the others,
/// and the log has the name in [`FAILED_NODE`].
pub(super) fn named(error: TransferError, name: &str) -> TransferError {
    match error {
        TransferError::Local(reason) => TransferError::Local(format!("{name}: {reason}")),
        error => error,
    }
}
