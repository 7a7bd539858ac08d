//! Completion queues.

use std::ffi::{c_int, c_uint, c_void};
use std::io;
use std::os::fd::BorrowedFd;
use std::ptr::{self, NonNull};
use std::sync::Arc;

use super::device::OpenDevice;
use super::errno::{check, set_nonblocking};
use crate::verbs::bindings::{CompletionChannel, WorkCompletion};

/// A queue of completions.
#[derive(Debug)]
pub(in crate::verbs) struct CompletionQueue {
    pub(super) queue: NonNull<c_void>,
    channel: NonNull<CompletionChannel>,
    device: Arc<OpenDevice>,
}

// SAFETY: as for the device.
unsafe impl Send for CompletionQueue {}
// SAFETY: as for the device.
unsafe impl Sync for CompletionQueue {}

impl CompletionQueue {
    /// With room for this many completions, and the interrupt of this number.
    pub(in crate::verbs) fn new(
        device: &Arc<OpenDevice>,
        entries: usize,
        vector: c_int,
    ) -> io::Result<Self> {
        let verbs = device.verbs;
        let entries = c_int::try_from(entries).map_err(|_| io::ErrorKind::InvalidInput)?;
        let context = device.context.as_ptr();
        // SAFETY: the device is open.
        let channel = unsafe { (verbs.ibv_create_comp_channel)(context) };
        let channel = NonNull::new(channel).ok_or_else(io::Error::last_os_error)?;
        // SAFETY: the device is open, and the channel belongs to it.
        let queue = unsafe {
            (verbs.ibv_create_cq)(context, entries, ptr::null_mut(), channel.as_ptr(), vector)
        };
        let Some(queue) = NonNull::new(queue) else {
            let error = io::Error::last_os_error();
            // SAFETY: the channel was made above, and is not used.
            unsafe { (verbs.ibv_destroy_comp_channel)(channel.as_ptr()) };
            return Err(error);
        };
        let queue = Self {
            queue,
            channel,
            device: Arc::clone(device),
        };
        set_nonblocking(queue.descriptor())?;
        Ok(queue)
    }

    /// Readable with the first completion after [`CompletionQueue::arm`].
    pub(in crate::verbs) fn descriptor(&self) -> BorrowedFd<'_> {
        // SAFETY: the channel lives as long as this value.
        let descriptor = unsafe { self.channel.as_ref() }.descriptor;
        // SAFETY: libibverbs keeps it open as long as the channel.
        unsafe { BorrowedFd::borrow_raw(descriptor) }
    }

    /// Requests an event for the next completion.
    pub(in crate::verbs) fn arm(&self) -> io::Result<()> {
        // SAFETY: the context is open.
        let arm = unsafe { self.device.context.as_ref() }.req_notify_cq;
        // SAFETY: the queue lives as long as this value, and belongs to the context.
        check(unsafe { arm(self.queue.as_ptr(), 0) })
    }

    /// Reads an event; returns whether there was one.
    pub(in crate::verbs) fn take_event(&self) -> bool {
        let (mut queue, mut owner) = (ptr::null_mut(), ptr::null_mut());
        let verbs = self.device.verbs;
        // SAFETY: the channel lives as long as this value, and its descriptor does not block.
        let code = unsafe {
            (verbs.ibv_get_cq_event)(self.channel.as_ptr(), &raw mut queue, &raw mut owner)
        };
        if code != 0 {
            return false;
        }
        // SAFETY: the event was just received, and is acknowledged once; without that the queue
        // could not be destroyed.
        unsafe { (verbs.ibv_ack_cq_events)(self.queue.as_ptr(), 1 as c_uint) };
        true
    }

    /// Reads completions; returns the count.
    ///
    /// # Errors
    ///
    /// When the queue was overrun, or its device is gone.
    pub(in crate::verbs) fn poll(&self, completions: &mut [WorkCompletion]) -> io::Result<usize> {
        // SAFETY: the context is open.
        let poll = unsafe { self.device.context.as_ref() }.poll_cq;
        let room = c_int::try_from(completions.len()).unwrap_or(c_int::MAX);
        // SAFETY: the queue lives as long as this value and belongs to the context; there is room
        // for so many.
        let count = unsafe { poll(self.queue.as_ptr(), room, completions.as_mut_ptr()) };
        usize::try_from(count).map_err(|_| io::ErrorKind::BrokenPipe.into())
    }
}

impl Drop for CompletionQueue {
    fn drop(&mut self) {
        let verbs = self.device.verbs;
        // SAFETY: queue pairs hold the queue, so none uses it any more.
        unsafe { (verbs.ibv_destroy_cq)(self.queue.as_ptr()) };
        // SAFETY: the only queue of the channel is destroyed.
        unsafe { (verbs.ibv_destroy_comp_channel)(self.channel.as_ptr()) };
    }
}
