//! An open device.

use std::ffi::c_int;
use std::io;
use std::os::fd::BorrowedFd;
use std::ptr::NonNull;

use super::errno::{check, set_nonblocking};
use super::extension::{RateRange, rate_range};
use crate::verbs::bindings::{
    AsyncEvent, Context, Device, DeviceAttributes, PortAttributes, Verbs, text,
};

/// An event of a device or a port.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::verbs) struct DeviceEvent {
    pub(in crate::verbs) kind: c_int,
    /// The number of the port, for an event of a port.
    pub(in crate::verbs) port: c_int,
    /// The library's text for the kind.
    pub(in crate::verbs) words: String,
}

/// An open device. It has a single user, which reads its events.
#[derive(Debug)]
pub(in crate::verbs) struct OpenDevice {
    pub(super) verbs: &'static Verbs,
    pub(super) context: NonNull<Context>,
}

// SAFETY: ibv_open_device(3) and all functions on what it returns may be called from any thread.
unsafe impl Send for OpenDevice {}
// SAFETY: as above.
unsafe impl Sync for OpenDevice {}

impl OpenDevice {
    /// Opens the device of this name; `None` if there is none.
    ///
    /// # Errors
    ///
    /// When the kernel has no verbs, or its device file cannot be opened.
    pub(in crate::verbs) fn open(verbs: &'static Verbs, name: &str) -> io::Result<Option<Self>> {
        let mut count = 0;
        // SAFETY: the count is ours.
        let list = unsafe { (verbs.ibv_get_device_list)(&raw mut count) };
        let list = NonNull::new(list).ok_or_else(io::Error::last_os_error)?;
        let is_it = |&device: &*mut Device| {
            // SAFETY: the device belongs to the list, which is not freed yet.
            text(unsafe { (verbs.ibv_get_device_name)(device) }) == name
        };
        let count = usize::try_from(count).unwrap_or(0);
        // SAFETY: the list has so many devices.
        let devices = unsafe { std::slice::from_raw_parts(list.as_ptr(), count) };
        let opened = devices.iter().find(|device| is_it(device)).map(|&device| {
            // SAFETY: the device belongs to the list, which is not freed yet.
            let context = unsafe { (verbs.ibv_open_device)(device) };
            NonNull::new(context).ok_or_else(io::Error::last_os_error)
        });
        // SAFETY: a list may be freed after its devices were opened; it is not used after this.
        unsafe { (verbs.ibv_free_device_list)(list.as_ptr()) };
        let Some(context) = opened.transpose()? else {
            return Ok(None);
        };
        let device = Self { verbs, context };
        set_nonblocking(device.descriptor())?;
        Ok(Some(device))
    }

    /// The device's limits.
    pub(in crate::verbs) fn attributes(&self) -> io::Result<DeviceAttributes> {
        // SAFETY: all fields are integers, for which zero is a value.
        let mut attributes: DeviceAttributes = unsafe { std::mem::zeroed() };
        // SAFETY: the device is open, and the structure has the size of the C one.
        let code =
            unsafe { (self.verbs.ibv_query_device)(self.context.as_ptr(), &raw mut attributes) };
        check(code).map(|()| attributes)
    }

    /// The rates to which the device can limit a queue pair, if it can.
    pub(in crate::verbs) fn rate_range(&self) -> Option<RateRange> {
        rate_range(self.context)
    }

    /// The state of a port.
    pub(in crate::verbs) fn port(&self, number: u8) -> io::Result<PortAttributes> {
        // SAFETY: all fields are integers, for which zero is a value.
        let mut attributes: PortAttributes = unsafe { std::mem::zeroed() };
        // SAFETY: the device is open; the library fills at most the size of the C structure.
        let code = unsafe {
            (self.verbs.ibv_query_port)(self.context.as_ptr(), number, &raw mut attributes)
        };
        check(code).map(|()| attributes)
    }

    /// The number of its interrupts for completions (completion vectors).
    pub(in crate::verbs) fn completion_vectors(&self) -> c_int {
        // SAFETY: the context is open while this value lives.
        unsafe { self.context.as_ref() }.completion_vectors
    }

    /// Readable when the device has an event.
    pub(in crate::verbs) fn descriptor(&self) -> BorrowedFd<'_> {
        // SAFETY: the context is open while this value lives.
        let descriptor = unsafe { self.context.as_ref() }.async_descriptor;
        // SAFETY: libibverbs keeps it open as long as the context.
        unsafe { BorrowedFd::borrow_raw(descriptor) }
    }

    /// The next event of the device.
    pub(in crate::verbs) fn next_event(&self) -> Option<DeviceEvent> {
        let mut event = AsyncEvent::EMPTY;
        // SAFETY: the device is open, and its descriptor does not block.
        let code =
            unsafe { (self.verbs.ibv_get_async_event)(self.context.as_ptr(), &raw mut event) };
        if code != 0 {
            return None;
        }
        // SAFETY: the event was just received, and is acknowledged once.
        unsafe { (self.verbs.ibv_ack_async_event)(&raw mut event) };
        // SAFETY: it takes any number.
        let words = text(unsafe { (self.verbs.ibv_event_type_str)(event.kind) });
        // SAFETY: all members of the union are integers or pointers in the same bytes, which the library has filled.
        let port = unsafe { event.element.port };
        Some(DeviceEvent {
            kind: event.kind,
            port,
            words,
        })
    }

    /// The library's text for the status of a completion.
    pub(in crate::verbs) fn status_words(&self, status: c_int) -> String {
        // SAFETY: it takes any number.
        text(unsafe { (self.verbs.ibv_wc_status_str)(status) })
    }
}

impl Drop for OpenDevice {
    fn drop(&mut self) {
        // SAFETY: everything that depends on the device holds this value, so none is left.
        unsafe { (self.verbs.ibv_close_device)(self.context.as_ptr()) };
    }
}
