//! Devices, memory regions and queues as owned values.
//!
//! Each value holds what it depends on, so that nothing is destroyed before its users. Errors are
//! those of the operating system; the callers explain them.

use std::ffi::{c_int, c_uint, c_void};
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::ptr::{self, NonNull};
use std::sync::Arc;

use rustix::fs::OFlags;

use super::bindings::{
    ACCESS_LOCAL_WRITE, ACCESS_REMOTE_READ, ACCESS_REMOTE_WRITE, AsyncEvent, Capacity,
    CompletionChannel, Context, Device, DeviceAttributes, MemoryRegion, PortAttributes, QueuePair,
    QueuePairAttributes, QueuePairInit, RELIABLE_CONNECTION, ReceiveRequest, Segment, SendRequest,
    Verbs, WorkCompletion, text,
};
use crate::memory::{Memory, Span};
use crate::provider::Access;

/// An open device. It has a single user, which gets its events.
#[derive(Debug)]
pub(super) struct OpenDevice {
    verbs: &'static Verbs,
    context: NonNull<Context>,
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
    pub(super) fn open(verbs: &'static Verbs, name: &str) -> io::Result<Option<Self>> {
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
    pub(super) fn attributes(&self) -> io::Result<DeviceAttributes> {
        // SAFETY: all fields are integers, for which zero is a value.
        let mut attributes: DeviceAttributes = unsafe { std::mem::zeroed() };
        // SAFETY: the device is open, and the structure has the size of the C one.
        let code =
            unsafe { (self.verbs.ibv_query_device)(self.context.as_ptr(), &raw mut attributes) };
        check(code).map(|()| attributes)
    }

    /// The state of a port.
    pub(super) fn port(&self, number: u8) -> io::Result<PortAttributes> {
        // SAFETY: all fields are integers, for which zero is a value.
        let mut attributes: PortAttributes = unsafe { std::mem::zeroed() };
        // SAFETY: the device is open; the library fills at most the size of the C structure.
        let code = unsafe {
            (self.verbs.ibv_query_port)(self.context.as_ptr(), number, &raw mut attributes)
        };
        check(code).map(|()| attributes)
    }

    /// Readable when the device has an event.
    pub(super) fn descriptor(&self) -> BorrowedFd<'_> {
        // SAFETY: the context is open while this value lives.
        let descriptor = unsafe { self.context.as_ref() }.async_descriptor;
        // SAFETY: libibverbs keeps it open as long as the context.
        unsafe { BorrowedFd::borrow_raw(descriptor) }
    }

    /// The next event of the device: its kind, and the library's text for it.
    pub(super) fn next_event(&self) -> Option<(c_int, String)> {
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
        Some((event.kind, words))
    }

    /// The library's text for the status of a completion.
    pub(super) fn status_words(&self, status: c_int) -> String {
        // SAFETY: it takes any number.
        text(unsafe { (self.verbs.ibv_wc_status_str)(status) })
    }
}

impl Drop for OpenDevice {
    fn drop(&mut self) {
        // SAFETY: everything that depends on the device holds this value, so nothing does any more.
        unsafe { (self.verbs.ibv_close_device)(self.context.as_ptr()) };
    }
}

/// A protection domain: keys of one domain are invalid in another.
#[derive(Debug)]
pub(super) struct Domain {
    domain: NonNull<c_void>,
    device: Arc<OpenDevice>,
}

// SAFETY: as for the device.
unsafe impl Send for Domain {}
// SAFETY: as for the device.
unsafe impl Sync for Domain {}

impl Domain {
    pub(super) fn new(device: &Arc<OpenDevice>) -> io::Result<Self> {
        // SAFETY: the device is open.
        let domain = unsafe { (device.verbs.ibv_alloc_pd)(device.context.as_ptr()) };
        Ok(Self {
            domain: NonNull::new(domain).ok_or_else(io::Error::last_os_error)?,
            device: Arc::clone(device),
        })
    }
}

