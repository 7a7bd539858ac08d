//! A queue pair of async-rdma, and its messages.
//!
//! async-rdma does not report the length of a received message, so messages begin with their length; therefore
//! both ends must use this provider. It allocates and registers memory for every message that may arrive.

use std::alloc::Layout;
use std::io;
use std::ptr;
use std::sync::Arc;
use std::time::SystemTime;

use async_rdma::{
    LocalMr, LocalMrReadAccess, LocalMrWriteAccess, MrAccess, MrToken, Rdma, RemoteMr,
};
use gridhaul_rdma::provider::{MAX_MESSAGE_BYTES, Message, Remote, Span};
use tokio::sync::RwLock;
use tokio::task::yield_now;

use crate::in_order::InOrder;
use crate::signal::Signal;

/// A registered region of memory. A WRITE takes its lock shared and a READ into it exclusive, as async-rdma
/// requires.
pub(crate) type Region = Arc<RwLock<LocalMr>>;

/// Receive buffers; the peer's device retries a message without one.
pub(crate) const RECEIVES: usize = 128;

/// A message and its length.
const SLOT_BYTES: usize = 1 + MAX_MESSAGE_BYTES;

/// The length field of the farewell, which is the last message.
const FAREWELL: u8 = u8::MAX;

/// The identifier of the farewell; the identifiers of the engine are positions in a stream.
const FAREWELL_ID: u64 = u64::MAX;

/// A connected queue pair.
#[derive(Debug)]
pub(crate) struct QueuePair {
    requests: InOrder<()>,
    messages: InOrder<LocalMr>,
    /// The memory of messages in flight.
    slots: Arc<LocalMr>,
    /// Posted messages.
    sent: usize,
    depth: usize,
    /// Why no further message arrives.
    failure: Option<io::Error>,
    rdma: Arc<Rdma>,
}

/// An event of a queue pair.
#[derive(Debug)]
pub(crate) enum Event {
    /// The request with this identifier is complete.
    Done(u64),
    Received(Vec<u8>),
    /// The peer has ended its sending direction.
    Farewell,
    /// The peer's device has acknowledged our farewell.
    FarewellSent,
}

impl QueuePair {
    /// Takes a queue pair that can send and receive, and registers memory for messages.
    ///
    /// # Errors
    ///
    /// If memory for messages cannot be registered.
    pub(crate) fn new(rdma: Rdma, depth: usize, signal: &Arc<Signal>) -> io::Result<Self> {
        let bytes = (depth + 1) * SLOT_BYTES;
        let layout = Layout::from_size_align(bytes, 8).map_err(io::Error::other)?;
        let mut queue_pair = Self {
            requests: InOrder::new(signal),
            messages: InOrder::new(signal),
            slots: Arc::new(rdma.alloc_local_mr(layout)?),
            sent: 0,
            depth,
            failure: None,
            rdma: Arc::new(rdma),
        };
        for _ in 0..RECEIVES {
            queue_pair.expect_message();
        }
        Ok(queue_pair)
    }

    /// The handle that registers memory.
    pub(crate) fn rdma(&self) -> &Rdma {
        &self.rdma
    }

    /// Whether no further request may be posted. There is still room for the farewell.
    pub(crate) fn is_full(&self) -> bool {
        self.requests.len() >= self.depth
    }

    /// Whether all requests are complete.
    pub(crate) fn is_idle(&self) -> bool {
        self.requests.len() == 0
    }

    /// Copies a part of a region to the peer.
    pub(crate) fn write(&mut self, id: u64, region: &Region, span: Span, to: Remote) {
        let (rdma, region) = (Arc::clone(&self.rdma), Arc::clone(region));
        self.requests.post(id, async move {
            let region = region.read().await;
            let source = region.get(span.offset..span.offset + span.length);
            let source = source.ok_or_else(outside)?;
            rdma.write(&source, &mut remote(to, span.length)?).await
        });
    }

