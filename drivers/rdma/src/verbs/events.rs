//! Events of an endpoint: completions, device events, and the end of the peer.

use rustix::event::{Timespec, epoll};

use super::bindings::{
    COMPLETED_WRITE_OF_PEER, EVENT_DEVICE_FATAL, EVENT_QUEUE_OVERRUN, STATUS_FLUSHED,
    STATUS_SUCCESS, WorkCompletion,
};
use super::control_socket::{ControlSocket, Peer};
use super::queue_pair::{CompletionId, Shared, Subject};
use super::slot::Content;
use super::{Armed, DEVICE, MESSAGES, REQUESTS, RETRIES, VerbsEndpoint};
use crate::provider::{Completion, Loss};

/// Watched descriptors.
const WATCHED: usize = 5;

/// Completions that are read with one call.
const BATCH: usize = 32;

impl VerbsEndpoint {
    /// Reads completions until the queues are empty. Completions of a lost queue pair need not be
    /// reported: its requests are repeated.
    pub(super) fn drain(&mut self, completions: &mut Vec<Completion>) {
        self.drain_messages(completions);
        let mut batch = [WorkCompletion::EMPTY; BATCH];
        loop {
            let count = match self.shared.requests.poll(&mut batch) {
                Ok(count) => count,
                Err(error) => return self.lose_all(&Loss::Failed(error.to_string()), completions),
            };
            let has_failed = |completion: &WorkCompletion| completion.status != STATUS_SUCCESS;
            if batch[..count].iter().any(has_failed) {
                // Messages that arrived before the queue pair was lost count.
                self.drain_messages(completions);
            }
            for completion in &batch[..count] {
                self.complete(completion, completions);
            }
            if count < BATCH {
                return;
            }
        }
    }

    fn drain_messages(&mut self, completions: &mut Vec<Completion>) {
        let mut batch = [WorkCompletion::EMPTY; BATCH];
        loop {
            match self.shared.messages.poll(&mut batch) {
                Ok(count) => {
                    for completion in &batch[..count] {
                        self.complete(completion, completions);
                    }
                    if count < BATCH {
                        return;
                    }
                }
                Err(error) => return self.lose_all(&Loss::Failed(error.to_string()), completions),
            }
        }
    }

    pub(super) fn complete(
        &mut self,
        completion: &WorkCompletion,
        completions: &mut Vec<Completion>,
    ) {
        let name = CompletionId::decode(completion.id);
        let number = usize::from(name.queue_pair);
        let Some(slot) = self.slots.get_mut(number) else {
            return;
        };
        let Some(queue_pair) = slot.of_generation(name.generation) else {
            return;
        };
        if completion.status != STATUS_SUCCESS {
            if self.is_iwarp() && completion.status == STATUS_FLUSHED {
                // The connection has ended, for an unknown reason.
                return self.lose(number, Loss::Closed, completions);
            }
            let words = self.device.status_words(completion.status);
            return self.lose(number, Loss::Failed(words), completions);
        }
        match name.subject {
            Subject::Request(request) => {
                let ids = queue_pair.complete(request);
                completions.extend(ids.map(|id| Completion::Done {
                    queue_pair: number,
                    id,
                }));
                slot.reset_attempts();
            }
            Subject::Message(place) if completion.operation == COMPLETED_WRITE_OF_PEER => {
                match queue_pair.replenish(place) {
                    Ok(()) if self.has_ended => {}
                    Ok(()) => completions.push(Completion::Written {
                        queue_pair: number,
                        immediate: u32::from_be(completion.immediate),
                        length: completion.length,
                    }),
                    Err(error) => self.lose(number, Loss::Failed(error.to_string()), completions),
                }
            }
            Subject::Message(place) => match queue_pair.take_message(place, completion.length) {
                Ok(Some(message)) if self.has_ended && !message.is_empty() => {}
                Ok(Some(message)) => completions.push(Completion::Received {
                    queue_pair: number,
                    message,
                }),
                Ok(None) => {
                    let words = format!("the peer sent a message of {} bytes", completion.length);
                    self.lose(number, Loss::Failed(words), completions);
                }
                Err(error) => self.lose(number, Loss::Failed(error.to_string()), completions),
            },
        }
    }

    /// Reads the events of the completion queues; returns whether there were any.
    pub(super) fn take_events(&mut self) -> bool {
        let Armed { requests, messages } = &mut self.is_armed;
        let was_armed = (*requests, *messages);
        *messages = *messages && !self.shared.messages.take_event();
        *requests = *requests && !self.shared.requests.take_event();
        was_armed != (*requests, *messages)
    }