impl Drop for Domain {
    fn drop(&mut self) {
        // SAFETY: everything that depends on the domain holds this value, so nothing does any more.
        unsafe { (self.device.verbs.ibv_dealloc_pd)(self.domain.as_ptr()) };
    }
}

/// Memory registered in a domain.
#[derive(Debug)]
pub(super) struct Registration {
    region: NonNull<MemoryRegion>,
    memory: Arc<Memory>,
    domain: Arc<Domain>,
}

// SAFETY: as for the device.
unsafe impl Send for Registration {}
// SAFETY: as for the device.
unsafe impl Sync for Registration {}

impl Registration {
    pub(super) fn new(
        domain: &Arc<Domain>,
        memory: &Arc<Memory>,
        access: Access,
    ) -> io::Result<Self> {
        let all = Span::new(0, memory.length());
        // All memory that a device may write to counts as used, because the device does not report
        // where it wrote.
        let (access, start) = match access {
            // Pages of a file that is open for reading can only be registered in this way.
            Access::Local => (0, memory.pointer_to_read(all).cast_mut()),
            // The device writes the responses of READs there.
            Access::Sink => (ACCESS_LOCAL_WRITE, memory.pointer(all)),
            // ibv_reg_mr(3): remote writing needs local writing.
            Access::RemoteWrite => (
                ACCESS_LOCAL_WRITE | ACCESS_REMOTE_WRITE,
                memory.pointer(all),
            ),
            Access::RemoteRead => (ACCESS_REMOTE_READ, memory.pointer_to_read(all).cast_mut()),
        };
        // SAFETY: the memory is mapped while the registration holds it, and no slice of it exists.
        let region = unsafe {
            (domain.device.verbs.ibv_reg_mr)(
                domain.domain.as_ptr(),
                start.cast(),
                all.length,
                access,
            )
        };
        Ok(Self {
            region: NonNull::new(region).ok_or_else(io::Error::last_os_error)?,
            memory: Arc::clone(memory),
            domain: Arc::clone(domain),
        })
    }

    pub(super) fn memory(&self) -> &Memory {
        &self.memory
    }

    /// The key with which peers prove their right.
    pub(super) fn remote_key(&self) -> u32 {
        // SAFETY: the region lives as long as this value.
        unsafe { self.region.as_ref() }.remote_key
    }

    /// A part of it, for a request.
    ///
    /// # Panics
    ///
    /// When the span is outside the memory, as [`Memory::pointer`].
    fn segment(&self, span: Span) -> Segment {
        Segment {
            address: self.memory.pointer_to_read(span).expose_provenance() as u64,
            length: u32::try_from(span.length)
                .expect("a message is no longer than Limits::message_bytes"),
            // SAFETY: the region lives as long as this value.
            local_key: unsafe { self.region.as_ref() }.local_key,
        }
    }
}

impl Drop for Registration {
    fn drop(&mut self) {
        // SAFETY: it is registered, and this is the only place that ends that.
        let code = unsafe { (self.domain.device.verbs.ibv_dereg_mr)(self.region.as_ptr()) };
        if code != 0 {
            // A device that still knows the pages could write to them or read them when they belong
            // to another channel. So they are never reused; they count as taken until the process
            // ends.
            std::mem::forget(Arc::clone(&self.memory));
        }
    }
}

/// A queue of completions.
#[derive(Debug)]
pub(super) struct CompletionQueue {
    queue: NonNull<c_void>,
    channel: NonNull<CompletionChannel>,
    device: Arc<OpenDevice>,
}

// SAFETY: as for the device.
unsafe impl Send for CompletionQueue {}
// SAFETY: as for the device.
unsafe impl Sync for CompletionQueue {}

