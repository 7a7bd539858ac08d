//! Queue pairs, and the requests that are posted to them.

use std::ffi::c_int;
use std::io;
use std::ptr::{self, NonNull};
use std::sync::Arc;

use super::completion_queue::CompletionQueue;
use super::errno::check;
use super::extension::limit_rate;
use super::registration::{Domain, Registration};
use crate::memory::Span;
use crate::verbs::bindings::{
    Capacity, QueuePair, QueuePairAttributes, QueuePairInit, RELIABLE_CONNECTION, ReceiveRequest,
    SET_ADDRESS, Segment, SendRequest,
};

/// The capacity of a queue pair.
#[derive(Debug, Clone, Copy)]
pub(in crate::verbs) struct Depths {
    pub(in crate::verbs) sends: usize,
    pub(in crate::verbs) receives: usize,
    /// The longest message that may arrive.
    pub(in crate::verbs) message_bytes: usize,
}

/// Parts of memory in one request: a message and its payload.
const MAX_PARTS: usize = 2;

/// Requests that were not handed to the device yet.
#[derive(Debug, Default)]
pub(in crate::verbs) struct Batch {
    requests: Vec<(SendRequest, [Segment; MAX_PARTS])>,
}

// SAFETY: its pointers point into itself, and are set again whenever it is posted.
unsafe impl Send for Batch {}

impl Batch {
    /// Adds a request over contiguous parts of registrations.
    pub(in crate::verbs) fn add<const N: usize>(
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
pub(in crate::verbs) struct OwnQueuePair {
    queue_pair: NonNull<QueuePair>,
    domain: Arc<Domain>,
    _queues: [Arc<CompletionQueue>; 2],
}

// SAFETY: as for the device.
unsafe impl Send for OwnQueuePair {}

impl OwnQueuePair {
    pub(in crate::verbs) fn new(
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
    pub(in crate::verbs) fn number(&self) -> u32 {
        // SAFETY: the queue pair lives as long as this value.
        unsafe { self.queue_pair.as_ref() }.number
    }

    /// Modifies the attributes in `mask`.
    pub(in crate::verbs) fn modify(
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

    /// The static rate in the address of its peer, as the device has it: a number of `enum ibv_rate`.
    ///
    /// # Errors
    ///
    /// When the device does not tell.
    pub(in crate::verbs) fn static_rate(&self) -> io::Result<u8> {
        let mut attributes = QueuePairAttributes::default();
        let mut init = QueuePairInit {
            owner: ptr::null_mut(),
            send_queue: ptr::null_mut(),
            receive_queue: ptr::null_mut(),
            shared_receives: ptr::null_mut(),
            capacity: Capacity::default(),
            kind: 0,
            signals_all: 0,
        };
        // SAFETY: the queue pair lives as long as this value; both structures have the size of the C ones.
        check(unsafe {
            (self.domain.device.verbs.ibv_query_qp)(
                self.queue_pair.as_ptr(),
                &raw mut attributes,
                SET_ADDRESS,
                &raw mut init,
            )
        })?;
        Ok(attributes.address.static_rate)
    }

    /// Limits the rate of its packets, in kilobits per second. It must be ready to send.
    ///
    /// # Errors
    ///
    /// When the device has no limiter, or refuses the rate.
    pub(in crate::verbs) fn limit_rate(&self, rate: u32) -> io::Result<()> {
        limit_rate(self.domain.device.context, self.queue_pair, rate)
    }

    /// Posts all requests of a batch; their registrations outlive the queue pair.
    pub(in crate::verbs) fn send(&self, batch: &mut Batch) -> io::Result<()> {
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
    pub(in crate::verbs) fn receive(
        &self,
        id: u64,
        sink: &Registration,
        span: Span,
    ) -> io::Result<()> {
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
