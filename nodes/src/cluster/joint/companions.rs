//! The members other than the lead, from its view.

use std::path::Path;
use std::sync::Arc;

use gridhaul_protocol::ranges::RangeSet;
use gridhaul_storage::is_unfinished_upload;
use gridhaul_transfer::{Companions, Plan, Role, Task, TransferError};

use super::super::port::Part;
use super::{Joint, LEAD, shared};
use crate::sync::{ignore_poison, lock};

/// The members that start when the lead has opened the file.
pub(super) struct Others {
    joint: Arc<Joint>,
    parts: Vec<Part>,
    plan: Plan,
}

impl Others {
    pub(super) fn new(joint: &Arc<Joint>, parts: &[Part], plan: Plan) -> Self {
        Self {
            joint: Arc::clone(joint),
            parts: parts.to_vec(),
            plan,
        }
    }
}

impl Companions for Others {
    fn opened(&self, opened: &Path) {
        if is_unfinished_upload(opened) {
            let session = Arc::clone(&self.parts[LEAD].attached.session);
            *lock(&self.joint.upload) = Some((session, opened.to_owned()));
        }
        let mut plan = self.plan.clone();
        if let Task::ReceiveFile { path, .. } = &mut plan.task {
            opened.clone_into(path);
        }
        let total = self.parts.iter().map(|part| part.stripes.len()).sum();
        for (index, part) in self.parts.iter().enumerate().skip(LEAD + 1) {
            let plan = shared(&plan, part, total, Role::Member);
            self.joint.start(index, &*part.attached.session, plan);
        }
    }

    /// Also after a cancellation, which reaches the others at the same time as the lead.
    fn wait(&self) -> Result<RangeSet, TransferError> {
        let mut state = lock(&self.joint.state);
        state.lead_waits = true;
        while !state.others_have_ended() {
            state = ignore_poison(self.joint.changed.wait(state));
        }
        state.lead_waits = false;
        match state.failure_for_lead() {
            Some(error) => Err(error),
            None => Ok(state.stored()),
        }
    }
}
