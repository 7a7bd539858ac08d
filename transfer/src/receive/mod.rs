//! Receives files, and checks that they are complete.
//!
//! ```text
//!   file ──┬─> stream      stream mode: one channel
//!          └─> channels    MODE E: accepts channels, one worker each
//!                └─> blocks      the blocks of one channel
//!                      └─> gatherer    restores the order of the file, if configured
//!   all of them write to part (the file), which reserves its blocks with reserve
//!   arriving: the name of the file until it is complete: a temporary one (upload), or none (unnamed)
//!   others: further nodes that receive the same file
//!   sink: bytes that go to no file
//! ```

mod arriving;
mod blocks;
mod channels;
mod completeness;
mod copy;
mod demands;
mod gatherer;
mod limit;
mod others;
mod part;
mod read_back;
mod request;
mod reserve;
mod sink;
mod stream;
mod target;
mod unnamed;
mod upload;

use std::sync::Arc;

use gridhaul_protocol::command::TransferMode;
use gridhaul_protocol::ranges::RangeSet;
use gridhaul_storage::StoredFile;

use self::arriving::Arriving;
use self::completeness::check_complete;
use self::gatherer::{Gatherer, Piece};
use self::part::Part;
pub(crate) use self::request::Target;
pub(crate) use self::sink::bytes;
pub(crate) use self::target::{OpenedTarget, open};
use crate::channels::DataChannels;
use crate::context::Context;
use crate::error::{PeerError, TransferError};
use crate::node::Plan;

/// `STOR`, `ESTO A` and `APPE`: receives into `opened`, and checks that it is complete.
pub(crate) fn file(
    context: &Context,
    plan: &Plan,
    mut opened: OpenedTarget,
    channels: &mut DataChannels,
) -> Result<(), TransferError> {
    let upload = opened.upload.take();
    let received = receive(context, plan, &opened, channels);
    let released = opened.part.release_reserve();
    let arrived = received.and_then(|arrived| released.map(|()| arrived));
    let stored = arrived
        .and_then(|arrived| with_others(context, plan, arrived))
        .map_err(Interrupted::from)
        .and_then(|arrived| match plan.is_member() {
            true => leave(context, opened, &arrived),
            false => finish(context, plan, (opened, upload.as_ref()), &arrived),
        });
    match (stored, upload) {
        (Ok(Stored::Complete), Some(upload)) => upload.complete(context, plan.handling.sync),
        (Ok(Stored::Failed), Some(upload)) => {
            match plan.handling.frees_room && context.running.has_no_room() {
                true => upload.remove(context),
                false => upload.suspend(context),
            }
            Ok(())
        }
        (Ok(_), None) => Ok(()),
        (Err(interrupted), upload) => {
            let is_dropped = interrupted.is_wrong
                || plan.handling.frees_room && interrupted.error.is_about_room();
            match upload {
                Some(upload) if is_dropped => upload.remove(context),
                Some(upload) => upload.suspend(context),
                None => {}
            }
            Err(interrupted.error)
        }
    }
}

/// The end of a file that was received without an error of its own.
enum Stored {
    /// It is complete, and closed.
    Complete,
    /// Another worker has failed, and has recorded the error.
    Failed,
}

/// The end of a file with an error.
struct Interrupted {
    error: TransferError,
    /// The content may be wrong, so that a restart must not continue it.
    is_wrong: bool,
}

impl From<TransferError> for Interrupted {
    fn from(error: TransferError) -> Self {
        Self {
            is_wrong: matches!(
                error,
                // Blocks that overlap on one node are refused before they are written; those of several nodes are not.
                TransferError::Peer(PeerError::WrongChecksum { .. } | PeerError::Overlap(_))
                    | TransferError::Lost(_)
            ),
            error,
        }
    }
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
                stream::receive_file(context, part, (start, offset), channels)
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

/// What has arrived at all nodes, if this one leads the others.
fn with_others(context: &Context, plan: &Plan, own: RangeSet) -> Result<RangeSet, TransferError> {
    match plan.companions() {
        Some(companions) if !context.running.has_failed() => others::join(context, companions, own),
        _ => Ok(own),
    }
}

/// Closes a file that another node completes.
fn leave(
    context: &Context,
    opened: OpenedTarget,
    arrived: &RangeSet,
) -> Result<Stored, Interrupted> {
    let OpenedTarget { part, writing, .. } = opened;
    part.reach(arrived)?;
    drop(writing);
    if context.running.has_failed() {
        return Ok(Stored::Failed);
    }
    let closed = into_inner(part)?.close(arrived, &context.running);
    closed.map_err(|error| match error {
        TransferError::Storage(error) => TransferError::Lost(error),
        error => error,
    })?;
    Ok(Stored::Complete)
}

/// The file after the workers have finished and dropped their references to it.
fn into_inner(part: Arc<Part>) -> Result<Part, TransferError> {
    Arc::into_inner(part)
        .ok_or_else(|| TransferError::Local("a worker still holds the file".to_owned()))
}

/// Checks that the file is complete, computes its checksums, and closes it.
fn finish(
    context: &Context,
    plan: &Plan,
    (opened, arriving): (OpenedTarget, Option<&Arriving>),
    arrived: &RangeSet,
) -> Result<Stored, Interrupted> {
    let OpenedTarget {
        part,
        path,
        writing,
        restart,
        promised,
        read_back,
        ..
    } = opened;
    let mut present = restart.clone();
    present.extend_from(arrived);
    if plan.is_divided() && context.running.has_failed() {
        // The others may not have ended.
        part.reach(arrived)?;
    } else {
        part.lengthen(&present)?;
    }
    if context.running.has_failed() {
        // The received bytes stay in the file; the worker that failed has recorded the error.
        return Ok(Stored::Failed);
    }
    if let Some(promised) = promised {
        check_complete(promised, &restart, arrived).map_err(TransferError::from)?;
    }
    let stored = StoredFile {
        storage: &*context.storage,
        path: &path,
    };
    let sums = if read_back && arrived.covered() == arrived.end() {
        let file = (&*part, path.as_path());
        let algorithms = &plan.handling.checksums;
        read_back::checksums(context, algorithms, file, arrived.end(), writing)
    } else {
        part.finish_checksums(arrived, writing, &stored)
    };
    context.running.note_checksums(sums.clone());
    if context.running.has_failed() {
        return Ok(Stored::Failed);
    }
    let part = into_inner(part)?;
    // After an error of `close` or `fdatasync`, some of the bytes may be lost.
    part.close(arrived, &context.running)
        .map_err(|error| Interrupted {
            error,
            is_wrong: true,
        })?;
    demands::check(context, &plan.handling, (&path, arriving), &sums)?;
    Ok(Stored::Complete)
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
