//! Opens the file that a transfer receives.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use gridhaul_protocol::command::{Representation, TransferMode};
use gridhaul_protocol::ranges::RangeSet;
use gridhaul_storage::{OpenedFile, WriteMode, Writing};

use super::arriving::Arriving;
use super::others;
use super::part::Part;
use super::request::Target;
use crate::channels::{DataChannels, Role};
use crate::checksums::Arrival;
use crate::context::Context;
use crate::error::TransferError;
use crate::node::{Placement, Plan, UploadName};
use crate::restart::stream_start;

/// Whether line ends are converted.
fn is_ascii(plan: &Plan) -> bool {
    plan.mode == TransferMode::Stream && plan.representation == Representation::Ascii
}

/// A file that is open to receive.
pub(crate) struct OpenedTarget {
    /// Invalidates cached checksums of the file. Dropped before the file is closed.
    pub(super) writing: Writing,
    pub(super) part: Arc<Part>,
    /// The path of the arriving file. A file without a name has its final one here.
    pub(super) path: PathBuf,
    /// The upload, unless it writes to the file at the final name.
    pub(super) upload: Option<Arriving>,
    /// Where a stream starts, as an offset of the transfer.
    pub(super) start: u64,
    pub(super) ascii: bool,
    /// The checksums are computed from the complete file: not all of it arrives here.
    pub(super) read_back: bool,
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
    // All checks come before the open, which truncates the file.
    let start = match plan.mode {
        TransferMode::Stream => stream_start(target.restart)?,
        TransferMode::Extended => {
            channels.check_role(Role::Receiver)?;
            0
        }
    };
    let direct = channels.wants_direct();
    if plan.is_member() {
        let file = others::open(context, &target, direct)?;
        return prepare(context, plan, &target, file, (target.path, start));
    }
    let upload = match plan.handling.upload {
        UploadName::Temporary | UploadName::Unnamed => {
            Arriving::open(context, plan, &target, channels)?
        }
        UploadName::Final => None,
    };
    let (file, upload) = match upload {
        Some((file, upload)) => (file, Some(upload)),
        None => (open_in_place(context, &target, direct)?, None),
    };
    let path = upload.as_ref().and_then(Arriving::path);
    let path = path.unwrap_or(target.path).to_owned();
    let place = (path.as_path(), start);
    let prepared = prepare(context, plan, &target, file, place);
    match prepared.and_then(|opened| admit_others(plan, opened, upload.as_ref())) {
        Ok(opened) => Ok(OpenedTarget { upload, ..opened }),
        Err(error) => {
            if let Some(upload) = upload {
                upload.suspend(context);
            }
            Err(error)
        }
    }
}

/// Lets the other nodes of the transfer open the file as well, if this one leads them.
fn admit_others(
    plan: &Plan,
    opened: OpenedTarget,
    upload: Option<&Arriving>,
) -> Result<OpenedTarget, TransferError> {
    if let Some(companions) = plan.companions() {
        upload.map_or(Ok(()), Arriving::share)?;
        companions.opened(&opened.path);
    }
    Ok(opened)
}

/// Prepares checksums and disk space for an open file.
fn prepare(
    context: &Context,
    plan: &Plan,
    target: &Target<'_>,
    file: OpenedFile,
    (path, start): (&Path, u64),
) -> Result<OpenedTarget, TransferError> {
    let (fresh, ascii) = (target.is_fresh(), is_ascii(plan));
    let divided = plan.is_divided();
    // Writing to a file invalidates its cached checksums.
    let writing = context.resources.checksums.memory().begin_writing(&file)?;
    let arrival = match plan.handling.checksums.as_slice() {
        [] => None,
        algorithms if fresh && !ascii && !divided => {
            let open = || open_again(context, path, &writing);
            Some(Arrival::new(context, algorithms, open)?)
        }
        _ => None,
    };
    let mut part = Part::new(file, target.placement, &plan.handling).with_checksums(arrival);
    // TYPE A changes the number of bytes, so ALLO does not give the size of the file.
    let promised = target.promised.filter(|&bytes| bytes > 0 && !ascii);
    // The lead checks it for all.
    let promised = promised.filter(|_| !plan.is_member());
    part.reserve(promised, divided)?;
    // After a restart ALLO may count the whole file or the rest.
    if let Some(promised) = promised.filter(|_| target.restart.is_empty()) {
        context.running.note_total(promised);
    }
    Ok(OpenedTarget {
        part: Arc::new(part),
        path: path.to_owned(),
        upload: None,
        writing,
        start,
        ascii,
        read_back: divided && fresh && !plan.is_member(),
        restart: target.restart.clone(),
        // A client that stores a part announces the length that its user requested, and sends less if its file is
        // shorter (observed from globus-url-copy 10.12): ALLO is reliable only for a whole file.
        promised: promised.filter(|_| target.placement == Placement::Replace),
    })
}

/// Opens the file at its final name.
fn open_in_place(
    context: &Context,
    target: &Target<'_>,
    direct: bool,
) -> Result<OpenedFile, TransferError> {
    let path = target.path;
    let mode = if target.is_fresh() {
        WriteMode::Truncate
    } else {
        WriteMode::Keep
    };
    let opened = if direct {
        context.storage.open_write_direct(path, mode)
    } else {
        context.storage.open_write(path, mode)
    };
    opened.map_err(|error| TransferError::open(path, error))
}

/// Opens the arriving file for reading, for the hashes. `None` if the name belongs to another file by now, or the
/// account may not read its own file.
fn open_again(context: &Context, path: &Path, writing: &Writing) -> Option<OpenedFile> {
    let file = context.storage.open_read(path).ok()?;
    writing.is_of(&file).then_some(file)
}
