//! Sends ranges of files from the page cache.

use std::num::NonZeroUsize;
use std::os::fd::BorrowedFd;
use std::sync::atomic::Ordering;

use gridhaul_stack::{ChannelError, FileRange, Operation};

use super::Streams;
use crate::outgoing::{FileState, Pinned};

impl Streams {
    /// Sends a range of a file from the page cache as far as possible; returns the count of bytes.
    pub(super) fn send_pinned(
        &mut self,
        range: &FileRange<'_>,
        operation: &Operation<'_>,
    ) -> Result<u64, ChannelError> {
        let state = FileState::of(range.file).map_err(ChannelError::File)?;
        if let Some(sections) = self.opened.outgoing.sections_mut() {
            sections.begin();
        }
        let mut done = 0;
        while done < range.length {
            // With a quick peer the calls below never wait, so the deadline is checked here.
            operation.check()?;
            let offset = range.offset + done;
            let left = (range.length - done).min(state.bytes.saturating_sub(offset));
            let left = usize::try_from(left).unwrap_or(usize::MAX);
            let Some(left) = NonZeroUsize::new(left) else {
                return Err(range.too_short(state.bytes));
            };
            let Some(pinned) = self.pin((range.file, &state), offset, left, operation)? else {
                break;
            };
            let count = self.fill_from(pinned, operation)?;
            done += count as u64;
            self.progress()?;
            range.moved.fetch_add(count as u64, Ordering::Release);
        }
        // Bytes that were truncated meanwhile were sent as zeros or with their old content.
        let bytes = FileState::of(range.file).map_err(ChannelError::File)?.bytes;
        if bytes < range.offset + done {
            return Err(range.too_short(bytes));
        }
        Ok(done)
    }

    /// Pins a part of a file when there is room. `None` if it cannot be pinned: reading it then
    /// works or reports the reason.
    fn pin(
        &mut self,
        file: (BorrowedFd<'_>, &FileState),
        offset: u64,
        length: NonZeroUsize,
        operation: &Operation<'_>,
    ) -> Result<Option<Pinned>, ChannelError> {
        loop {
            let free_to = self.opened.exchange.sender.needed_from();
            let endpoint = self.opened.endpoint.as_mut();
            let Some(sections) = self.opened.outgoing.sections_mut() else {
                return Ok(None);
            };
            match sections.pin(endpoint, file, offset, length, free_to) {
                Ok(Some(pinned)) => return Ok(Some(pinned)),
                Ok(None) => {
                    // Data in the pinned sections is sent without waiting for more.
                    self.opened.exchange.sender.flush();
                    self.until(operation, |opened| {
                        opened.exchange.sender.needed_from() > free_to
                    })?;
                }
                Err(_) => return Ok(None),
            }
        }
    }

    /// Sends a pinned part of a file, as far as the other end has room.
    fn fill_from(
        &mut self,
        pinned: Pinned,
        operation: &Operation<'_>,
    ) -> Result<usize, ChannelError> {
        if self.opened.exchange.sender.room().length == 0 {
            self.opened.exchange.sender.flush();
            self.until(operation, |opened| opened.exchange.sender.room().length > 0)?;
        }
        let sender = &mut self.opened.exchange.sender;
        let count = pinned.length.min(sender.room().length);
        sender.fill_from(pinned.source, count);
        let filled = sender.filled();
        if let Some(sections) = self.opened.outgoing.sections_mut() {
            sections.need(pinned.source.region, filled);
        }
        Ok(count)
    }
}
