//! A queue pair with its receive buffers and outgoing messages.

use std::io;
use std::ptr;
use std::sync::Arc;

use super::bindings::{
    OPERATION_READ, OPERATION_SEND, OPERATION_WRITE, OPERATION_WRITE_WITH_IMMEDIATE,
    QueuePairAttributes, SEND_SIGNALED, SET_STATE, STATE_RESET, SendRequest,
};
use super::connection_manager::Connection;
use super::objects::{Batch, CompletionQueue, Depths, Domain, OwnQueuePair, Registration};
use super::requests::Requests;
use crate::memory::{Buffer, Span};
use crate::provider::{MAX_MESSAGE_BYTES, Message, Remote};

/// Identifies a work request or receive buffer in its completion. A replacement queue pair has the
/// same number and another generation, because completions of the earlier one may still arrive.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct CompletionId {
    pub(super) queue_pair: u8,
    pub(super) generation: u16,
    pub(super) subject: Subject,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Subject {
    /// The request with this number.
    Request(u32),
    /// A message of the peer in this slot.
    Message(u32),
}

impl CompletionId {
    /// The identifier of a work request.
    fn encode(self) -> u64 {
        let (kind, number) = match self.subject {
            Subject::Request(number) => (0, number),
            Subject::Message(slot) => (1, slot),
        };
        let [a, b] = self.generation.to_be_bytes();
        let [c, d, e, f] = number.to_be_bytes();
        u64::from_be_bytes([kind, self.queue_pair, a, b, c, d, e, f])
    }

    pub(super) fn decode(id: u64) -> Self {
        let [kind, queue_pair, a, b, number @ ..] = id.to_be_bytes();
        let number = u32::from_be_bytes(number);
        Self {
            queue_pair,
            generation: u16::from_be_bytes([a, b]),
            subject: match kind {
                0 => Subject::Request(number),
                _ => Subject::Message(number),
            },
        }
    }
}

/// A queue pair.
#[derive(Debug)]
pub(super) struct QueuePair {
    own: OwnQueuePair,
    /// The iWARP connection, which is dropped after it.
    connection: Option<Connection>,
    number: u8,
    generation: u16,
    depths: Depths,
    requests: Requests,
    /// The requests that were not handed to the device yet.
    batch: Batch,
    /// Messages that were posted.
    sent: usize,
    /// The device limits its rate.
    is_limited: bool,
    /// Slots for incoming messages, then for outgoing ones.
    slots: Arc<Registration>,
    /// The offset in `slots` of this queue pair's first slot.
    first_slot: usize,
}

/// For requests that do not access the peer's memory.
const NOWHERE: Remote = Remote { address: 0, key: 0 };

/// Shared by all queue pairs of an adapter.
#[derive(Debug)]
pub(super) struct Shared {
    pub(super) domain: Arc<Domain>,
    /// The completion queues of our requests and of the peer's messages. They are two, so that
    /// events for requests can stay unarmed.
    pub(super) requests: Arc<CompletionQueue>,
    pub(super) messages: Arc<CompletionQueue>,
    pub(super) depths: Depths,
    /// [`slot_bytes`] for each queue pair: pages of this endpoint alone, which no other channel
    /// uses before or after. A replacement queue pair takes over the slots. The device reports the
    /// length of a message, not the peer.
    pub(super) slots: Arc<Registration>,
}

/// The memory for the messages of one queue pair.
pub(super) fn slot_bytes(depths: Depths) -> usize {
    depths.receives * depths.message_bytes + depths.sends * MAX_MESSAGE_BYTES
}

impl QueuePair {
    /// A queue pair that is not connected. Among those that share an adapter it has this place.
    pub(super) fn new(
        shared: &Shared,
        number: u8,
        place: usize,
        generation: u16,
    ) -> io::Result<Self> {
        let depths = shared.depths;
        Ok(Self {
            own: OwnQueuePair::new(&shared.domain, &shared.requests, &shared.messages, depths)?,
            connection: None,
            number,
            generation,
            depths,
            requests: Requests::new(depths.sends),
            batch: Batch::default(),
            sent: 0,
            is_limited: false,
            slots: Arc::clone(&shared.slots),
            first_slot: place * slot_bytes(depths),
        })
    }

    /// Its number (QPN) for the peer.
    pub(super) fn number(&self) -> u32 {
        self.own.number()
    }

    pub(super) fn generation(&self) -> u16 {
        self.generation
    }

    /// Takes the connection that the connection manager has made.
    pub(super) fn hold(&mut self, connection: Connection) {
        self.connection = Some(connection);
    }

    pub(super) fn modify(&self, attributes: QueuePairAttributes, mask: i32) -> io::Result<()> {
        self.own.modify(attributes, mask)
    }

    /// Undoes what [`QueuePair::modify`] has set, and discards the receive buffers. Nothing was sent yet.
    pub(super) fn reset(&self) -> io::Result<()> {
        let attributes = QueuePairAttributes {
            state: STATE_RESET,
            ..QueuePairAttributes::default()
        };
        self.own.modify(attributes, SET_STATE)
    }

    /// See [`OwnQueuePair::static_rate`].
    pub(super) fn static_rate(&self) -> io::Result<u8> {
        self.own.static_rate()
    }

    /// Limits it to so many kilobits per second from now on, once it is connected. Returns whether the device does so; otherwise an
    /// earlier limit stays.
    pub(super) fn limit(&mut self, rate: u32) -> bool {
        let is_taken = self.own.limit_rate(rate).is_ok();
        self.is_limited |= is_taken;
        is_taken
    }

    /// If it is limited, it gets the device's highest limit.
    pub(super) fn lift_limit(&mut self, most: u32) {
        if std::mem::take(&mut self.is_limited) {
            // If that is refused as well, nothing else can be done.
            let _ = self.own.limit_rate(most);
        }
    }

