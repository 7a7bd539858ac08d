//! Events of an endpoint: completions, device events, and the end of the peer.

use rustix::event::{Timespec, epoll};

use super::adapter::Adapter;
use super::bindings::{
    COMPLETED_WRITE_OF_PEER, EVENT_DEVICE_FATAL, EVENT_PORT_DOWN, EVENT_QUEUE_OVERRUN,
    STATUS_FLUSHED, STATUS_SUCCESS, WorkCompletion,
};
use super::control_socket::{ControlSocket, Peer, Step};
use super::queue_pair::{CompletionId, Subject};
use super::slot::{Content, Slot};
use super::{DEVICE, LATER, MESSAGES, OF_ADAPTERS, REQUESTS, RETRIES, ROUTE, VerbsEndpoint};
use crate::provider::{Completion, Loss, MAX_RAILS};

/// Watched descriptors: four of each adapter, the data connection and two timers.
const WATCHED: usize = 4 * MAX_RAILS + 3;

/// Completions that are read with one call.
const BATCH: usize = 32;

impl VerbsEndpoint {
    /// Reads completions until the queues are empty. Completions of a lost queue pair need not be
    /// reported: its requests are repeated.
    pub(super) fn drain(&mut self, completions: &mut Vec<Completion>) {
        for adapter in 0..self.adapters.len() {
            self.drain_adapter(adapter, completions);
        }
    }

    fn drain_adapter(&mut self, adapter: usize, completions: &mut Vec<Completion>) {
        self.drain_messages(adapter, completions);
        let mut batch = [WorkCompletion::EMPTY; BATCH];
        loop {
            let count = match self.adapters[adapter].shared.requests.poll(&mut batch) {
                Ok(count) => count,
                Err(error) => {
                    let loss = Loss::Failed(error.to_string());
                    return self.lose_all_on(adapter, &loss, completions);
                }
            };
            let has_failed = |completion: &WorkCompletion| completion.status != STATUS_SUCCESS;
            if batch[..count].iter().any(has_failed) {
                // Messages that arrived before the queue pair was lost count.
                self.drain_messages(adapter, completions);
            }
            for completion in &batch[..count] {
                self.complete(completion, completions);
            }
            if count < BATCH {
                return;
            }
        }
    }

