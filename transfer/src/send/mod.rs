//! Sends files and listings.
//!
//! What is sent is decided here; `stream` and `blocks` know how a mode puts it on channels.

mod blocks;
mod extents;
mod stream;
mod text;

use std::path::Path;

use gridhaul_protocol::command::{Representation, TransferMode};
use gridhaul_protocol::ranges::RangeSet;
use gridhaul_storage::StorageError;

pub(crate) use blocks::FilePart;

use self::extents::Extents;
use crate::error::{SequenceError, TransferError};
use crate::local::{Context, DataChannels, Role};
use crate::node::{LineSource, Plan};

/// The part of a file that a session asked for.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Part<'a> {
    pub(crate) path: &'a Path,
    pub(crate) offset: u64,
    pub(crate) length: Option<u64>,
    pub(crate) restart: &'a RangeSet,
}

/// Opens the file of `RETR` and `ERET P`.
pub(crate) fn open(
    context: &Context,
    plan: &Plan,
    part: Part<'_>,
    channels: &DataChannels,
) -> Result<FilePart, TransferError> {
    if plan.mode == TransferMode::Extended {
        channels.check_role(Role::Sender)?;
    }
    let opened = if channels.wants_direct() {
        context.storage.open_read_direct(part.path)
    } else {
        context.storage.open_read(part.path)
    };
    let file = opened.map_err(|error| open_error(part.path, error))?;
    // Past the page cache, nothing can be there before its time.
    if !channels.wants_direct() {
        context.ahead.note(&file);
    }
    // A file that grows while it is sent is sent as long as it was.
    let size = file.size_at_open();
    check_restart(&part, size)?;
    let offset = part.offset.min(size);
    let length = part
        .length
        .map_or(size - offset, |length| length.min(size - offset));
    Ok(FilePart {
        file,
        offset,
        length,
        restart: part.restart.clone(),
        extents: plan.handling.sparse.then(Extents::default),
    })
}

/// A file that is shorter than what the receiver has of it is not the one that it began with. Of a part of a file
/// (`ERET`), what is behind the end is empty.
fn check_restart(part: &Part<'_>, size: u64) -> Result<(), SequenceError> {
    let offset = part.restart.end();
    if part.length.is_none() && offset > size {
        return Err(SequenceError::RestartPastEnd { offset, size });
    }
    Ok(())
}

/// `RETR` and `ERET P`.
pub(crate) fn file(
    context: &Context,
    plan: &Plan,
    part: FilePart,
    channels: &mut DataChannels,
) -> Result<(), TransferError> {
    if plan.mode == TransferMode::Extended {
        return blocks::send_file(context, plan, part, channels);
    }
    let start = stream_start(&part.restart)?.min(part.length);
    let (offset, length) = (part.offset + start, part.length - start);
    match plan.representation {
        Representation::Image => {
            let source = stream::FilePart {
                file: part.file,
                offset,
                length,
                extents: part.extents,
            };
            stream::send_file(context, &source, channels)
        }
        Representation::Ascii => {
            let text = text::AsciiFile::new(part.file, offset, length);
            stream::send_text(context, Box::new(text), channels)
        }
    }
}

/// `LIST`, `NLST`, `MLSD`, `MLSR`.
pub(crate) fn lines(
    context: &Context,
    plan: &Plan,
    source: &LineSource,
    channels: &mut DataChannels,
) -> Result<(), TransferError> {
    if plan.mode == TransferMode::Extended {
        channels.check_role(Role::Sender)?;
    }
    let lines = Box::new(text::Lines((source.open)(&*context.storage)?));
    match plan.mode {
        TransferMode::Stream => stream::send_text(context, lines, channels),
        TransferMode::Extended => blocks::send_text(context, plan, lines, channels),
    }
}

/// RFC 3659 5: a stream restarts at one place, and all before it is there.
pub(crate) fn stream_start(restart: &RangeSet) -> Result<u64, SequenceError> {
    match (restart.len(), restart.iter().next()) {
        (0, _) => Ok(0),
        (1, Some(range)) if range.start == 0 => Ok(range.end),
        _ => Err(SequenceError::StreamRestart),
    }
}

pub(crate) fn open_error(path: &Path, error: StorageError) -> TransferError {
    TransferError::Open {
        path: path.to_owned(),
        error,
    }
}
