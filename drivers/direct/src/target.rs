//! The memory that requests move bytes from and to.

use std::any::Any;
use std::marker::PhantomData;
use std::ops::Range;
use std::ptr::NonNull;
use std::sync::Arc;

use crate::request::Request;

/// The memory of the requests of a queue.
///
/// # Safety
///
/// [`Target::pointer`] must return the address of `request.length` bytes that stay allocated while the value lives, and panic
/// for a request that is not within its memory. While a request is in flight, no Rust reference to these bytes may exist.
///
/// If there is a [`Target::lasting`], its bytes stay mapped to the same pages while its owner lives.
pub unsafe trait Target {
    /// Where the bytes of a request for a slot are.
    ///
    /// # Panics
    ///
    /// When they are outside the memory.
    fn pointer(&self, slot: usize, request: &Request) -> *mut u8;

    /// The memory of all requests, if an engine may keep it for longer than the queue exists, until the engine is dropped. Then the
    /// engine may register it with the kernel.
    fn lasting(&self) -> Option<LastingMemory> {
        None
    }
}

/// Memory whose pages stay the same while its owner lives.
#[derive(Debug, Clone)]
pub struct LastingMemory {
    addresses: Range<usize>,
    owner: Arc<dyn Any + Send + Sync>,
}

impl LastingMemory {
    /// `length` bytes from `start` on, which `owner` keeps.
    ///
    /// # Panics
    ///
    /// When they reach past the end of the address space.
    pub fn new(start: *mut u8, length: usize, owner: Arc<dyn Any + Send + Sync>) -> Self {
        let start = start.expose_provenance();
        let end = start.checked_add(length);
        Self {
            addresses: start..end.expect("memory is within the address space"),
            owner,
        }
    }

    pub(crate) fn addresses(&self) -> Range<usize> {
        self.addresses.clone()
    }

    pub(crate) fn length(&self) -> usize {
        self.addresses.len()
    }

    /// Whether nothing else keeps it.
    pub(crate) fn is_abandoned(&self) -> bool {
        Arc::strong_count(&self.owner) == 1
    }

    /// Whether it is the same memory.
    pub(crate) fn is(&self, other: &Self) -> bool {
        self.addresses == other.addresses && Arc::ptr_eq(&self.owner, &other.owner)
    }
}

/// Borrowed memory, one piece for each slot. Its user may access a piece without a request in flight.
#[derive(Debug)]
pub(crate) struct Pieces<'a> {
    pieces: Vec<(NonNull<u8>, usize)>,
    _borrowed: PhantomData<&'a mut [u8]>,
}

impl<'a> Pieces<'a> {
    pub(crate) fn new(pieces: Vec<&'a mut [u8]>) -> Self {
        let parts = pieces.into_iter().map(|piece| {
            let length = piece.len();
            (NonNull::from(piece).cast(), length)
        });
        Self {
            pieces: parts.collect(),
            _borrowed: PhantomData,
        }
    }

    pub(crate) fn count(&self) -> usize {
        self.pieces.len()
    }

    /// A piece.
    ///
    /// # Safety
    ///
    /// No request for it may be in flight before the reference ends.
    pub(crate) unsafe fn memory(&mut self, piece: usize) -> &mut [u8] {
        let (start, length) = self.pieces[piece];
        // SAFETY: the memory is borrowed mutably for longer than this value lives, and only requests use it beside the caller.
        unsafe { std::slice::from_raw_parts_mut(start.as_ptr(), length) }
    }
}

// SAFETY: the memory is borrowed for longer than the value lives, `pointer` checks the bounds, and `memory`, whose callers know
// the requests in flight, is the only way to a reference.
unsafe impl Target for Pieces<'_> {
    fn pointer(&self, slot: usize, request: &Request) -> *mut u8 {
        let (start, length) = self.pieces[slot];
        let end = request.start.checked_add(request.length);
        assert!(
            end.is_some_and(|end| end <= length),
            "a request is within its piece"
        );
        // SAFETY: the offset is within the piece, or at its end for a request without bytes.
        unsafe { start.as_ptr().add(request.start) }
    }
}
