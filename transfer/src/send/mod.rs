//! Sends files and listings.
//!
//! This module opens what is sent; `stream` and `blocks` implement the two transfer modes.
//!
//! ```text
//!   file, lines ──┬─> stream    stream mode: one channel
//!                 └─> blocks    MODE E: many channels
//!                       ├─> dispenser               which block is next
//!                       │     ├─> layout            which bytes belong to which stripe
//!                       │     └─> portion           the size of a block
//!                       └─> file_part ─> extents    reads it, without the holes
//! ```

mod blocks;
mod dispenser;
mod extents;
mod file_part;
mod layout;
mod portion;
mod stream;
mod text;

use std::path::Path;

use gridhaul_protocol::command::{Representation, TransferMode};
use gridhaul_protocol::ranges::RangeSet;

use self::dispenser::Dispenser;
use self::extents::Extents;
pub(crate) use self::file_part::FilePart;
use crate::channels::{DataChannels, Role};
use crate::context::Context;
use crate::error::TransferError;
use crate::node::{LineSource, Plan};
use crate::restart;

/// The requested part of a file.
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
    let file = opened.map_err(|error| TransferError::open(part.path, error))?;
    // Reading ahead is useless for files that do not use the page cache.
    if !channels.bypasses_cache() {
        context.look_ahead.note(&file);
    }
    // A file that grows during the transfer is sent with its size at the start.
    let size = file.size_at_open();
    // A part (`ERET`) may begin past the end of the file; it is empty then.
    if part.length.is_none() {
        restart::check_within(part.restart, size)?;
    }
    let offset = part.offset.min(size);
    let length = part
        .length
        .map_or(size - offset, |length| length.min(size - offset));
    // Converted text has another length.
    if plan.representation == Representation::Image {
        let left = part.restart.missing_in(0..length);
        let bytes = if plan.is_divided() {
            Dispenser::of_plan(plan, length, channels.stripes()).bytes_of(left)
        } else {
            left.map(|range| range.end - range.start).sum()
        };
        context.running.note_total(bytes);
    }
    Ok(FilePart {
        file,
        offset,
        length,
        restart: part.restart.clone(),
        divided: plan.is_divided(),
        extents: plan.handling.sparse.then(Extents::default),
    })
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
    let start = restart::stream_start(&part.restart)?.min(part.length);
    let (offset, length) = (part.offset + start, part.length - start);
    match plan.representation {
        Representation::Image => {
            let rest = FilePart {
                offset,
                length,
                ..part
            };
            stream::send_file(context, &rest, channels)
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
