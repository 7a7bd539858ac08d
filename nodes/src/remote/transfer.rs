//! A transfer on a node.

use std::fmt;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, Weak};
use std::thread;
use std::time::Duration;

use gridhaul_protocol::ranges::RangeSet;
use gridhaul_stack::Details;
use gridhaul_storage::{Storage, StorageError};
use gridhaul_transfer::{
    CancelReason, Event, EventSink, LineIterator, Outcome, Progress, RunningTransfer, Survey,
    TransferError,
};
use tokio::runtime::Handle;

use super::link::{Follower, Link, Lost};
use crate::generated::{self as message, session_request, transfer_event};
use crate::limits::{CANCEL, KEPT_RANGES, LINES_BYTES};
use crate::sync::lock;
use crate::wire::{self, KeptParts, Moving, WireError};

/// A transfer on a node, from the view of the control server.
pub(super) struct RemoteTransfer {
    link: Arc<Link>,
    call: u64,
    runtime: Handle,
    events: Mutex<Option<EventSink>>,
    state: Mutex<State>,
    kept: KeptParts,
    lines: Mutex<Option<LineIterator>>,
    /// The node may ask for the next lines after it has got those before.
    makes_lines: AtomicBool,
    has_opened: AtomicBool,
    has_started: AtomicBool,
    is_cancelled: AtomicBool,
    own: Weak<Self>,
    storage: Arc<dyn Storage>,
}

#[derive(Default)]
struct State {
    moving: Moving,
    received: RangeSet,
}

impl RemoteTransfer {
    pub(super) fn new(
        link: Arc<Link>,
        call: u64,
        runtime: Handle,
        (events, kept): (EventSink, KeptParts),
        storage: Arc<dyn Storage>,
        stripes: usize,
    ) -> Arc<Self> {
        let mut state = State::default();
        state.moving.progress.stripes = vec![0; stripes.max(1)];
        Arc::new_cyclic(|own| Self {
            link,
            call,
            runtime,
            events: Mutex::new(Some(events)),
            state: Mutex::new(state),
            kept,
            lines: Mutex::default(),
            makes_lines: AtomicBool::new(false),
            has_opened: AtomicBool::new(false),
            has_started: AtomicBool::new(false),
            is_cancelled: AtomicBool::new(false),
            own: Weak::clone(own),
            storage,
        })
    }

    /// The client is told once that its transfer begins, and nothing of the queue after that, also by a wrong node.
    fn report_queue(&self, ahead: u64) {
        if !self.has_started.load(Ordering::Acquire) {
            let ahead = usize::try_from(ahead).unwrap_or(usize::MAX);
            self.report(Event::Queued { ahead });
        }
    }

    fn report_start(&self, reused: bool) {
        if !self.has_started.swap(true, Ordering::AcqRel) {
            self.report(Event::Started { reused });
        }
    }

    fn report(&self, event: Event) {
        if let Some(events) = lock(&self.events).as_ref() {
            events(event);
        }
    }

    fn finish(&self, outcome: Outcome) {
        if let Some(events) = lock(&self.events).take() {
            events(Event::Finished(Box::new(outcome)));
        }
    }

    /// The outcome of a transfer whose node has told no other one.
    fn failed(&self, error: TransferError) -> Outcome {
        let state = lock(&self.state);
        let survey = &state.moving.survey;
        Outcome {
            result: Err(error),
            bytes: state.moving.progress.stripes.iter().sum(),
            channels: survey.channels,
            stripes: state.moving.progress.stripes.len(),
            peers: survey.peers.clone(),
            buffer_bytes: 0,
            block_bytes: 0,
            movement: None,
            details: Details::default(),
            checksums: Vec::new(),
            refused: 0,
            last_refusal: None,
            nodes: Vec::new(),
        }
    }

    fn note_moving(&self, sent: message::Moving) -> Result<(), WireError> {
        let received = wire::to_ranges(&sent.received)?;
        let moving = Moving::try_from(sent)?;
        let mut state = lock(&self.state);
        state.received.extend_from(&received);
        state.moving = moving;
        match state.received.len() {
            count if count > KEPT_RANGES => Err(WireError::new(format!("{count} ranges"))),
            _ => Ok(()),
        }
    }

    /// Ends a transfer whose node does not keep to the rules.
    fn break_off(&self, error: &WireError) {
        self.cancel(CancelReason::Abort);
        let reason = format!("the data node {}: {error}", self.link.node);
        self.finish(self.failed(TransferError::Local(reason)));
    }

    /// The bytes that have moved; `None` after the end.
    pub(super) fn moved(&self) -> Option<u64> {
        lock(&self.events).as_ref()?;
        Some(lock(&self.state).moving.bytes())
    }

    /// Tells the node how many bytes per second may move from now on.
    pub(super) fn set_rate(&self, rate: Option<u64>) {
        let sent = message::SetRate {
            transfer: self.call,
            rate,
        };
        let link = &self.link;
        link.tell(link.number(), session_request::Body::SetRate(sent));
    }

