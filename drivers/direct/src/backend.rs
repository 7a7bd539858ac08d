//! What an engine does: it carries out requests whose memory it is given by address.

use std::os::fd::{BorrowedFd, RawFd};
use std::time::Duration;

use rustix::io::Errno;

use crate::request::Call;

/// The most requests of a queue.
pub const MAX_REQUESTS: usize = 32;

/// A request with the address of its bytes.
#[derive(Debug, Clone, Copy)]
pub(crate) struct RawRequest {
    pub(crate) slot: usize,
    pub(crate) call: Call,
    pub(crate) file: RawFd,
    pub(crate) offset: u64,
    pub(crate) start: *mut u8,
    pub(crate) length: usize,
    /// It writes through the page cache: see [`gridhaul_stack::WriteLock`].
    pub(crate) takes_turn: bool,
}

// SAFETY: the memory of a request belongs to it until it has completed, on any thread.
unsafe impl Send for RawRequest {}

/// Carries out requests.
pub(crate) trait Backend {
    /// Begins a request.
    ///
    /// # Safety
    ///
    /// Until [`Backend::reap`] has returned its completion, the file stays open, the memory stays allocated, and no reference to
    /// it is used.
    unsafe fn submit(&mut self, request: RawRequest);

    /// Passes the slots and results of completed requests to `ended`. Waits for one if `waits`.
    fn reap(&mut self, waits: bool, ended: &mut dyn FnMut(usize, Result<usize, Errno>));

    /// Gives up the requests that have not begun, and will not: the kernel does not use their memory. They end with ECANCELED, now or
    /// at the next [`Backend::reap`]. No request is submitted afterwards before the queue ends.
    fn withdraw(&mut self, ended: &mut dyn FnMut(usize, Result<usize, Errno>));

    /// Readable when `reap` would return something.
    fn descriptor(&self) -> BorrowedFd<'_>;

    /// How soon to call [`Backend::reap`] again because the kernel has not accepted a request. `None` if it has all.
    fn retry_in(&self) -> Option<Duration>;
}
