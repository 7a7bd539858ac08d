//! Received bytes of a TLS connection that were not delivered.

use std::ops::Range;

use gridhaul_security::tls::{MAX_RECORD, record_length};

use crate::record::TOO_LONG;

/// Space for the rest of an opened record and an incomplete record, when a range of a file is complete; and for receiving
/// small pieces.
const BUFFER_BYTES: usize = 3 * MAX_RECORD;

/// An opened record, followed by records that are not opened.
#[derive(Default)]
pub(crate) struct Incoming {
    /// Allocated when first used.
    buffer: Vec<u8>,
    opened: Range<usize>,
    sealed: Range<usize>,
}

impl Incoming {
    /// The bytes that can be delivered.
    pub(crate) fn opened(&self) -> &[u8] {
        &self.buffer[self.opened.clone()]
    }

    /// Removes the first `count` bytes of [`Incoming::opened`].
    pub(crate) fn consume(&mut self, count: usize) {
        self.opened.start += count;
    }

    /// The next record if it is complete. No opened bytes may be left.
    ///
    /// # Errors
    ///
    /// When the record is longer than TLS allows.
    pub(crate) fn record(&mut self) -> Result<Option<&mut [u8]>, &'static str> {
        let sealed = &mut self.buffer[self.sealed.clone()];
        Ok(whole_record(sealed)?.map(|length| &mut sealed[..length]))
    }

    /// Records that [`Incoming::record`], of this length, was opened, and the place of its content.
    pub(crate) fn open(&mut self, length: usize, content: &Range<usize>) {
        let start = self.sealed.start;
        self.opened = start + content.start..start + content.end;
        self.sealed.start += length;
    }

    /// The buffer for the next bytes of the connection. No opened bytes and no complete record may be left.
    pub(crate) fn space(&mut self) -> &mut [u8] {
        self.buffer.resize(BUFFER_BYTES, 0);
        self.buffer.copy_within(self.sealed.clone(), 0);
        self.sealed = 0..self.sealed.len();
        &mut self.buffer[self.sealed.end..]
    }

    /// Adds `count` received bytes in [`Incoming::space`].
    pub(crate) fn received(&mut self, count: usize) {
        self.sealed.end += count;
    }

    /// Adds `count` bytes in [`Incoming::space`] that are opened already. No sealed bytes may be left.
    pub(crate) fn received_opened(&mut self, count: usize) {
        self.opened = 0..count;
    }

    /// Whether the connection may end here: between two records.
    pub(crate) fn is_between_records(&self) -> bool {
        self.sealed.is_empty()
    }

    /// Moves the sealed bytes to the start of `scratch`, which must hold [`MAX_SEALED`] bytes.
    pub(crate) fn move_sealed(&mut self, scratch: &mut [u8]) -> usize {
        let sealed = &self.buffer[self.sealed.clone()];
        scratch[..sealed.len()].copy_from_slice(sealed);
        let count = sealed.len();
        self.sealed = 0..0;
        count
    }

    /// Stores the remaining bytes of another buffer. This one must be empty.
    pub(crate) fn keep(&mut self, opened: &[u8], sealed: &[u8]) {
        self.buffer.resize(BUFFER_BYTES, 0);
        let end = opened.len() + sealed.len();
        self.buffer[..opened.len()].copy_from_slice(opened);
        self.buffer[opened.len()..end].copy_from_slice(sealed);
        self.opened = 0..opened.len();
        self.sealed = opened.len()..end;
    }
}

/// The most bytes that [`Incoming::move_sealed`] moves.
pub(crate) const MAX_SEALED: usize = BUFFER_BYTES;

/// The length of the record at the start of `bytes`, if it is complete.
///
/// # Errors
///
/// When it is longer than TLS allows.
pub(crate) fn whole_record(bytes: &[u8]) -> Result<Option<usize>, &'static str> {
    match record_length(bytes) {
        Some(length) if length > MAX_RECORD => Err(TOO_LONG),
        Some(length) if length <= bytes.len() => Ok(Some(length)),
        _ => Ok(None),
    }
}
