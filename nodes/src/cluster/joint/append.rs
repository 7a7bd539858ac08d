//! `APPE` on several members.
//!
//! The members open the file one after the other, and its end moves meanwhile. So its size before the transfer is the place of the
//! received bytes, as the size at the open is on one member.
//!
//! A client of NFS may have kept an older size, and the bytes behind that would be overwritten. So the lead opens the directory and the
//! file before it tells the size. That does not help with a file that it may not read.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::Arc;
use std::thread;

use gridhaul_transfer::{NodeSession, Placement, Plan, Task, TransferError};
use rustix::io::Errno;

use super::super::member::Counted;
use super::super::port::Part;
use super::super::storage::look_anew;
use super::{Joint, LEAD};

impl Joint {
    /// As [`Self::begin`], for members that have a data port together: finds the end of a file that is to be continued, on a thread,
    /// because the look-up blocks.
    pub(in crate::cluster) fn begin_placed(
        self: &Arc<Self>,
        parts: Vec<(Part, Counted)>,
        plan: Plan,
    ) {
        let (Some(path), Some((lead, _))) = (appended(&plan), parts.get(LEAD)) else {
            return self.begin(parts, &plan);
        };
        let (path, session) = (path.to_owned(), Arc::clone(&lead.attached.session));
        let joint = Arc::clone(self);
        let start = move || {
            let end = catch_unwind(AssertUnwindSafe(|| end_of(&*session, &path)));
            match end {
                Ok(Ok(end)) => joint.begin(parts, &placed_at(end, plan)),
                Ok(Err(error)) => joint.fail(error),
                Err(_) => joint.fail(TransferError::Local("the storage panicked".to_owned())),
            }
        };
        let thread = thread::Builder::new().name("cluster".to_owned());
        if let Err(error) = thread.spawn(start) {
            let reason = format!("cannot start a thread: {error}");
            self.fail(TransferError::Local(reason));
        }
    }
}

/// The file that a transfer appends to.
fn appended(plan: &Plan) -> Option<&Path> {
    match &plan.task {
        Task::ReceiveFile {
            path,
            placement: Placement::Append,
            ..
        } => Some(path),
        _ => None,
    }
}

/// The size of a file. One that does not exist begins with this transfer.
fn end_of(session: &dyn NodeSession, path: &Path) -> Result<u64, TransferError> {
    look_anew(session, path);
    match session.storage().stat(path) {
        Ok(metadata) => Ok(metadata.size),
        Err(error) if error.errno == Errno::NOENT => Ok(0),
        Err(error) => Err(TransferError::Open {
            path: path.to_owned(),
            error,
        }),
    }
}

fn placed_at(end: u64, mut plan: Plan) -> Plan {
    if let Task::ReceiveFile { placement, .. } = &mut plan.task {
        *placement = Placement::At(end);
    }
    plan
}
