//! Pages that go from one channel to another.
//!
//! Channels belong to different sessions, and a peer can have us deliver or send any byte of a ring: it announces what it
//! never wrote, or READs what we never announced. So pages that a channel has used are of another type than pages that a
//! channel can get, and clearing is the only way from one to the other.
//!
//! Pages are cleared in place, and only as far as they were used. Nothing refers to them any more at that time: a region that is
//! registered holds its [`Memory`](super::Memory), and the pages come here when that is dropped. Pages that were populated once
//! stay populated: to map new ones takes several times as long as to write zeros to these.

use std::io;
use std::num::NonZeroUsize;

use super::pages::Pages;

/// Pages whose bytes are all zero.
#[derive(Debug)]
pub(super) struct Cleared(Pages);

impl Cleared {
    /// Maps new pages of `length` bytes; the kernel clears them.
    ///
    /// # Errors
    ///
    /// When there is no memory.
    pub(super) fn map(length: NonZeroUsize) -> io::Result<Self> {
        Pages::map(length).map(Self)
    }

    /// The pages, for whoever keeps account of what is written to them.
    pub(super) fn into_pages(self) -> Pages {
        self.0
    }
}

/// Pages whose first bytes may be those of a channel; the others are zero.
#[derive(Debug)]
pub(super) struct Used {
    pages: Pages,
    /// How many of the first bytes.
    used_bytes: usize,
}

impl Used {
    /// Pages that were [`Cleared`], of which no byte from `used_bytes` on was written to.
    pub(super) fn new(pages: Pages, used_bytes: usize) -> Self {
        Self { pages, used_bytes }
    }

    pub(super) fn length(&self) -> usize {
        self.pages.length()
    }

    /// Writes zeros over what the channel has left.
    pub(super) fn clear(self) -> Cleared {
        let Self { pages, used_bytes } = self;
        let used_bytes = used_bytes.min(pages.length());
        // SAFETY: the mapping is at least that long, may be written to, and belongs to this value alone.
        unsafe { pages.start().as_ptr().write_bytes(0, used_bytes) };
        Cleared(pages)
    }
}
