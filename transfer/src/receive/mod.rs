//! Receives files, and proves that they are complete.

mod blocks;
mod channels;
mod gatherer;
mod part;
mod reader;
mod reserve;
mod stream;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use gridhaul_protocol::command::{Representation, TransferMode};
use gridhaul_protocol::ranges::RangeSet;
use gridhaul_storage::{OpenedFile, StoredFile, WriteMode, Writing};

use gatherer::{Gatherer, Piece};
use part::Part;
pub(crate) use reader::{BlockReader, READ_AHEAD_BYTES};

use crate::checksums::Arrival;
use crate::error::{PeerError, TransferError};
use crate::local::{Context, DataChannels, Role};
use crate::node::{Placement, Plan};
use crate::send::{open_error, stream_start};

/// The file, or the part of it, that a session wants to receive.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Target<'a> {
    pub(crate) path: &'a Path,
    pub(crate) placement: Placement,
    pub(crate) restart: &'a RangeSet,
    pub(crate) promised: Option<u64>,
}

/// A file that is open to receive.
pub(crate) struct OpenedTarget {
    part: Arc<Part>,
    path: PathBuf,
    /// Keeps others from believing what they know of the file.
    writing: Writing,
    /// Where a stream starts, in the transfer.
    start: u64,
    ascii: bool,
    /// What arrived earlier.
    restart: RangeSet,
    /// How many bytes there must be in the end, where that is known.
    promised: Option<u64>,
}

/// Opens the file of `STOR`, `ESTO A` and `APPE`.
pub(crate) fn open(
    context: &Context,
    plan: &Plan,
    target: Target<'_>,
    channels: &DataChannels,
) -> Result<OpenedTarget, TransferError> {
    let ascii = plan.mode == TransferMode::Stream && plan.representation == Representation::Ascii;
    // All that can be refused is refused before the old content is cut away.
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
    .map_err(|error| open_error(target.path, error))?;
    // Writing to a file invalidates what was known of it.
    let writing = context.shared.checksums.memory().begin_writing(&file)?;
    let arrival = match plan.handling.checksums.as_slice() {
        [] => None,
        algorithms if fresh && !ascii => {
            let open = || open_again(context, target.path, &writing);
            Some(Arrival::new(context, algorithms, open)?)
        }
        _ => None,
    };
    let mut part = Part::new(file, target.placement, &plan.handling).summed(arrival);
    // TYPE A changes the number of bytes, so ALLO says nothing about the file there.
    let promised = target.promised.filter(|&bytes| bytes > 0 && !ascii);
    part.reserve(promised)?;
    Ok(OpenedTarget {
        part: Arc::new(part),
        path: target.path.to_owned(),
        writing,
        start,
        ascii,
        restart: target.restart.clone(),
        // A client that stores a part announces what it was asked for, and sends what its file has of it
        // (observed from globus-url-copy 10.12): only for a whole file is ALLO a promise.
        promised: promised.filter(|_| target.placement == Placement::Replace),
    })
}

/// `STOR`, `ESTO A` and `APPE`: receives into `opened`, and proves that it is complete.
pub(crate) fn file(
    context: &Context,
    plan: &Plan,
    opened: OpenedTarget,
    channels: &mut DataChannels,
) -> Result<(), TransferError> {
    let OpenedTarget {
        part,
        path,
        writing,
        start,
        ascii,
        restart,
        promised,
    } = opened;
    let received = match plan.mode {
        TransferMode::Stream => {
            let offset = part.place(&(start..start))?;
            let length = if ascii {
                stream::receive_text(context, &part, offset, channels)
            } else {
                stream::receive_file(context, &part, offset, channels)
            };
            length.map(|length| RangeSet::from(start..start.saturating_add(length)))
        }
        TransferMode::Extended => {
            // A stream comes in order by itself.
            let gatherer = plan
                .handling
                .ordered
                .then(|| gatherer(context, &part, &restart));
            channels::receive(context, &part, gatherer, channels)
        }
    };
    let released = part.release_reserve();
    let arrived = received?;
    released?;
    let mut present = restart.clone();
    present.extend_from(&arrived);
    part.lengthen(&present)?;
    if context.running.failed() {
        // What was received stays in the file; the worker that noticed the failure reports it.
        return Ok(());
    }
    if let Some(promised) = promised {
        prove_complete(promised, &restart, &arrived)?;
    }
    let stored = StoredFile {
        storage: &*context.storage,
        path: &path,
    };
    let sums = part.sum_up(&arrived, writing, &stored);
    context.running.note_checksums(sums);
    if context.running.failed() {
        return Ok(());
    }
    // The workers are done, and their shares of the file dropped.
    match Arc::into_inner(part) {
        Some(part) => part.close(&arrived, &context.running),
        None => Err(TransferError::Local(
            "a worker still holds the file".to_owned(),
        )),
    }
}

/// Opens for reading what is being written, for those who want to see what has arrived. The name may be that
/// of another file by now, or the account may not read its own file.
fn open_again(context: &Context, path: &Path, writing: &Writing) -> Option<OpenedFile> {
    let file = context.storage.open_read(path).ok()?;
    writing.is_of(&file).then_some(file)
}

/// Brings what many channels receive into the order of the file.
fn gatherer(context: &Context, part: &Arc<Part>, present: &RangeSet) -> Gatherer {
    let (part, running) = (part.clone(), context.running.clone());
    let write = move |piece: &Piece| {
        let place = part.place(&piece.range)?;
        let watcher = part.watch();
        let writer = part.writer(place, &piece.moved, watcher.as_ref());
        writer.write(piece.bytes(), 0)?;
        running.ledger.record(piece.range.clone());
        part.note_stored(piece.bytes().len() as u64)
    };
    Gatherer::new(
        (&context.shared.buffers, &context.account.source),
        present,
        Box::new(write),
    )
}

/// RFC 959 4.1.3 has `ALLO` reserve room; the clients of this field announce the exact number of bytes
/// that they will send, or that the file will have after a restart. A client that dies in stream mode
/// ends its stream like one that is done, and this is the only way to tell them apart.
fn prove_complete(promised: u64, restart: &RangeSet, arrived: &RangeSet) -> Result<(), PeerError> {
    if arrived.covered() >= promised {
        return Ok(());
    }
    let mut present = restart.clone();
    present.extend_from(arrived);
    let missing = present.missing_in(0..promised).collect::<RangeSet>();
    if missing.is_empty() {
        return Ok(());
    }
    Err(PeerError::Incomplete {
        promised,
        arrived: promised - missing.covered(),
        missing,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ranges(text: &str) -> RangeSet {
        RangeSet::parse_rest(text.as_bytes()).expect("ranges")
    }

    #[test]
    fn a_promise_is_kept_by_all_bytes_or_by_the_rest_of_them() {
        assert!(prove_complete(100, &RangeSet::new(), &ranges("0-100")).is_ok());
        assert!(prove_complete(100, &ranges("0-40"), &ranges("40-100")).is_ok());
        assert!(prove_complete(60, &ranges("0-40"), &ranges("40-100")).is_ok());
        assert!(prove_complete(100, &RangeSet::new(), &ranges("0-200")).is_ok());
    }

    #[test]
    fn a_broken_promise_says_what_is_missing() {
        let error = prove_complete(100, &ranges("0-10"), &ranges("20-30,40-100"))
            .expect_err("20 bytes are missing");
        let text = error.to_string();
        assert!(text.contains("80 bytes arrived of 100"), "{text}");
        assert!(text.contains("10-20,30-40"), "{text}");
    }
}
