//! Pages that are used by one channel after another.
//!
//! Channels belong to different sessions, and a peer can make us deliver or send any byte of a
//! ring: it announces bytes that it never wrote, or READs bytes that we never announced. So pages
//! that a channel has used have another type than pages that a channel can get, and clearing is the
//! only way from one to the other.
//!
//! Pages are cleared in place, as far as they were used. No reference to them exists at that time: a
//! registered region holds its [`Memory`](super::Memory), and the pages come here when that is
//! dropped. Populated pages stay populated; mapping new ones takes several times as long as writing
//! zeros to these.

use std::fmt;
use std::io;
use std::num::NonZeroUsize;

use super::pages::Pages;

/// Pages that contain only zeros.
#[derive(Debug)]
pub(super) struct Cleared(Pages);

impl Cleared {
    /// Maps new pages of `length` bytes, which the kernel has cleared, as long as they are wanted.
    ///
    /// # Errors
    ///
    /// As [`Pages::map`].
    pub(super) fn map(
        length: NonZeroUsize,
        are_wanted: &(dyn Fn() -> bool + Sync),
    ) -> io::Result<Self> {
        Pages::map(length, are_wanted).map(Self)
    }

    /// The pages, for an owner that tracks what is written to them.
    pub(super) fn into_pages(self) -> Pages {
        self.0
    }
}

/// Pages whose first bytes may be a channel's data; the others are zero.
#[derive(Debug)]
pub(super) struct Used {
    pages: Pages,
    /// The number of these first bytes.
    used_bytes: usize,
}

impl Used {
    /// Pages that were [`Cleared`], and have not been written to from `used_bytes` on.
    pub(super) fn new(pages: Pages, used_bytes: usize) -> Self {
        Self { pages, used_bytes }
    }

    pub(super) fn length(&self) -> usize {
        self.pages.length()
    }

    /// Overwrites the channel's data with zeros.
    pub(super) fn clear(self) -> Cleared {
        let Self { pages, used_bytes } = self;
        let used_bytes = used_bytes.min(pages.length());
        // SAFETY: the mapping is at least that long, is writable, and belongs to this value alone.
        unsafe { pages.start().as_ptr().write_bytes(0, used_bytes) };
        Cleared(pages)
    }
}

/// Takes back the pages of a region when it is dropped. The pool does: it makes the regions, so a
/// region that named the pool would close a circle between the two modules.
pub(super) trait Reclaim: fmt::Debug + Send + Sync {
    /// Keeps the pages for another channel. Returns them if they are not wanted.
    fn reclaim(&self, pages: Used) -> Result<(), Used>;

    /// A device has not ended its registration of the pages.
    fn stay_pinned(&self);
}
