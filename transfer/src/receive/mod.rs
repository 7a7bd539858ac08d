//! Receives files, and checks that they are complete.
//!
//! ```text
//!   file ──┬─> stream      stream mode: one channel
//!          └─> channels    MODE E: accepts channels, one worker each
//!                └─> blocks      the blocks of one channel
//!                      └─> gatherer    restores the order of the file, if configured
//!   all of them write to part (the file), which reserves its blocks with reserve
//! ```

mod blocks;
mod channels;
mod gatherer;
mod part;
mod reserve;
mod stream;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use gridhaul_protocol::command::{Representation, TransferMode};
use gridhaul_protocol::ranges::RangeSet;
use gridhaul_storage::{OpenedFile, StoredFile, WriteMode, Writing};

use gatherer::{Gatherer, Piece};
use part::Part;

use crate::channels::{DataChannels, Role};
use crate::checksums::Arrival;
use crate::context::Context;
use crate::error::{PeerError, TransferError};
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
    part: Arc<Part>,
    path: PathBuf,
    /// Invalidates cached checksums of the file.
    writing: Writing,
    /// Where a stream starts, as an offset of the transfer.
    start: u64,
    ascii: bool,
    /// The ranges that arrived earlier.
    restart: RangeSet,
    /// The expected size of the file, where the client announced it.
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

/// `STOR`, `ESTO A` and `APPE`: receives into `opened`, and checks that it is complete.
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
            // Only MODE E needs this: a stream is in order.
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
    if context.running.has_failed() {
        // The received bytes stay in the file; the worker that failed has recorded the error.
        return Ok(());
    }
    if let Some(promised) = promised {
        check_complete(promised, &restart, &arrived)?;
    }
    let stored = StoredFile {
        storage: &*context.storage,
        path: &path,
    };
    let sums = part.finish_checksums(&arrived, writing, &stored);
    context.running.note_checksums(sums);
    if context.running.has_failed() {
        return Ok(());
    }
    // The workers have finished and dropped their references to the file.
    match Arc::into_inner(part) {
        Some(part) => part.close(&arrived, &context.running),
        None => Err(TransferError::Local(
            "a worker still holds the file".to_owned(),
        )),
    }
}

/// Opens the arriving file for reading, for the hashes. `None` if the name belongs to another file by now, or the
/// account may not read its own file.
fn open_again(context: &Context, path: &Path, writing: &Writing) -> Option<OpenedFile> {
    let file = context.storage.open_read(path).ok()?;
    writing.is_of(&file).then_some(file)
}

/// The gatherer for the file, which writes to it in order.
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
        (&context.resources.buffers, &context.account.source),
        present,
        Box::new(write),
    )
}

/// Compares the received ranges with the size in `ALLO`. By RFC 959 4.1.3 `ALLO` only reserves storage; GridFTP
/// clients announce the exact number of bytes that they will send, or the size of the file after a restart. In stream
/// mode a client that crashes ends its stream like one that has sent everything, and only the size shows the difference.
fn check_complete(promised: u64, restart: &RangeSet, arrived: &RangeSet) -> Result<(), PeerError> {
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
    fn a_file_with_the_announced_bytes_is_complete() {
        assert!(check_complete(100, &RangeSet::new(), &ranges("0-100")).is_ok());
        assert!(check_complete(100, &ranges("0-40"), &ranges("40-100")).is_ok());
        assert!(check_complete(60, &ranges("0-40"), &ranges("40-100")).is_ok());
        assert!(check_complete(100, &RangeSet::new(), &ranges("0-200")).is_ok());
    }

    #[test]
    fn an_incomplete_file_is_an_error_with_the_missing_ranges() {
        let error = check_complete(100, &ranges("0-10"), &ranges("20-30,40-100"))
            .expect_err("20 bytes are missing");
        let text = error.to_string();
        assert!(text.contains("80 bytes arrived of 100"), "{text}");
        assert!(text.contains("10-20,30-40"), "{text}");
    }
}
