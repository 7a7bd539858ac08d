//! What was received of a TLS connection and not given out yet.

use std::ops::Range;

use gridhaul_security::tls::{MAX_RECORD, record_length};

use crate::record::TOO_LONG;

/// Room for what is left over when a range of a file is complete: the rest of an opened record, and a
/// record that is not whole. In between, small pieces are received here.
const BUFFER_BYTES: usize = 3 * MAX_RECORD;

/// One opened record, and records that are not opened, behind it.
#[derive(Default)]
pub(crate) struct Incoming {
    /// Made when it is first needed.
    buffer: Vec<u8>,
    opened: Range<usize>,
    sealed: Range<usize>,
}

impl Incoming {
    /// The bytes that can be given out.
    pub(crate) fn opened(&self) -> &[u8] {
        &self.buffer[self.opened.clone()]
    }

    /// Forgets the first `count` bytes of [`Incoming::opened`].
    pub(crate) fn consume(&mut self, count: usize) {
        self.opened.start += count;
    }

    /// The next record if it is whole, when nothing is opened.
    ///
    /// # Errors
    ///
    /// When the record is longer than records are.
    pub(crate) fn record(&mut self) -> Result<Option<&mut [u8]>, &'static str> {
        let sealed = &mut self.buffer[self.sealed.clone()];
        Ok(whole_record(sealed)?.map(|length| &mut sealed[..length]))
    }

    /// Says that [`Incoming::record`], so long, was opened, and where its content is.
    pub(crate) fn open(&mut self, length: usize, content: &Range<usize>) {
        let start = self.sealed.start;
        self.opened = start + content.start..start + content.end;
        self.sealed.start += length;
    }

    /// Where the next bytes of the connection go, when nothing is opened and no record is whole.
    pub(crate) fn space(&mut self) -> &mut [u8] {
        self.buffer.resize(BUFFER_BYTES, 0);
        self.buffer.copy_within(self.sealed.clone(), 0);
        self.sealed = 0..self.sealed.len();
        &mut self.buffer[self.sealed.end..]
    }

    /// Says that so many bytes came into [`Incoming::space`].
    pub(crate) fn received(&mut self, count: usize) {
        self.sealed.end += count;
    }

    /// Says that so many bytes came into [`Incoming::space`] that need not be opened, when nothing was sealed.
    pub(crate) fn received_opened(&mut self, count: usize) {
        self.opened = 0..count;
    }

    /// Whether the connection may end here: between two records.
    pub(crate) fn is_between_records(&self) -> bool {
        self.sealed.is_empty()
    }

    /// Moves what is not opened to the start of `scratch`, which is long enough.
    pub(crate) fn move_sealed(&mut self, scratch: &mut [u8]) -> usize {
        let sealed = &self.buffer[self.sealed.clone()];
        scratch[..sealed.len()].copy_from_slice(sealed);
        let count = sealed.len();
        self.sealed = 0..0;
        count
    }

    /// Keeps what was left over in another buffer; there is nothing here then.
    pub(crate) fn keep(&mut self, opened: &[u8], sealed: &[u8]) {
        self.buffer.resize(BUFFER_BYTES, 0);
        let end = opened.len() + sealed.len();
        self.buffer[..opened.len()].copy_from_slice(opened);
        self.buffer[opened.len()..end].copy_from_slice(sealed);
        self.opened = 0..opened.len();
        self.sealed = opened.len()..end;
    }
}

/// How much [`Incoming::move_sealed`] moves at most.
pub(crate) const MAX_SEALED: usize = BUFFER_BYTES;

/// The length of the record that `bytes` begin with, if it is whole.
///
/// # Errors
///
/// When it is longer than records are.
pub(crate) fn whole_record(bytes: &[u8]) -> Result<Option<usize>, &'static str> {
    match record_length(bytes) {
        Some(length) if length > MAX_RECORD => Err(TOO_LONG),
        Some(length) if length <= bytes.len() => Ok(Some(length)),
        _ => Ok(None),
    }
}