    /// Copies memory of the peer to a part of a region.
    pub(crate) fn read(&mut self, id: u64, region: &Region, span: Span, from: Remote) {
        let (rdma, region) = (Arc::clone(&self.rdma), Arc::clone(region));
        self.requests.post(id, async move {
            let mut region = region.write().await;
            let sink = region.get_mut(span.offset..span.offset + span.length);
            let mut sink = sink.ok_or_else(outside)?;
            rdma.read(&mut sink, &remote(from, span.length)?).await?;
            // async-rdma releases its lock shortly after it reports the request as complete.
            while !sink.is_writeable() {
                yield_now().await;
            }
            Ok(())
        });
    }

    /// Sends a message.
    pub(crate) fn send(&mut self, id: u64, message: &Message) {
        let bytes = message.as_bytes();
        let length = u8::try_from(bytes.len()).unwrap_or(FAREWELL);
        self.send_slot(id, length, bytes);
    }

    /// Sends the farewell.
    pub(crate) fn bid_farewell(&mut self) {
        self.send_slot(FAREWELL_ID, FAREWELL, &[]);
    }

    fn send_slot(&mut self, id: u64, head: u8, bytes: &[u8]) {
        // At most `depth` messages and the farewell are in flight, and they complete in order: this slot is free.
        let offset = self.sent % (self.depth + 1) * SLOT_BYTES;
        self.sent = self.sent.wrapping_add(1);
        let slot = ptr::with_exposed_provenance_mut::<u8>(self.slots.addr() + offset);
        let length = bytes.len().min(MAX_MESSAGE_BYTES);
        // SAFETY: `slots` has `depth + 1` slots, and the device no longer reads this one.
        unsafe { slot.write(head) };
        // SAFETY: as above; a slot holds the length and the longest message.
        unsafe { ptr::copy_nonoverlapping(bytes.as_ptr(), slot.add(1), length) };
        let (rdma, slots) = (Arc::clone(&self.rdma), Arc::clone(&self.slots));
        self.requests.post(id, async move {
            let slot = slots.get(offset..offset + 1 + length).ok_or_else(outside)?;
            rdma.send_raw(&slot).await
        });
    }

    /// The next event, if there is one.
    ///
    /// # Errors
    ///
    /// If the queue pair has failed.
    pub(crate) fn next(&mut self) -> io::Result<Option<Event>> {
        if self.failure.is_none() {
            match self.messages.next() {
                Some((_, Ok(message))) => {
                    self.expect_message();
                    return decode(&message).map(Some);
                }
                // The error of a failed request is more exact: messages are flushed because of it.
                Some((_, Err(error))) => self.failure = Some(error),
                None => {}
            }
        }
        match self.requests.next() {
            Some((FAREWELL_ID, Ok(()))) => Ok(Some(Event::FarewellSent)),
            Some((id, Ok(()))) => Ok(Some(Event::Done(id))),
            Some((_, Err(error))) => Err(error),
            None => self.failure.take().map_or(Ok(None), Err),
        }
    }

    fn expect_message(&mut self) {
        let rdma = Arc::clone(&self.rdma);
        self.messages.post(0, async move {
            let layout = Layout::new::<[u8; SLOT_BYTES]>();
            rdma.receive_raw(layout).await
        });
    }
}

fn decode(message: &LocalMr) -> io::Result<Event> {
    let bytes = message.as_slice();
    let (&length, content) = bytes.split_first().ok_or_else(outside)?;
    if length == FAREWELL {
        return Ok(Event::Farewell);
    }
    content
        .get(..usize::from(length))
        .map(|content| Event::Received(content.to_vec()))
        .ok_or_else(|| io::Error::other(format!("the peer sent a message of {length} bytes")))
}

/// Describes memory of the peer for async-rdma, which checks neither lease time nor rights; the peer's device does.
fn remote(at: Remote, length: usize) -> io::Result<RemoteMr> {
    Ok(RemoteMr::new(MrToken {
        addr: usize::try_from(at.address).map_err(io::Error::other)?,
        len: length,
        rkey: at.key,
        ddl: SystemTime::UNIX_EPOCH,
        access: 0,
    }))
}

fn outside() -> io::Error {
    io::Error::other("a request names memory outside of its region")
}