impl CompletionQueue {
    /// With room for this many completions.
    pub(super) fn new(device: &Arc<OpenDevice>, entries: usize) -> io::Result<Self> {
        let verbs = device.verbs;
        let entries = c_int::try_from(entries).map_err(|_| io::ErrorKind::InvalidInput)?;
        let context = device.context.as_ptr();
        // SAFETY: the device is open.
        let channel = unsafe { (verbs.ibv_create_comp_channel)(context) };
        let channel = NonNull::new(channel).ok_or_else(io::Error::last_os_error)?;
        // SAFETY: the device is open, and the channel belongs to it.
        let queue = unsafe {
            (verbs.ibv_create_cq)(context, entries, ptr::null_mut(), channel.as_ptr(), 0)
        };
        let Some(queue) = NonNull::new(queue) else {
            let error = io::Error::last_os_error();
            // SAFETY: the channel was made above, and nothing uses it.
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
    pub(super) fn descriptor(&self) -> BorrowedFd<'_> {
        // SAFETY: the channel lives as long as this value.
        let descriptor = unsafe { self.channel.as_ref() }.descriptor;
        // SAFETY: libibverbs keeps it open as long as the channel.
        unsafe { BorrowedFd::borrow_raw(descriptor) }
    }

    /// Requests an event for the next completion.
    pub(super) fn arm(&self) -> io::Result<()> {
        // SAFETY: the context is open.
        let arm = unsafe { self.device.context.as_ref() }.req_notify_cq;
        // SAFETY: the queue lives as long as this value, and belongs to the context.
        check(unsafe { arm(self.queue.as_ptr(), 0) })
    }

    /// Reads an event; returns whether there was one.
    pub(super) fn take_event(&self) -> bool {
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
    pub(super) fn poll(&self, completions: &mut [WorkCompletion]) -> io::Result<usize> {
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

/// The capacity of a queue pair.
#[derive(Debug, Clone, Copy)]
pub(super) struct Depths {
    pub(super) sends: usize,
    pub(super) receives: usize,
    /// The longest message that may arrive.
    pub(super) message_bytes: usize,
}

/// Parts of memory in one request: a message and its payload.
const MAX_PARTS: usize = 2;

/// Requests that were not handed to the device yet.
#[derive(Debug, Default)]
pub(super) struct Batch {
    requests: Vec<(SendRequest, [Segment; MAX_PARTS])>,
}

// SAFETY: its pointers point into itself, and are set again whenever it is posted.
unsafe impl Send for Batch {}

impl Batch {
    /// Adds a request over contiguous parts of registrations.
    pub(super) fn add<const N: usize>(
        &mut self,
        mut request: SendRequest,
        parts: [(&Registration, Span); N],
    ) {
        const { assert!(N <= MAX_PARTS) };
        // A message may be empty; its payload is not.
        let counts = parts.iter().map(|(_, span)| c_int::from(span.length > 0));
        request.segment_count = counts.sum();
        let mut segments = [Segment::EMPTY; MAX_PARTS];
        for (segment, (source, span)) in segments.iter_mut().zip(parts) {
            *segment = source.segment(span);
        }
        self.requests.push((request, segments));
    }
}

/// A queue pair with a reliable connection (RC).
#[derive(Debug)]
pub(super) struct OwnQueuePair {
    queue_pair: NonNull<QueuePair>,
    domain: Arc<Domain>,
    _queues: [Arc<CompletionQueue>; 2],
}

// SAFETY: as for the device.
unsafe impl Send for OwnQueuePair {}

impl OwnQueuePair {
    pub(super) fn new(
        domain: &Arc<Domain>,
        requests: &Arc<CompletionQueue>,
        messages: &Arc<CompletionQueue>,
        depths: Depths,
    ) -> io::Result<Self> {
        let number = |depth| u32::try_from(depth).map_err(|_| io::ErrorKind::InvalidInput);
        let mut init = QueuePairInit {
            owner: ptr::null_mut(),
            send_queue: requests.queue.as_ptr(),
            receive_queue: messages.queue.as_ptr(),
            shared_receives: ptr::null_mut(),
            capacity: Capacity {
                sends: number(depths.sends)?,
                receives: number(depths.receives)?,
                send_segments: number(MAX_PARTS)?,
                receive_segments: 1,
                inline_bytes: 0,
            },
            kind: RELIABLE_CONNECTION,
            signals_all: 0,
        };
        // SAFETY: domain and queues are valid, and are held by the value below.
        let queue_pair =
            unsafe { (domain.device.verbs.ibv_create_qp)(domain.domain.as_ptr(), &raw mut init) };
        Ok(Self {
            queue_pair: NonNull::new(queue_pair).ok_or_else(io::Error::last_os_error)?,
            domain: Arc::clone(domain),
            _queues: [requests, messages].map(Arc::clone),
        })
    }

    /// Its number (QPN) for the peer.
    pub(super) fn number(&self) -> u32 {
        // SAFETY: the queue pair lives as long as this value.
        unsafe { self.queue_pair.as_ref() }.number
    }

    /// Modifies the attributes in `mask`.
    pub(super) fn modify(
        &self,
        mut attributes: QueuePairAttributes,
        mask: c_int,
    ) -> io::Result<()> {
        // SAFETY: the queue pair lives as long as this value; the structure has the size of the C
        // one.
        check(unsafe {
            (self.domain.device.verbs.ibv_modify_qp)(
                self.queue_pair.as_ptr(),
                &raw mut attributes,
                mask,
            )
        })
    }

    /// Posts all requests of a batch; their registrations outlive the queue pair.
    pub(super) fn send(&self, batch: &mut Batch) -> io::Result<()> {
        let mut first = ptr::null_mut();
        for (request, segments) in batch.requests.iter_mut().rev() {
            request.segments = segments.as_mut_ptr();
            request.next = first;
            first = request;
        }
        if first.is_null() {
            return Ok(());
        }
        let mut refused = ptr::null_mut();
        // SAFETY: the context is open.
        let post = unsafe { self.domain.device.context.as_ref() }.post_send;
        // SAFETY: the queue pair is valid; requests and segments are copied before the call
        // returns. The device reads and writes registered memory only, of which no slice exists.
        let code = unsafe { post(self.queue_pair.as_ptr(), first, &raw mut refused) };
        batch.requests.clear();
        check(code)
    }

    /// Posts a receive buffer for a message.
    pub(super) fn receive(&self, id: u64, sink: &Registration, span: Span) -> io::Result<()> {
        let mut segment = sink.segment(span);
        let mut request = ReceiveRequest {
            id,
            next: ptr::null_mut(),
            segments: &raw mut segment,
            segment_count: 1,
        };
        let mut refused = ptr::null_mut();
        // SAFETY: the context is open.
        let post = unsafe { self.domain.device.context.as_ref() }.post_recv;
        // SAFETY: as in `send`.
        check(unsafe { post(self.queue_pair.as_ptr(), &raw mut request, &raw mut refused) })
    }
}

impl Drop for OwnQueuePair {
    fn drop(&mut self) {
        // SAFETY: this is the only place that destroys it, and all its events were acknowledged. If
        // the call fails, the device is gone.
        unsafe { (self.domain.device.verbs.ibv_destroy_qp)(self.queue_pair.as_ptr()) };
    }
}

/// Functions of libibverbs return an errno value, or -1 and set errno.
pub(super) fn check(code: c_int) -> io::Result<()> {
    match code {
        0 => Ok(()),
        1.. => Err(io::Error::from_raw_os_error(code)),
        _ => Err(io::Error::last_os_error()),
    }
}

pub(super) fn set_nonblocking(descriptor: BorrowedFd<'_>) -> io::Result<()> {
    let flags = rustix::fs::fcntl_getfl(descriptor.as_fd())?;
    Ok(rustix::fs::fcntl_setfl(
        descriptor,
        flags | OFlags::NONBLOCK,
    )?)
}
