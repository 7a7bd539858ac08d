//! The transfers of a session: one that runs, and those whose end has not been sent yet.

use std::collections::HashMap;
use std::path::Path;
use std::sync::{Arc, Mutex, mpsc};
use std::time::Duration;

use gridhaul_protocol::ranges::RangeSet;
use gridhaul_storage::StorageError;
use gridhaul_transfer::{
    BandwidthLimit, CancelReason, Companions, Event, LineSource, NodeSession, RunningTransfer,
    TransferError,
};
use rustix::io::Errno;
use tokio::sync::mpsc as events;
use tokio::time::{Instant, interval_at};

use super::replies::Sender;
use super::shared::Shared;
use crate::generated::{self as message, session_reply::Body, transfer_event};
use crate::limits::{KEPT_RANGES, TRANSFERS};
use crate::sync::lock;
use crate::wire::{self, Moving, ToRestore, WireError};

/// How often the state of a transfer is sent, if it has changed.
const EVERY: Duration = Duration::from_millis(200);

pub(super) struct Transfers {
    shared: Arc<Shared>,
    replies: Sender,
    entries: Arc<Mutex<HashMap<u64, Entry>>>,
}

/// A transfer, and what the control server still sends for it.
struct Entry {
    running: Option<Arc<dyn RunningTransfer>>,
    lines: Option<mpsc::SyncSender<Piece>>,
    companions: Option<mpsc::Sender<Result<RangeSet, TransferError>>>,
    /// What the others have stored, until all of it is known.
    stored: RangeSet,
    rate: Vec<Arc<BandwidthLimit>>,
}

/// The next lines of a listing; `None` is their end.
type Piece = Result<Option<Vec<u8>>, StorageError>;

impl Transfers {
    pub(super) fn new(shared: &Arc<Shared>, replies: Sender) -> Self {
        Self {
            shared: Arc::clone(shared),
            replies,
            entries: Arc::default(),
        }
    }

    /// Starts a transfer. Called from a blocking thread of the runtime.
    pub(super) fn start(&self, node: &Arc<dyn NodeSession>, call: u64, sent: message::Transfer) {
        let (lines, arriving) = mpsc::sync_channel(1);
        let (companions, ended) = mpsc::channel();
        let restore = ToRestore {
            lines: line_source(self.replies.clone(), call, arriving),
            companions: Arc::new(Others {
                replies: self.replies.clone(),
                call,
                ended: Mutex::new(ended),
            }),
        };
        let receives = matches!(sent.task, Some(message::transfer::Task::ReceiveFile(_)));
        let plan = match wire::to_plan(sent, restore) {
            Ok(plan) => plan,
            Err(error) => return self.refuse(call, &error.to_string()),
        };
        let entry = Entry {
            running: None,
            lines: Some(lines),
            companions: Some(companions),
            stored: RangeSet::new(),
            rate: plan.handling.bandwidth.clone(),
        };
        {
            let mut entries = lock(&self.entries);
            if entries.len() >= TRANSFERS || entries.contains_key(&call) {
                drop(entries);
                return self.refuse(call, "too many transfers of one session");
            }
            entries.insert(call, entry);
        }
        let counted = self.shared.count_transfer();
        let (sender, events) = events::unbounded_channel();
        let running = node.transfer(plan, Box::new(move |event| drop(sender.send(event))));
        if let Some(entry) = lock(&self.entries).get_mut(&call) {
            entry.running = Some(Arc::clone(&running));
        }
        let entries = Arc::clone(&self.entries);
        let mut told = Told {
            replies: self.replies.clone(),
            shared: Arc::clone(&self.shared),
            call,
            receives,
            last: Moving::default(),
        };
        tokio::spawn(async move {
            told.follow(&*running, events).await;
            lock(&entries).remove(&call);
            drop(counted);
        });
    }

    /// Ends a transfer before it has begun.
    pub(super) fn refuse(&self, call: u64, reason: &str) {
        let outcome = message::Outcome {
            failure: Some(message::Failure::of(&TransferError::Local(
                reason.to_owned(),
            ))),
            stripes: 1,
            ..message::Outcome::default()
        };
        let event = transfer_event::Event::Finished(outcome);
        self.replies.send(call, body(event));
    }

    pub(super) fn cancel(&self, sent: message::CancelTransfer) {
        if let Some(entry) = lock(&self.entries).get_mut(&sent.transfer) {
            entry.cancel(wire::to_cancel_reason(sent.reason));
        }
    }

    /// Cancels all transfers.
    pub(super) fn end(&self, reason: CancelReason) {
        for entry in lock(&self.entries).values_mut() {
            entry.cancel(reason);
        }
    }

    /// Passes lines on to the transfer that has asked for them.
    pub(super) fn lines(&self, sent: message::Lines) {
        let piece = match (sent.failure, sent.end) {
            (Some(failure), _) => Err(failure
                .restore()
                .unwrap_or_else(|_| StorageError::new("list", Errno::IO))),
            (None, true) => Ok(None),
            (None, false) => Ok(Some(sent.data)),
        };
        if let Some(lines) = lock(&self.entries)
            .get(&sent.transfer)
            .and_then(|entry| entry.lines.as_ref())
        {
            // The transfer may have ended, or has not asked.
            let _ = lines.try_send(piece);
        }
    }

    /// Changes how many bytes per second a transfer may move.
    pub(super) fn set_rate(&self, sent: message::SetRate) {
        if let Some(entry) = lock(&self.entries).get(&sent.transfer) {
            entry.rate.iter().for_each(|limit| limit.set(sent.rate));
        }
    }

