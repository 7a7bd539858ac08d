//! Positions of a stream that hold no bytes, and the bytes between them.

use super::{Receiver, ReceiverError};
use crate::memory::Span;

/// Bytes that are contiguous in the ring and in the stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Stretch {
    /// Where they begin in the stream.
    pub(crate) position: u64,
    /// Their ring, or that of the next bytes.
    pub(crate) region: usize,
    /// Where they are in the ring; none if nothing has arrived.
    pub(crate) span: Span,
    /// No further bytes will be contiguous with them.
    pub(crate) is_whole: bool,
}

impl Receiver {
    /// A piece arrived inside a message, and after it so many positions hold no bytes. Returns the region and the place for
    /// its bytes, or `None` if they had arrived before.
    ///
    /// # Errors
    ///
    /// When the piece is not allowed or its range is invalid.
    pub(crate) fn padded(
        &mut self,
        start: u64,
        length: u64,
        padding: u64,
    ) -> Result<Option<(usize, Span)>, ReceiverError> {
        let most = self.inline_bytes;
        if length > most {
            return Err(ReceiverError::Inline { length, most });
        }
        if padding == 0 {
            return Err(ReceiverError::Empty);
        }
        self.check(start, length + padding)?;
        if !self.is_new(start) {
            self.arrived(start, length + padding)?;
            return Ok(None);
        }
        // A sender cuts no more pieces than this before they are consumed.
        if self.padding.len() >= self.max_pieces {
            return Err(ReceiverError::TooManyPieces(self.max_pieces));
        }
        self.arrived(start, length + padding)?;
        let bytes_end = start + length;
        self.padding.insert(bytes_end, bytes_end + padding);
        self.pass_padding();
        Ok(Some(self.rings.place(start, length)))
    }

    /// The contiguous bytes from a position on, or after the padding there. A position before the consumed one stands for padding that
    /// was passed.
    pub(crate) fn ready_from(&self, position: u64) -> Stretch {
        // Padding that arrives when everything before it was taken out is consumed at once, and not remembered.
        let mut position = position.max(self.consumed);
        while let Some(&end) = self
            .padding
            .get(&position)
            .filter(|&&end| end <= self.ready)
        {
            position = end;
        }
        let padding = self.padding.range(position..).next();
        let end = padding.map_or(self.ready, |(&start, _)| start.min(self.ready));
        let contiguous = self.rings.contiguous(position);
        let length = (end - position).min(contiguous);
        let (region, span) = self.rings.place(position, length);
        Stretch {
            position,
            region,
            span,
            is_whole: end < self.ready || length == contiguous || self.end == Some(end),
        }
    }

    /// Padding takes room in the ring until everything before it was consumed.
    pub(super) fn pass_padding(&mut self) {
        while let Some(next) = self.padding.first_entry()
            && *next.key() == self.consumed
            && *next.get() <= self.ready
        {
            self.consumed = next.remove();
        }
    }
}