    /// Reads as many messages as have room in the queue: all that have arrived before. A peer that sends without an end would
    /// otherwise hold the thread, and fill the memory.
    fn drain_messages(&mut self, adapter: usize, completions: &mut Vec<Completion>) {
        let mut batch = [WorkCompletion::EMPTY; BATCH];
        let most = self.adapters[adapter].shared.depths.receives * self.slots.len();
        for _ in 0..most.div_ceil(BATCH) {
            match self.adapters[adapter].shared.messages.poll(&mut batch) {
                Ok(count) => {
                    for completion in &batch[..count] {
                        self.complete(completion, completions);
                    }
                    if count < BATCH {
                        return;
                    }
                }
                Err(error) => {
                    let loss = Loss::Failed(error.to_string());
                    return self.lose_all_on(adapter, &loss, completions);
                }
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
        let is_replacement = slot.current.is_none();
        let Some(queue_pair) = slot.of_generation(name.generation) else {
            return;
        };
        if completion.status != STATUS_SUCCESS {
            if self.is_iwarp() && completion.status == STATUS_FLUSHED {
                // The connection has ended, for an unknown reason.
                return self.lose(number, Loss::Closed, completions);
            }
            let words = self.adapter(number).device.status_words(completion.status);
            return self.lose(number, Loss::Failed(words), completions);
        }
        match name.subject {
            Subject::Request(request) if is_replacement => {
                slot.prove(request);
                if slot.promote() {
                    completions.push(Completion::Restored { queue_pair: number });
                }
            }
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
        let mut any = false;
        for adapter in &mut self.adapters {
            any |= adapter.take_events();
        }
        any
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
            let id = event.data.u64();
            let is_its = |adapter: &Adapter| adapter.id == id >> OF_ADAPTERS;
            let adapter = self.adapters.iter().position(is_its);
            match (id & ((1 << OF_ADAPTERS) - 1), adapter) {
                (RETRIES, _) => self.retry(),
                (LATER, _) => self.connect_due(completions),
                (REQUESTS | MESSAGES, Some(adapter)) => {
                    self.adapters[adapter].take_events();
                }
                (DEVICE, Some(adapter)) => self.read_device_events(adapter, completions),
                (ROUTE, Some(adapter)) => self.advance_route_search(adapter, completions),
                (REQUESTS | MESSAGES | DEVICE | ROUTE, None) => {}
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

    fn read_device_events(&mut self, adapter: usize, completions: &mut Vec<Completion>) {
        while let Some(event) = self.adapters[adapter].device.next_event() {
            let port = &self.adapters[adapter].place.port;
            let loss = || Loss::Failed(format!("{}: {}", port.device, event.words));
            match event.kind {
                // After both, completions are missing. Queue pairs of a broken device or over an overrun queue cannot be
                // replaced.
                EVENT_DEVICE_FATAL | EVENT_QUEUE_OVERRUN => {
                    let loss = loss();
                    self.break_down(adapter, &loss, completions);
                }
                // The others carry the data until the port is up again. Without another one the device repeats what it has
                // sent.
                EVENT_PORT_DOWN
                    if event.port == i32::from(port.number) && self.has_others(adapter) =>
                {
                    let loss = loss();
                    self.lose_all_on(adapter, &loss, completions);
                }
                _ => {}
            }
        }
    }

    /// Whether there is a rail over another adapter.
    fn has_others(&self, adapter: usize) -> bool {
        self.rails.iter().any(|rail| rail.adapter != adapter)
    }

    /// An adapter has had a fatal error. Its queue pairs are lost for good, and the peer is told; those of other adapters go on.
    fn break_down(&mut self, adapter: usize, loss: &Loss, completions: &mut Vec<Completion>) {
        self.adapters[adapter].is_broken = true;
        if self.adapters.iter().all(|adapter| adapter.is_broken) {
            self.limits.replaces = false;
            return self.lose_all(loss, completions);
        }
        for queue_pair in self.numbers_on(adapter) {
            self.retries.remove(queue_pair);
            let content = self.slots[queue_pair].clear();
            // Without a connection the peer has noticed.
            let _ = self.notify(queue_pair, Step::GivenUp);
            let lost = Completion::Lost {
                queue_pair,
                loss: loss.clone(),
            };
            // The first loss of a connected queue pair is one that may be restored.
            if content == Content::Connected {
                completions.push(lost.clone());
            }
            completions.push(lost);
        }
    }

    /// Counts the rails that have a connected queue pair. The end of the peer is no failure of a rail.
    pub(super) fn count_rails(&mut self) {
        let rails = self.rails.len();
        if rails == 1 || self.peer() != Peer::Connected {
            return;
        }
        let works = |rail: &usize| {
            let mut slots = self.slots.iter().skip(*rail).step_by(rails);
            slots.any(|slot| slot.current.is_some())
        };
        self.working_rails = (0..rails).filter(works).count();
    }

    /// Whether a replacement is being tested.
    pub(super) fn awaits_proof(&self) -> bool {
        self.slots.iter().any(Slot::awaits_proof)
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
        for adapter in 0..self.adapters.len() {
            match self.adapters[adapter].arm(wants_requests) {
                Ok(true) => self.drain_adapter(adapter, completions),
                Ok(false) => {}
                Err(error) => {
                    let loss = Loss::Failed(error.to_string());
                    self.lose_all_on(adapter, &loss, completions);
                }
            }
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

    /// Loses all queue pairs over an adapter.
    fn lose_all_on(&mut self, adapter: usize, loss: &Loss, completions: &mut Vec<Completion>) {
        for number in self.numbers_on(adapter) {
            self.lose(number, loss.clone(), completions);
        }
    }

    pub(super) fn lose_all(&mut self, loss: &Loss, completions: &mut Vec<Completion>) {
        for number in 0..self.slots.len() {
            self.lose(number, loss.clone(), completions);
        }
    }
}
