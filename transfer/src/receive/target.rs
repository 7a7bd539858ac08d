//! Opens the file that a transfer receives.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use gridhaul_protocol::command::{Representation, TransferMode};
use gridhaul_protocol::ranges::RangeSet;
use gridhaul_storage::{OpenedFile, WriteMode, Writing};

use super::part::Part;
use crate::channels::{DataChannels, Role};
use crate::checksums::Arrival;
use crate::context::Context;
use crate::error::TransferError;
use crate::node::{Placement, Plan};
use crate::restart::stream_start;

/// The file to receive, or the part of it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Target<'a> {
    pub(crate) path: &'a Path,
    pub(crate) placement: Placement,
    pub(crate) restart: &'a RangeSet,
    pub(crate) promised: Option<u64>,
}

/// A file that is open to receive.
pub(crate) struct OpenedTarget {
    /// Invalidates cached checksums of the file. Dropped before the file is closed.
    pub(super) writing: Writing,
    pub(super) part: Arc<Part>,
    pub(super) path: PathBuf,
    /// Where a stream starts, as an offset of the transfer.
    pub(super) start: u64,
    pub(super) ascii: bool,
    /// The ranges that arrived earlier.
    pub(super) restart: RangeSet,
    /// The expected size of the file, where the client announced it.
    pub(super) promised: Option<u64>,
}

/// Opens the file of `STOR`, `ESTO A` and `APPE`.
pub(crate) fn open(
    context: &Context,
    plan: &Plan,
    target: Target<'_>,
    channels: &DataChannels,
) -> Result<OpenedTarget, TransferError> {
    let ascii = plan.mode == TransferMode::Stream && plan.representation == Representation::Ascii;
    // All checks come before the open, which truncates the file.
    let start = match plan.mode {
        TransferMode::Stream => stream_start(target.restart)?,
        TransferMode::Extended => {
            channels.check_role(Role::Receiver)?;
            0
        }
    };
    let fresh = target.placement == Placement::Replace && target.restart.is_empty();
    let mode = if fresh {
        WriteMode::Truncate
    } else {
        WriteMode::Keep
    };
    let file = if channels.wants_direct() {
        context.storage.open_write_direct(target.path, mode)
    } else {
        context.storage.open_write(target.path, mode)
    }
    .map_err(|error| TransferError::open(target.path, error))?;
    // Writing to a file invalidates its cached checksums.
    let writing = context.resources.checksums.memory().begin_writing(&file)?;
    let arrival = match plan.handling.checksums.as_slice() {
        [] => None,
        algorithms if fresh && !ascii => {
            let open = || open_again(context, target.path, &writing);
            Some(Arrival::new(context, algorithms, open)?)
        }
        _ => None,
    };
    let mut part = Part::new(file, target.placement, &plan.handling).with_checksums(arrival);
    // TYPE A changes the number of bytes, so ALLO does not give the size of the file.
    let promised = target.promised.filter(|&bytes| bytes > 0 && !ascii);
    part.reserve(promised)?;
    // After a restart ALLO may count the whole file or the rest.
    if let Some(promised) = promised.filter(|_| target.restart.is_empty()) {
        context.running.note_total(promised);
    }
    Ok(OpenedTarget {
        part: Arc::new(part),
        path: target.path.to_owned(),
        writing,
        start,
        ascii,
        restart: target.restart.clone(),
        // A client that stores a part announces the length that its user requested, and sends less if its file is
        // shorter (observed from globus-url-copy 10.12): ALLO is reliable only for a whole file.
        promised: promised.filter(|_| target.placement == Placement::Replace),
    })
}

/// Opens the arriving file for reading, for the hashes. `None` if the name belongs to another file by now, or the
/// account may not read its own file.
fn open_again(context: &Context, path: &Path, writing: &Writing) -> Option<OpenedFile> {
    let file = context.storage.open_read(path).ok()?;
    writing.is_of(&file).then_some(file)
}
