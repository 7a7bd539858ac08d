//! The data port of a session: the members that hold its listeners, peers and channels.

use std::sync::Arc;

use gridhaul_protocol::command::TransferMode;
use gridhaul_transfer::{ConnectRequest, Placement, Plan, Task};

use super::attachments::Attached;
use super::member::{Counted, Record};

/// The data port of a session.
#[derive(Debug, Default)]
pub(super) enum Port {
    /// The client has requested none.
    #[default]
    None,
    /// Peers, which are distributed when the first transfer starts.
    Peers(ConnectRequest),
    /// On these members.
    Placed {
        parts: Vec<Part>,
        /// Until the first transfer.
        counted: Vec<Counted>,
    },
    /// A transfer on several members failed. Their ports stay open as long as those of one node would: the other end of a
    /// third-party copy may be about to connect, and its "connection refused" would reach the client before the actual error.
    Spent,
}

/// The part of a data port on one member.
#[derive(Debug, Clone)]
pub(super) struct Part {
    pub(super) attached: Attached,
    /// For each listener or peer there, the index of its stripe.
    pub(super) stripes: Vec<usize>,
}

impl Port {
    /// The member that has the whole port.
    pub(super) fn only(&self) -> Option<&Attached> {
        match self {
            Self::Placed { parts, .. } => match parts.as_slice() {
                [only] => Some(&only.attached),
                _ => None,
            },
            Self::None | Self::Peers(_) | Self::Spent => None,
        }
    }

    /// Closes channels and listeners.
    pub(super) fn release(&self) {
        if let Self::Placed { parts, .. } = self {
            parts
                .iter()
                .for_each(|part| part.attached.session.release());
        }
    }

    /// The member that has channels of earlier transfers.
    pub(super) fn holder(&self) -> Option<Arc<Record>> {
        match self {
            Self::Placed { parts, .. } => {
                parts.first().map(|part| Arc::clone(&part.attached.record))
            }
            Self::None | Self::Peers(_) | Self::Spent => None,
        }
    }
}

/// Whether several members should carry out a transfer: in MODE E, for a file whose bytes have known places.
pub(super) fn should_share(plan: &Plan) -> bool {
    let has_places = match &plan.task {
        Task::SendFile { .. } => true,
        Task::SendLines(_) | Task::ReceiveBytes(_) => false,
        Task::ReceiveFile { placement, .. } => {
            *placement != Placement::Append && !plan.handling.ordered
        }
    };
    has_places && plan.mode == TransferMode::Extended
}

/// Whether the members that have a data port together can carry out a transfer: also listings, of which one sends all lines, and
/// `APPE`, for which the end of the file is looked up before.
pub(super) fn can_share(plan: &Plan) -> bool {
    let is_possible = match &plan.task {
        Task::SendFile { .. } | Task::SendLines(_) => true,
        Task::ReceiveFile { .. } => !plan.handling.ordered,
        Task::ReceiveBytes(_) => false,
    };
    is_possible && plan.mode == TransferMode::Extended
}

/// Peer `i` goes to member `i` modulo the number of members, of which there are at most as many as peers.
pub(super) fn distribute(members: &[Attached], peers: usize) -> Vec<Part> {
    let count = members.len();
    let members = members.iter().take(peers).enumerate();
    members
        .map(|(index, attached)| Part {
            attached: attached.clone(),
            stripes: (index..peers).step_by(count).collect(),
        })
        .collect()
}
