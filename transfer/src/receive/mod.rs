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
mod completeness;
mod gatherer;
mod part;
mod reserve;
mod stream;
mod target;

use std::sync::Arc;

use gridhaul_protocol::command::TransferMode;
use gridhaul_protocol::ranges::RangeSet;
use gridhaul_storage::StoredFile;

use self::completeness::check_complete;
use self::gatherer::{Gatherer, Piece};
use self::part::Part;
pub(crate) use self::target::{OpenedTarget, Target, open};
use crate::channels::DataChannels;
use crate::context::Context;
use crate::error::TransferError;
use crate::node::Plan;

/// `STOR`, `ESTO A` and `APPE`: receives into `opened`, and checks that it is complete.
pub(crate) fn file(
    context: &Context,
    plan: &Plan,
    opened: OpenedTarget,
    channels: &mut DataChannels,
) -> Result<(), TransferError> {
    let received = receive(context, plan, &opened, channels);
    let released = opened.part.release_reserve();
    let arrived = received?;
    released?;
    finish(context, opened, &arrived)
}

/// Receives until the end of the data; returns the received ranges.
fn receive(
    context: &Context,
    plan: &Plan,
    opened: &OpenedTarget,
    channels: &mut DataChannels,
) -> Result<RangeSet, TransferError> {
    let (part, start) = (&opened.part, opened.start);
    match plan.mode {
        TransferMode::Stream => {
            let offset = part.place(&(start..start))?;
            let length = if opened.ascii {
                stream::receive_text(context, part, offset, channels)
            } else {
                stream::receive_file(context, part, offset, channels)
            };
            length.map(|length| RangeSet::from(start..start.saturating_add(length)))
        }
        TransferMode::Extended => {
            // Only MODE E needs a gatherer: a stream is in order.
            let is_ordered = plan.handling.ordered;
            let gatherer = is_ordered.then(|| gatherer(context, part, &opened.restart));
            channels::receive(context, part, gatherer, channels)
        }
    }
}

/// Checks that the file is complete, computes its checksums, and closes it.
fn finish(
    context: &Context,
    opened: OpenedTarget,
    arrived: &RangeSet,
) -> Result<(), TransferError> {
    let OpenedTarget {
        part,
        path,
        writing,
        restart,
        promised,
        ..
    } = opened;
    let mut present = restart.clone();
    present.extend_from(arrived);
    part.lengthen(&present)?;
    if context.running.has_failed() {
        // The received bytes stay in the file; the worker that failed has recorded the error.
        return Ok(());
    }
    if let Some(promised) = promised {
        check_complete(promised, &restart, arrived)?;
    }
    let stored = StoredFile {
        storage: &*context.storage,
        path: &path,
    };
    let sums = part.finish_checksums(arrived, writing, &stored);
    context.running.note_checksums(sums);
    if context.running.has_failed() {
        return Ok(());
    }
    // The workers have finished and dropped their references to the file.
    match Arc::into_inner(part) {
        Some(part) => part.close(arrived, &context.running),
        None => Err(TransferError::Local(
            "a worker still holds the file".to_owned(),
        )),
    }
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
