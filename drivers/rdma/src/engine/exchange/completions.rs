//! How an exchange reacts to completions, losses and messages of the peer.

use std::time::Duration;

use super::{Exchange, Fault, State};
use crate::engine::message::Message;
use crate::engine::reader::Reader;
use crate::memory::{Buffer, Span};
use crate::provider::{Completion, Endpoint, Loss};

impl Exchange {
    pub(super) fn complete_all(
        &mut self,
        endpoint: &mut dyn Endpoint,
        mut completions: Vec<Completion>,
        now: Duration,
    ) -> Result<(), Fault> {
        let mut outcome = Ok(());
        for completion in completions.drain(..) {
            outcome = outcome.and_then(|()| self.complete(endpoint, completion, now));
        }
        self.completions = completions;
        outcome
    }

    fn complete(
        &mut self,
        endpoint: &mut dyn Endpoint,
        completion: Completion,
        now: Duration,
    ) -> Result<(), Fault> {
        match completion {
            Completion::Done { queue_pair, id } => {
                self.sender.completed(queue_pair, id, now);
                if let Some(reader) = &mut self.reader
                    && Reader::is_read(id)
                    && let Some((start, length)) = reader.completed(queue_pair, id)
                {
                    self.receiver.arrived(start, length)?;
                }
            }
            Completion::Received {
                queue_pair,
                message,
            } if message.is_empty() => {
                // An empty message is the last one on its queue pair. There is no other mark of the end.
                if endpoint.close(queue_pair) {
                    self.lose(endpoint, queue_pair, Loss::Closed);
                }
            }
            Completion::Received { message, .. } => {
                return self.handle_message(endpoint, &message, now);
            }
            Completion::Written {
                immediate, length, ..
            } => self.receiver.written(immediate, u64::from(length))?,
            Completion::Lost { queue_pair, loss } => self.lose(endpoint, queue_pair, loss),
            Completion::Restored { queue_pair } => {
                self.queue_pairs[queue_pair] = State::Connected;
                self.sender.restored(queue_pair);
                self.meter.restored.add_one();
            }
        }
        Ok(())
    }

    /// Removes a queue pair from both directions.
    pub(super) fn lose(&mut self, endpoint: &dyn Endpoint, queue_pair: usize, loss: Loss) {
        let state = &mut self.queue_pairs[queue_pair];
        let was = std::mem::replace(state, State::Gone);
        if was == State::Connected {
            if endpoint.limits().replaces {
                *state = State::Lost;
            }
            self.sender.lost(queue_pair);
            self.receiver.lost();
            if let Some(growth) = &mut self.growth {
                growth.lost();
            }
            if let Some(reader) = &mut self.reader {
                reader.lost(queue_pair);
            }
        }
        self.loss = Some(loss);
    }

    /// Copies a piece that travelled inside a message to its place, if it has one.
    fn copy_in(&self, place: Option<(usize, Span)>, payload: &[u8]) {
        if let Some((region, place)) = place
            && let Some(incoming) = self.incoming_of(region)
        {
            incoming.copy_in(place.offset, payload);
        }
    }

    /// Validates and applies a message of the peer.
    fn handle_message(
        &mut self,
        endpoint: &mut dyn Endpoint,
        bytes: &[u8],
        now: Duration,
    ) -> Result<(), Fault> {
        match Message::decode(bytes)? {
            Message::Arrived { start, length } => {
                let length = u64::from(length);
                match &mut self.reader {
                    None => {
                        let is_written = |region, place| endpoint.is_written(region, place);
                        self.receiver.announced(start, length, is_written)?;
                    }
                    Some(reader) => {
                        if self.receiver.wants(start, length, reader.pieces())? {
                            reader.announced(start, length)?;
                        }
                    }
                }
            }
            Message::Carried { start, length } => {
                let place = self.receiver.carried(start, length as u64)?;
                self.copy_in(place, &bytes[bytes.len() - length..]);
            }
            Message::Padded {
                start,
                padding,
                length,
            } => {
                let place = self.receiver.padded(start, length as u64, padding.into())?;
                self.copy_in(place, &bytes[bytes.len() - length..]);
            }
            Message::Credit { consumed } => self.sender.credited(consumed)?,
            Message::End { at } => self.receiver.ended(at)?,
            Message::Abandon {
                queue_pair,
                generation,
            } => {
                // The sender must stop using it as well. A queue pair
                // that was restored since, or is being restored, is not affected: the endpoint may
                // have finished that and will report it.
                let is_connected = self.queue_pairs.get(queue_pair) == Some(&State::Connected);
                let ours = self.sender.generation(queue_pair);
                if is_connected && ours.is_some_and(|ours| generation >= ours) {
                    self.close(endpoint, queue_pair);
                }
            }
            Message::Preparing { number, bytes } => {
                self.ring_announced(endpoint, number, bytes)?;
            }
            Message::Ring {
                number,
                bytes,
                address,
                keys,
            } => self.ring_offered(endpoint, number, bytes, (address, keys))?,
            Message::Source {
                number,
                at,
                bytes,
                address,
                keys,
            } => self.source_changes(number, at, bytes, (address, keys))?,
            Message::Switch { number, at, window } => self.switched(number, at, window)?,
            Message::Left { number } => self.peer_left(endpoint, number)?,
            Message::TakeBack { number } => self.ring_taken_back(endpoint, number)?,
            Message::Declined { number } => self.ring_declined(endpoint, number, now)?,
        }
        Ok(())
    }
}