    /// Tells the lead that the other nodes have ended, when all that they have stored is known.
    pub(super) fn companions_done(&self, sent: message::CompanionsDone) {
        let mut entries = lock(&self.entries);
        let Some(entry) = entries.get_mut(&sent.transfer) else {
            return;
        };
        let stored = match sent.failure {
            Some(failure) => Err(failure.restore().unwrap_or_else(wrong)),
            None => wire::to_ranges(&sent.stored).map_err(wrong),
        };
        let stored = stored.and_then(|ranges| {
            entry.stored.extend_from(&ranges);
            let count = entry.stored.len();
            if count > KEPT_RANGES {
                return Err(wrong(WireError::new(format!("{count} ranges"))));
            }
            Ok(())
        });
        if sent.more && stored.is_ok() {
            return;
        }
        if let Some(companions) = entry.companions.take() {
            let all = std::mem::take(&mut entry.stored);
            let _ = companions.send(stored.map(|()| all));
        }
    }
}

impl Entry {
    /// Without the senders, a transfer that waits for the control server ends.
    fn cancel(&mut self, reason: CancelReason) {
        if let Some(running) = &self.running {
            running.cancel(reason);
        }
        self.lines = None;
        self.companions = None;
    }
}

fn wrong(error: WireError) -> TransferError {
    TransferError::Local(error.to_string())
}

fn body(event: transfer_event::Event) -> Body {
    Body::Transfer(message::TransferEvent { event: Some(event) })
}

/// What the control server knows of a transfer.
struct Told {
    replies: Sender,
    shared: Arc<Shared>,
    call: u64,
    receives: bool,
    last: Moving,
}

impl Told {
    /// Sends the events of a transfer, and its state while it changes.
    async fn follow(
        &mut self,
        running: &dyn RunningTransfer,
        mut events: events::UnboundedReceiver<Event>,
    ) {
        let mut timer = interval_at(Instant::now() + EVERY, EVERY);
        loop {
            let event = tokio::select! {
                biased;
                event = events.recv() => event,
                _ = timer.tick() => {
                    self.tell_state(running).await;
                    continue;
                }
            };
            let event = match event {
                Some(Event::Queued { ahead }) => transfer_event::Event::Queued(ahead as u64),
                Some(Event::Started { reused }) => transfer_event::Event::Started(reused),
                Some(Event::Finished(outcome)) => {
                    // Before the end: the control server makes its last markers of this.
                    self.tell_state(running).await;
                    let event = transfer_event::Event::Finished(wire::outcome(&outcome));
                    self.replies.send_async(self.call, body(event)).await;
                    return;
                }
                None => return,
            };
            self.replies.send_async(self.call, body(event)).await;
        }
    }

    async fn tell_state(&mut self, running: &dyn RunningTransfer) {
        let now = Moving::of(running);
        let received = running.take_received();
        if now == self.last && received.is_empty() {
            return;
        }
        let moved = now.bytes().saturating_sub(self.last.bytes());
        self.shared.add_transferred(self.receives, moved);
        for (part, _) in wire::in_messages(&received) {
            let event = transfer_event::Event::Moving(wire::moving(&now, part));
            self.replies.send_async(self.call, body(event)).await;
        }
        self.last = now;
    }
}

/// The lines of a listing, which the control server makes.
fn line_source(replies: Sender, call: u64, arriving: mpsc::Receiver<Piece>) -> LineSource {
    let arriving = Mutex::new(Some(arriving));
    LineSource {
        open: Arc::new(move |_| {
            let arriving = lock(&arriving).take();
            let arriving = arriving.ok_or_else(|| StorageError::new("list", Errno::INVAL))?;
            let mut lines = RemoteLines {
                replies: replies.clone(),
                call,
                arriving,
                ended: false,
            };
            // A directory that cannot be listed is an error before data connections are used: the client gets it instead of
            // their reset.
            let first = lines.next().transpose()?;
            Ok(Box::new(first.map(Ok).into_iter().chain(lines)))
        }),
    }
}

struct RemoteLines {
    replies: Sender,
    call: u64,
    arriving: mpsc::Receiver<Piece>,
    ended: bool,
}

impl Iterator for RemoteLines {
    type Item = Result<Vec<u8>, StorageError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.ended {
            return None;
        }
        let event = transfer_event::Event::WantsLines(true);
        let asked = self.replies.send(self.call, body(event));
        let piece = match self.arriving.recv() {
            Ok(piece) if asked => piece,
            _ => Err(StorageError::new("list", Errno::CANCELED)),
        };
        self.ended = !matches!(piece, Ok(Some(_)));
        piece.transpose()
    }
}

/// The other nodes of a transfer, as the control server tells of them.
struct Others {
    replies: Sender,
    call: u64,
    ended: Mutex<mpsc::Receiver<Result<RangeSet, TransferError>>>,
}

impl Companions for Others {
    fn opened(&self, path: &Path) {
        let event = transfer_event::Event::Opened(wire::path(path));
        self.replies.send(self.call, body(event));
    }

    fn wait(&self) -> Result<RangeSet, TransferError> {
        // The sender goes when the transfer is cancelled.
        let ended = lock(&self.ended).recv();
        ended.unwrap_or(Err(TransferError::Cancelled(
            CancelReason::ControlChannelLost,
        )))
    }
}
