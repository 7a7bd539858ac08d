//! Memory that a peer may read or write at any time.
//!
//! A Rust reference guarantees that no other code writes to its target. Registered memory cannot
//! give that guarantee, so its bytes are moved only by system calls and by copies through raw
//! pointers, and no slice of them exists.

use std::cell::UnsafeCell;
use std::fmt;
use std::num::NonZeroUsize;

/// Memory that can be registered with an endpoint.
///
/// # Safety
///
/// For a span within `length`, [`Buffer::pointer`] and [`Buffer::pointer_to_read`] must return the
/// address of `span.length` bytes that stay allocated while the value lives, and panic for any
/// other span. No Rust reference to these bytes may exist.
pub unsafe trait Buffer: Send + Sync + fmt::Debug {
    /// The length in bytes, which never changes.
    fn length(&self) -> usize;

    /// The address of the first byte, which peers name in their requests. It never changes.
    fn address(&self) -> u64;

    /// The address of a span that is written to.
    ///
    /// # Panics
    ///
    /// When the span is outside the buffer.
    fn pointer(&self, span: Span) -> *mut u8;

    /// The address of a span that is only read.
    ///
    /// # Panics
    ///
    /// When the span is outside the buffer.
    fn pointer_to_read(&self, span: Span) -> *const u8;

    /// Whether only system calls may read the bytes. The pages of a mapped file are such memory:
    /// when the file is truncated, a processor that reads them gets a SIGBUS, and a system call an
    /// error.
    fn is_for_system_calls(&self) -> bool {
        false
    }

    /// Copies `bytes` to `offset`.
    ///
    /// # Panics
    ///
    /// When they do not fit.
    fn copy_in(&self, offset: usize, bytes: &[u8]) {
        let to = self.pointer(Span::new(offset, bytes.len()));
        // SAFETY: `pointer` has checked the length; `bytes` is a Rust slice and so no part of the
        // buffer.
        unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), to, bytes.len()) };
    }

    /// Copies from `offset` to all of `bytes`.
    ///
    /// # Panics
    ///
    /// When the buffer has fewer bytes.
    fn copy_out(&self, offset: usize, bytes: &mut [u8]) {
        let from = self.pointer_to_read(Span::new(offset, bytes.len()));
        // SAFETY: as in `copy_in`, in the other direction.
        unsafe { std::ptr::copy_nonoverlapping(from, bytes.as_mut_ptr(), bytes.len()) };
    }
}

/// A part of a [`Buffer`], in bytes from its start.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Span {
    /// The offset of its first byte.
    pub offset: usize,
    /// Its length.
    pub length: usize,
}

impl Span {
    /// `length` bytes from `offset`.
    pub fn new(offset: usize, length: usize) -> Self {
        Self { offset, length }
    }

    /// The part without its first `count` bytes.
    pub fn skip(self, count: usize) -> Self {
        Self {
            offset: self.offset + count,
            length: self.length - count,
        }
    }

    /// The addresses of this part of a buffer: the offset counts from address zero.
    pub(crate) fn addresses_in(self, buffer: &dyn Buffer) -> Self {
        let start = usize::try_from(buffer.address()).expect("a buffer is memory of this process");
        Self {
            offset: start + self.offset,
            ..self
        }
    }

    /// Its first `count` bytes, or fewer.
    pub fn first(self, count: usize) -> Self {
        Self {
            length: self.length.min(count),
            ..self
        }
    }
}

/// A buffer on the heap, for tests and examples.
#[derive(Debug)]
pub struct HeapBuffer {
    bytes: Box<[UnsafeCell<u8>]>,
}

// SAFETY: the bytes belong to this value, and are accessed through raw pointers only.
unsafe impl Send for HeapBuffer {}
// SAFETY: as above.
unsafe impl Sync for HeapBuffer {}

impl HeapBuffer {
    /// `length` bytes of zeros.
    pub fn new(length: NonZeroUsize) -> Self {
        Self {
            bytes: (0..length.get()).map(|_| UnsafeCell::new(0)).collect(),
        }
    }
}

// SAFETY: the bytes stay allocated while the value lives, and `pointer_to_read` checks the span.
unsafe impl Buffer for HeapBuffer {
    fn length(&self) -> usize {
        self.bytes.len()
    }

    fn address(&self) -> u64 {
        self.bytes.as_ptr().expose_provenance() as u64
    }

    fn pointer(&self, span: Span) -> *mut u8 {
        self.pointer_to_read(span).cast_mut()
    }

    fn pointer_to_read(&self, span: Span) -> *const u8 {
        let end = span.offset.checked_add(span.length);
        let part = end.and_then(|end| self.bytes.get(span.offset..end));
        let part = part.expect("the span is within the buffer");
        UnsafeCell::raw_get(part.as_ptr()).cast_const()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_go_in_and_out() {
        let buffer = HeapBuffer::new(NonZeroUsize::new(100).unwrap());
        buffer.copy_in(94, b"abcdef");
        let mut bytes = [0; 4];
        buffer.copy_out(95, &mut bytes);
        assert_eq!(&bytes, b"bcde");
        assert_eq!(
            buffer.pointer(Span::new(100, 0)).addr() as u64,
            buffer.address() + 100
        );
    }

    #[test]
    #[should_panic(expected = "the span is within the buffer")]
    fn a_span_past_the_end_is_a_mistake() {
        HeapBuffer::new(NonZeroUsize::new(100).unwrap()).copy_in(99, b"ab");
    }
}