    /// Checks all watched descriptors for events.
    pub(super) fn check_other_events(&mut self, completions: &mut Vec<Completion>) {
        let mut events = [epoll::Event {
            flags: epoll::EventFlags::empty(),
            data: epoll::EventData::new_u64(0),
        }; WATCHED];
        let no_time = Timespec {
            tv_sec: 0,
            tv_nsec: 0,
        };
        let Ok(count) = epoll::wait(&self.watch, &mut events[..], Some(&no_time)) else {
            // Interrupted by a signal; the descriptor is still readable.
            return;
        };
        for event in &events[..count] {
            match event.data.u64() {
                REQUESTS => self.is_armed.requests &= !self.shared.requests.take_event(),
                MESSAGES => self.is_armed.messages &= !self.shared.messages.take_event(),
                DEVICE => self.read_device_events(completions),
                RETRIES => self.retry(),
                _ => {
                    let mut notices = Vec::new();
                    if let Some(control) = &mut self.control {
                        control.receive(&mut notices);
                    }
                    for notice in notices {
                        self.handle_notice(notice, completions);
                    }
                    if self.peer() == Peer::Connected {
                        self.watch_connection(completions);
                    }
                }
            }
        }
    }

    pub(super) fn read_device_events(&mut self, completions: &mut Vec<Completion>) {
        while let Some((kind, words)) = self.device.next_event() {
            // After both, completions are missing. Queue pairs of a broken device or over an overrun queue cannot be replaced.
            if [EVENT_DEVICE_FATAL, EVENT_QUEUE_OVERRUN].contains(&kind) {
                let loss = Loss::Failed(format!("{}: {words}", self.place.port.device));
                self.limits.replaces = false;
                self.lose_all(&loss, completions);
            }
        }
    }

    /// Closes the queue pairs after the peer has ended. Acknowledgements of earlier requests may still
    /// arrive and are awaited. They are reported before the loss, so that the sender succeeds.
    pub(super) fn handle_peer_end(&mut self, completions: &mut Vec<Completion>) {
        match self.peer() {
            Peer::Connected => return,
            // Over TCP earlier data may arrive after this; the queue pairs report the end.
            Peer::Closed if self.is_iwarp() => return,
            Peer::Closed => self.limits.replaces = false,
            Peer::Reset => {
                self.limits.replaces = false;
                return self.lose_all(&Loss::Reset, completions);
            }
        }
        // Everything that arrived before the end is in the completion queues.
        self.drain(completions);
        if !completions.is_empty() {
            return self.watch_connection(completions);
        }
        for number in 0..self.slots.len() {
            let current = self.slots[number].current.as_ref();
            if current.is_none_or(|queue_pair| queue_pair.pending() == 0) {
                self.lose(number, Loss::Closed, completions);
            }
        }
    }

    pub(super) fn watch_connection(&mut self, completions: &mut Vec<Completion>) {
        let control = self.control.as_ref();
        if let Some(Err(error)) = control.map(|control| control.watch(&self.watch)) {
            // Without the watch the end of the peer would not be noticed.
            self.lose_all(&Loss::Failed(error.to_string()), completions);
        }
    }

    /// After the end of the peer, its memory is deregistered and requests fail: report the end as the
    /// reason of all losses.
    pub(super) fn attribute_losses_to_peer(&self, completions: &mut [Completion]) {
        let reason = match self.peer() {
            Peer::Connected => return,
            Peer::Closed => Loss::Closed,
            Peer::Reset => Loss::Reset,
        };
        for completion in completions {
            if let Completion::Lost { loss, .. } = completion {
                *loss = reason.clone();
            }
        }
    }

    pub(super) fn peer(&self) -> Peer {
        self.control
            .as_ref()
            .map_or(Peer::Connected, ControlSocket::peer)
    }

    /// Arms an event for the next completion.
    pub(super) fn arm(&mut self, wants_requests: bool, completions: &mut Vec<Completion>) {
        let Shared {
            requests, messages, ..
        } = &self.shared;
        let mut outcome = Ok(());
        let mut arms = false;
        if !self.is_armed.messages {
            (outcome, arms, self.is_armed.messages) = (messages.arm(), true, true);
        }
        if wants_requests && !self.is_armed.requests && outcome.is_ok() {
            (outcome, arms, self.is_armed.requests) = (requests.arm(), true, true);
        }
        match outcome {
            Ok(()) if arms => self.drain(completions),
            Ok(()) => {}
            Err(error) => self.lose_all(&Loss::Failed(error.to_string()), completions),
        }
    }

    pub(super) fn lose(&mut self, number: usize, loss: Loss, completions: &mut Vec<Completion>) {
        let content = match self.slots[number].clear() {
            // Its replacement has not begun yet.
            Content::Empty if self.retries.remove(number) => Content::Connecting,
            content => content,
        };
        let lost = Completion::Lost {
            queue_pair: number,
            loss,
        };
        if content == Content::Connected || content == Content::Connecting && !self.limits.replaces
        {
            completions.push(lost);
        }
        if content != Content::Empty && self.limits.replaces {
            self.replace(number);
        }
    }

    pub(super) fn lose_all(&mut self, loss: &Loss, completions: &mut Vec<Completion>) {
        for number in 0..self.slots.len() {
            self.lose(number, loss.clone(), completions);
        }
    }
}
