//! A queue pair with its messages: those that it has room for, and those that are on their way.

use std::io;
use std::ptr;
use std::sync::Arc;

use super::bindings::{
    OPERATION_READ, OPERATION_SEND, OPERATION_WRITE, OPERATION_WRITE_WITH_IMMEDIATE,
    QueuePairAttributes, SEND_SIGNALED, SendRequest,
};
use super::connection_manager::Connection;
use super::objects::{Batch, CompletionQueue, Depths, Domain, OwnQueuePair, Registration};
use super::requests::Requests;
use crate::memory::Span;
use crate::provider::{MAX_MESSAGE_BYTES, Message, Remote};

/// What a completion is about. A queue pair that replaces another has the same place and another life:
/// completions of the earlier one may still come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Name {
    pub(super) queue_pair: u8,
    pub(super) life: u16,
    pub(super) subject: Subject,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Subject {
    /// The request of this number.
    Request(u32),
    /// A message of the peer, in this slot.
    Message(u32),
}

impl Name {
    /// The number that a work request carries to its completion.
    fn encode(self) -> u64 {
        let (kind, number) = match self.subject {
            Subject::Request(number) => (0, number),
            Subject::Message(slot) => (1, slot),
        };
        let [a, b] = self.life.to_be_bytes();
        let [c, d, e, f] = number.to_be_bytes();
        u64::from_be_bytes([kind, self.queue_pair, a, b, c, d, e, f])
    }

    pub(super) fn decode(id: u64) -> Self {
        let [kind, queue_pair, a, b, number @ ..] = id.to_be_bytes();
        let number = u32::from_be_bytes(number);
        Self {
            queue_pair,
            life: u16::from_be_bytes([a, b]),
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
    /// That of iWARP, which is given up after it.
    connection: Option<Connection>,
    number: u8,
    life: u16,
    depths: Depths,
    requests: Requests,
    /// The last of them, which the device does not know of.
    batch: Batch,
    /// Messages that were posted.
    sent: usize,
    /// First the messages that may come, then those that go.
    slots: Arc<Registration>,
    /// Where in `slots` those of this queue pair begin, in bytes.
    first_slot: usize,
}

/// What requests name that do not get at the peer's memory.
const NOWHERE: Remote = Remote { address: 0, key: 0 };

/// What all queue pairs of an endpoint share.
#[derive(Debug)]
pub(super) struct Shared {
    pub(super) domain: Arc<Domain>,
    /// Where requests of this end tell that they are done, and where messages of the peer arrive. They are two, so that
    /// one can sleep while nobody waits for it.
    pub(super) requests: Arc<CompletionQueue>,
    pub(super) messages: Arc<CompletionQueue>,
    pub(super) depths: Depths,
    /// [`slot_bytes`] for each queue pair: pages of this endpoint alone, which no other channel has before or after. A queue
    /// pair that replaces another has its slots, and how long a message is the device says, not the peer.
    pub(super) slots: Arc<Registration>,
}

/// The memory that the messages of one queue pair take.
pub(super) fn slot_bytes(depths: Depths) -> usize {
    depths.receives * depths.message_bytes + depths.sends * MAX_MESSAGE_BYTES
}

impl QueuePair {
    /// One that is not connected.
    pub(super) fn new(shared: &Shared, number: u8, life: u16) -> io::Result<Self> {
        let depths = shared.depths;
        Ok(Self {
            own: OwnQueuePair::new(&shared.domain, &shared.requests, &shared.messages, depths)?,
            connection: None,
            number,
            life,
            depths,
            requests: Requests::new(depths.sends),
            batch: Batch::default(),
            sent: 0,
            slots: Arc::clone(&shared.slots),
            first_slot: usize::from(number) * slot_bytes(depths),
        })
    }

    /// What the peer knows it by.
    pub(super) fn number(&self) -> u32 {
        self.own.number()
    }

    pub(super) fn life(&self) -> u16 {
        self.life
    }

    /// It was connected by the connection manager.
    pub(super) fn hold(&mut self, connection: Connection) {
        self.connection = Some(connection);
    }

    pub(super) fn modify(&self, attributes: QueuePairAttributes, mask: i32) -> io::Result<()> {
        self.own.modify(attributes, mask)
    }

    /// Makes room for all messages that may come. ibv_post_recv(3): not before the queue pair is initialised.
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

    /// Requests without completion.
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

    pub(super) fn send(&mut self, id: u64, message: &Message) {
        let span = self.prepare(message);
        let request = self.request(OPERATION_SEND, NOWHERE);
        self.batch.add(request, [(&*self.slots, span)]);
        self.sent = self.sent.wrapping_add(1);
        self.requests.posted(id);
    }

    /// Sends a message that takes a part of a region along.
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

    /// Hands the device all requests since the last time, with one call.
    pub(super) fn ring_doorbell(&mut self) -> io::Result<()> {
        self.own.send(&mut self.batch)
    }

    /// Puts a message where the device can get at it.
    fn prepare(&self, message: &Message) -> Span {
        // No more than `sends` are under way, and they end in order: this slot is free.
        let slot = self.sent % self.depths.sends;
        let sends = self.first_slot + self.depths.receives * self.depths.message_bytes;
        let offset = sends + slot * MAX_MESSAGE_BYTES;
        self.slots.memory().copy_in(offset, message.as_bytes());
        Span::new(offset, message.as_bytes().len())
    }

    /// A request is done. Returns what those are called whose turn it is.
    pub(super) fn complete(&mut self, number: u32) -> impl Iterator<Item = u64> {
        self.requests.done(number)
    }

    /// Takes a message out of its slot, and makes room for another there. `None` for one that cannot be.
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

    /// Makes room for another message where a WRITE has used it up, which puts nothing there.
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

    fn name(&self, subject: Subject) -> Name {
        Name {
            queue_pair: self.number,
            life: self.life,
            subject,
        }
    }

    /// Every request tells when it is done.
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
        fn completions_are_recognised(queue_pair: u8, life: u16, is_request: bool, number: u32) {
            let subject = match is_request {
                true => Subject::Request(number),
                false => Subject::Message(number),
            };
            let name = Name { queue_pair, life, subject };
            prop_assert_eq!(Name::decode(name.encode()), name);
        }
    }
}