    /// Makes the next lines of a listing, on a thread that may wait for storage.
    fn send_lines(self: &Arc<Self>) {
        if self.makes_lines.swap(true, Ordering::AcqRel) {
            // A node that asks twice gets one answer.
            return;
        }
        let transfer = Arc::clone(self);
        drop(self.runtime.spawn_blocking(move || {
            let lines = transfer.next_lines();
            transfer.makes_lines.store(false, Ordering::Release);
            let mut reply = message::Lines {
                transfer: transfer.call,
                ..message::Lines::default()
            };
            match lines {
                Ok(Some(data)) => reply.data = data,
                Ok(None) => reply.end = true,
                Err(error) => reply.failure = Some(message::Failure::of(&error)),
            }
            let link = &transfer.link;
            link.tell(link.number(), session_request::Body::Lines(reply));
        }));
    }

    fn next_lines(&self) -> Result<Option<Vec<u8>>, StorageError> {
        let Some(source) = &self.kept.lines else {
            return Ok(None);
        };
        let mut held = lock(&self.lines);
        if held.is_none() {
            *held = Some((source.open)(&*self.storage)?);
        }
        let Some(lines) = held.as_mut() else {
            return Ok(None);
        };
        let mut data = Vec::new();
        while data.len() < LINES_BYTES {
            match lines.next() {
                Some(piece) => data.extend(piece?),
                None => break,
            }
        }
        Ok((!data.is_empty()).then_some(data))
    }

    /// The lead has opened the file: the others may begin. It is told when they have ended.
    fn note_opened(self: &Arc<Self>, path: &[u8]) {
        let (Some(companions), Ok(path)) = (self.kept.companions.clone(), wire::to_path(path))
        else {
            return;
        };
        if self.has_opened.swap(true, Ordering::AcqRel) {
            return;
        }
        let transfer = Arc::clone(self);
        // A thread of its own: it waits as long as the transfer takes, and the pool of the runtime is for short work.
        let companion = thread::Builder::new().name("companions".to_owned());
        let spawned = companion.spawn(move || {
            companions.opened(Path::new(&path));
            let (stored, failure) = match companions.wait() {
                Ok(stored) => (stored, None),
                Err(error) => (RangeSet::new(), Some(message::Failure::of(&error))),
            };
            for (portion, more) in wire::in_messages(&stored) {
                let done = message::CompanionsDone {
                    transfer: transfer.call,
                    stored: portion,
                    failure: failure.clone(),
                    more,
                };
                let link = &transfer.link;
                link.tell(link.number(), session_request::Body::CompanionsDone(done));
            }
        });
        if let Err(error) = spawned {
            let reason = format!("no thread for a striped transfer: {error}");
            self.finish(self.failed(TransferError::Local(reason)));
        }
    }
}

impl Follower for RemoteTransfer {
    fn note(self: Arc<Self>, event: message::TransferEvent) -> bool {
        match event.event {
            Some(transfer_event::Event::Queued(ahead)) => self.report_queue(ahead),
            Some(transfer_event::Event::Started(reused)) => self.report_start(reused),
            Some(transfer_event::Event::Moving(moving)) => {
                if let Err(error) = self.note_moving(moving) {
                    self.break_off(&error);
                    return true;
                }
            }
            Some(transfer_event::Event::WantsLines(_)) => self.send_lines(),
            Some(transfer_event::Event::Opened(path)) => self.note_opened(&path),
            Some(transfer_event::Event::Finished(outcome)) => {
                self.finish(wire::to_outcome(outcome).unwrap_or_else(|error| {
                    self.failed(TransferError::Local(format!("{}: {error}", self.link.node)))
                }));
                return true;
            }
            None => {}
        }
        false
    }

    fn lose(&self, lost: &Lost) {
        self.finish(self.failed(TransferError::Local(lost.to_string())));
    }
}

impl RunningTransfer for RemoteTransfer {
    fn cancel(&self, reason: CancelReason) {
        if lock(&self.events).is_none() {
            return;
        }
        let cancel = message::CancelTransfer {
            transfer: self.call,
            reason: wire::cancel_reason(reason),
        };
        let body = session_request::Body::CancelTransfer(cancel);
        self.link.tell(self.link.number(), body);
        if self.is_cancelled.swap(true, Ordering::AcqRel) {
            return;
        }
        let transfer = Weak::clone(&self.own);
        self.runtime.spawn(async move {
            tokio::time::sleep(CANCEL).await;
            if let Some(transfer) = transfer.upgrade() {
                let reason = format!(
                    "the data node {} has not ended a cancelled transfer within {} s",
                    transfer.link.node,
                    CANCEL.as_secs()
                );
                transfer.finish(transfer.failed(TransferError::Local(reason)));
            }
        });
    }

    fn progress(&self) -> Progress {
        lock(&self.state).moving.progress.clone()
    }

    fn survey(&self) -> Survey {
        lock(&self.state).moving.survey.clone()
    }

    fn is_settling(&self) -> bool {
        lock(&self.state).moving.settling
    }

    fn waited(&self) -> Duration {
        lock(&self.state).moving.waited
    }

    fn take_received(&self) -> RangeSet {
        std::mem::take(&mut lock(&self.state).received)
    }
}

impl fmt::Debug for RemoteTransfer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RemoteTransfer")
            .field("node", &self.link.node)
            .field("call", &self.call)
            .finish_non_exhaustive()
    }
}
