//! The wire: requests on their way, and what they do when they arrive.

use std::num::NonZeroU64;

use super::{ADDRESS, Fabric, RING_KEYS, key, rails};
use crate::engine::Message;
use crate::memory::Span;
use crate::provider::{Remote, Request, Work, rail_of};

/// A request, with its payload if that is fixed already.
#[derive(Debug, Clone)]
pub(super) struct OnTheWay {
    pub(super) request: Request,
    pub(super) bytes: Option<Vec<u8>>,
}

impl Fabric {
    /// Carries out the first request of a queue pair.
    pub(in crate::engine::tests) fn step(&mut self, queue_pair: usize) {
        let Some(OnTheWay { request, bytes }) = self.queue_pairs[queue_pair].pop_front() else {
            return;
        };
        let payload = bytes.or_else(|| self.source(request));
        match request.work {
            Work::Write {
                span,
                to,
                immediate,
                ..
            } => {
                self.write(queue_pair, payload.as_deref(), span, to);
                if let Some(immediate) = immediate {
                    let length = span.length as u64;
                    self.receiver.written(immediate, length).unwrap();
                }
            }
            Work::Send(message) => self.receive(message.as_bytes(), &[]),
            Work::Carry { message, span, .. } => {
                // A repeated piece whose place holds later data, or is gone, was consumed. The receiver ignores it.
                let payload = payload.unwrap_or_else(|| vec![0xdd; span.length]);
                self.receive(message.as_bytes(), &payload);
            }
            Work::Read { .. } => panic!("a sender does not read"),
        }
        self.complete(queue_pair, request.id);
    }

    fn write(&mut self, queue_pair: usize, payload: Option<&[u8]>, span: Span, to: Remote) {
        let rail = rail_of(queue_pair, rails(self.queue_pairs.len()));
        let ring = (to.key - key(0)) / RING_KEYS;
        assert_eq!(
            to.key,
            key(rail) + ring * RING_KEYS,
            "the key of the queue pair's adapter"
        );
        let Some(payload) = payload else {
            // Requests of a lost queue pair have no effect.
            assert!(self.lost[queue_pair], "memory is needed until it has gone");
            return;
        };
        let place = usize::try_from(to.address - ADDRESS).unwrap();
        let ring = self.received[ring as usize].as_mut();
        let ring = ring.expect("no WRITE comes after its ring was left");
        ring[place..][..span.length].copy_from_slice(payload);
    }

    /// The receiver gets a message, and the payload that travels inside it.
    fn receive(&mut self, message: &[u8], payload: &[u8]) {
        let message = [message, payload].concat();
        match Message::decode(&message).unwrap() {
            Message::Arrived { start, length } => {
                self.receiver.arrived(start, u64::from(length)).unwrap();
            }
            Message::Carried { start, length } => {
                let place = self.receiver.carried(start, length as u64).unwrap();
                self.put(place, payload);
            }
            Message::Padded {
                start,
                padding,
                length,
            } => {
                let place = self.receiver.padded(start, length as u64, padding.into());
                self.put(place.unwrap(), payload);
            }
            Message::End { at } => self.receiver.ended(at).unwrap(),
            Message::Abandon {
                queue_pair,
                generation,
            } if generation == self.lives[queue_pair] => {
                self.queue_pairs[queue_pair].clear();
            }
            Message::Abandon { .. } => {}
            Message::Switch { number, at, window } => {
                let number = usize::try_from(number).unwrap();
                if number > self.moved_to {
                    self.moved_to = number;
                    let length = self.received[number].as_ref().unwrap().len();
                    let bytes = NonZeroU64::new(length as u64).unwrap();
                    self.receiver.switch(at, (bytes, number), window).unwrap();
                }
            }
            Message::Left { number } => {
                let number = usize::try_from(number).unwrap();
                assert!(number <= self.moved_to, "the peer knows of the move");
                let is_new = number == self.moved_to;
                if is_new && self.receiver.is_moving() {
                    let left = self.receiver.leave().unwrap();
                    self.received[left] = None;
                }
            }
            other => panic!("a sender says {other:?}"),
        }
    }

    /// The receiver copies a payload to its place, if it does not have it yet.
    fn put(&mut self, place: Option<(usize, Span)>, payload: &[u8]) {
        if let Some((region, place)) = place {
            let ring = self.received[region].as_mut().unwrap();
            ring[place.offset..][..payload.len()].copy_from_slice(payload);
        }
    }

    /// The payload of a request.
    pub(super) fn source(&self, request: Request) -> Option<Vec<u8>> {
        let (Work::Write { region, span, .. } | Work::Carry { region, span, .. }) = request.work
        else {
            return None;
        };
        let from = span.offset..span.offset + span.length;
        let bytes = match self.sent.get(&region) {
            None => self.elsewhere[region - 1].0.get(from),
            Some(ring) => ring.as_ref().and_then(|ring| ring.get(from)),
        };
        bytes.map(<[u8]>::to_vec)
    }

    /// Requests of a lost queue pair complete as well: completions may be read after the notice of the loss.
    fn complete(&mut self, queue_pair: usize, id: u64) {
        if !self.completes_early {
            self.sender.completed(queue_pair, id, self.now);
        }
    }
}