    /// Posts all receive buffers. ibv_post_recv(3): only after the queue pair is initialised.
    pub(super) fn expect_messages(&self) -> io::Result<()> {
        let count = u32::try_from(self.depths.receives).unwrap_or(u32::MAX);
        (0..count).try_for_each(|slot| self.expect_message(slot))
    }

    fn expect_message(&self, slot: u32) -> io::Result<()> {
        let name = self.name(Subject::Message(slot));
        let span = self.receive_slot(slot as usize);
        self.own.receive(name.encode(), &self.slots, span)
    }

    /// Whether no further request can be posted.
    pub(super) fn is_full(&self) -> bool {
        self.requests.count() >= self.depths.sends
    }

    /// Outstanding requests.
    pub(super) fn pending(&self) -> usize {
        self.requests.count()
    }

    pub(super) fn write(
        &mut self,
        id: u64,
        source: &Registration,
        span: Span,
        to: Remote,
        immediate: Option<u32>,
    ) {
        let operation = match immediate {
            None => OPERATION_WRITE,
            Some(_) => OPERATION_WRITE_WITH_IMMEDIATE,
        };
        let mut request = self.request(operation, to);
        // ibv_post_send(3): in network byte order.
        request.immediate = immediate.map_or(0, u32::to_be);
        self.batch.add(request, [(source, span)]);
        self.requests.posted(id);
    }

    pub(super) fn read(&mut self, id: u64, sink: &Registration, span: Span, from: Remote) {
        let request = self.request(OPERATION_READ, from);
        self.batch.add(request, [(sink, span)]);
        self.requests.posted(id);
    }

    /// A WRITE of no bytes, which accesses no memory. It completes when the peer's device has acknowledged it.
    pub(super) fn write_nothing(&mut self, id: u64) {
        let request = self.request(OPERATION_WRITE, NOWHERE);
        self.batch.add(request, []);
        self.requests.posted(id);
    }

    pub(super) fn send(&mut self, id: u64, message: &Message) {
        let span = self.prepare(message);
        let request = self.request(OPERATION_SEND, NOWHERE);
        self.batch.add(request, [(&*self.slots, span)]);
        self.sent = self.sent.wrapping_add(1);
        self.requests.posted(id);
    }

    /// Sends a message with a part of a region as payload.
    pub(super) fn carry(
        &mut self,
        id: u64,
        message: &Message,
        source: &Registration,
        payload: Span,
    ) {
        let span = self.prepare(message);
        let request = self.request(OPERATION_SEND, NOWHERE);
        self.batch
            .add(request, [(&*self.slots, span), (source, payload)]);
        self.sent = self.sent.wrapping_add(1);
        self.requests.posted(id);
    }

    /// Hands all batched requests to the device with one call.
    pub(super) fn ring_doorbell(&mut self) -> io::Result<()> {
        self.own.send(&mut self.batch)
    }

    /// Copies a message into registered memory.
    fn prepare(&self, message: &Message) -> Span {
        // At most `sends` are outstanding, and they complete in order: this slot is free.
        let slot = self.sent % self.depths.sends;
        let sends = self.first_slot + self.depths.receives * self.depths.message_bytes;
        let offset = sends + slot * MAX_MESSAGE_BYTES;
        self.slots.memory().copy_in(offset, message.as_bytes());
        Span::new(offset, message.as_bytes().len())
    }

    /// A request has completed. Returns the identifiers of the requests that can be reported now, in
    /// order.
    pub(super) fn complete(&mut self, number: u32) -> impl Iterator<Item = u64> {
        self.requests.done(number)
    }

    /// Takes a message out of its slot and posts the slot again. `None` for an invalid one.
    pub(super) fn take_message(&self, slot: u32, length: u32) -> io::Result<Option<Vec<u8>>> {
        let (slot_number, length) = (slot as usize, length as usize);
        if slot_number >= self.depths.receives || length > self.depths.message_bytes {
            return Ok(None);
        }
        let mut message = vec![0; length];
        let offset = self.receive_slot(slot_number).offset;
        self.slots.memory().copy_out(offset, &mut message);
        self.expect_message(slot)?;
        Ok(Some(message))
    }

    /// Posts a receive buffer again that a WRITE with immediate data has used up without filling
    /// it.
    pub(super) fn replenish(&self, slot: u32) -> io::Result<()> {
        if slot as usize >= self.depths.receives {
            return Ok(());
        }
        self.expect_message(slot)
    }

    fn receive_slot(&self, slot: usize) -> Span {
        let bytes = self.depths.message_bytes;
        Span::new(self.first_slot + slot * bytes, bytes)
    }

    fn name(&self, subject: Subject) -> CompletionId {
        CompletionId {
            queue_pair: self.number,
            generation: self.generation,
            subject,
        }
    }

    /// Every request is signalled.
    fn request(&self, operation: i32, remote: Remote) -> SendRequest {
        SendRequest {
            id: self.name(Subject::Request(self.requests.next())).encode(),
            next: ptr::null_mut(),
            segments: ptr::null_mut(),
            segment_count: 0,
            operation,
            flags: SEND_SIGNALED,
            immediate: 0,
            remote_address: remote.address,
            remote_key: remote.key,
            rest: [0; 9],
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn completions_are_recognised(queue_pair: u8, generation: u16, is_request: bool, number: u32) {
            let subject = match is_request {
                true => Subject::Request(number),
                false => Subject::Message(number),
            };
            let name = CompletionId { queue_pair, generation, subject };
            prop_assert_eq!(CompletionId::decode(name.encode()), name);
        }
    }
}
