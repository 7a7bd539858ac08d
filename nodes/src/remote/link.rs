//! The stream of requests of a session, and the calls that wait for replies.

use std::collections::HashMap;
use std::fmt;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc::RecvTimeoutError;
use std::sync::{Arc, Mutex, mpsc};
use std::time::Duration;

use tokio::sync::mpsc::error::TrySendError;
use tokio::sync::mpsc::{self as requests};
use tonic::{Status, Streaming};

use crate::generated::{self as message, session_reply, session_request};
use crate::limits::PROGRESS;
use crate::sync::lock;
use crate::wire;

/// A session's connection to its node.
pub(super) struct Link {
    /// The name of the node, for messages.
    pub(super) node: Arc<str>,
    /// Absent after the end: HTTP/2 ends the stream when both directions have ended.
    requests: Mutex<Option<requests::Sender<message::SessionRequest>>>,
    next: AtomicU64,
    waiting: Mutex<Waiting>,
}

/// The replies to a call.
pub(super) struct Replies {
    receiver: mpsc::Receiver<session_reply::Body>,
    queued: Arc<AtomicUsize>,
}

/// Passes replies to the call that waits.
#[derive(Clone)]
struct Waits {
    sender: mpsc::Sender<session_reply::Body>,
    queued: Arc<AtomicUsize>,
}

#[derive(Default)]
struct Waiting {
    calls: HashMap<u64, Waits>,
    transfers: HashMap<u64, Arc<dyn Follower>>,
    /// Why the stream has ended.
    lost: Option<Arc<str>>,
}

/// A transfer that waits for its events.
pub(super) trait Follower: Send + Sync {
    /// Notes an event; returns true for the last one.
    fn note(self: Arc<Self>, event: message::TransferEvent) -> bool;

    /// There will be no further events.
    fn lose(&self, lost: &Lost);
}

/// The node is lost.
#[derive(Debug, Clone, thiserror::Error)]
#[error("the data node {node} was lost: {reason}")]
pub(super) struct Lost {
    node: Arc<str>,
    reason: Arc<str>,
}

impl Link {
    pub(super) fn new(
        node: Arc<str>,
        requests: requests::Sender<message::SessionRequest>,
    ) -> Arc<Self> {
        Arc::new(Self {
            node,
            requests: Mutex::new(Some(requests)),
            next: AtomicU64::new(1),
            waiting: Mutex::default(),
        })
    }

    /// The number of the next call.
    pub(super) fn number(&self) -> u64 {
        self.next.fetch_add(1, Ordering::Relaxed)
    }

    /// Sends a request that has no reply, or whose reply a caller expects already.
    pub(super) fn tell(&self, call: u64, body: session_request::Body) {
        let body = Some(body);
        let sent = match lock(&self.requests).as_ref() {
            Some(requests) => requests.try_send(message::SessionRequest { call, body }),
            // Without a node nothing is left to do: those who wait have been told.
            None => return,
        };
        if let Err(TrySendError::Full(_)) = sent {
            self.end("it does not take requests".into());
        }
    }

    /// Sends a request, and returns its number and the replies as they come. They end when the node is lost.
    pub(super) fn call(&self, body: session_request::Body) -> (u64, Replies) {
        let (sender, receiver) = mpsc::channel();
        let queued = Arc::new(AtomicUsize::new(0));
        let replies = Replies {
            receiver,
            queued: Arc::clone(&queued),
        };
        let waits = Waits { sender, queued };
        let call = self.number();
        {
            let mut waiting = lock(&self.waiting);
            if waiting.lost.is_none() {
                waiting.calls.insert(call, waits);
            }
        }
        self.tell(call, body);
        (call, replies)
    }

    /// No more replies of this call are wanted.
    pub(super) fn forget(&self, call: u64) {
        lock(&self.waiting).calls.remove(&call);
    }

    /// Sends a request, and waits for its only reply.
    pub(super) fn ask(&self, body: session_request::Body) -> Result<session_reply::Body, Lost> {
        let (call, replies) = self.call(body);
        let reply = replies.recv().map_err(|_| self.lost());
        self.forget(call);
        reply
    }

    /// The same with a limit for the time.
    pub(super) fn ask_within(
        &self,
        body: session_request::Body,
        limit: Duration,
    ) -> Result<session_reply::Body, Lost> {
        let (call, replies) = self.call(body);
        let reply = replies.recv_timeout(limit).map_err(|error| match error {
            RecvTimeoutError::Disconnected => self.lost(),
            RecvTimeoutError::Timeout => Lost {
                node: Arc::clone(&self.node),
                reason: format!("no answer within {} s", limit.as_secs()).into(),
            },
        });
        self.forget(call);
        reply
    }

    /// Sends a request that can be given up, and passes its replies to `take` until that returns something. `None` if the node is
    /// lost before.
    pub(super) fn ask_unless<T>(
        &self,
        body: session_request::Body,
        cancelled: &dyn Fn() -> bool,
        mut take: impl FnMut(session_reply::Body) -> Option<T>,
    ) -> Option<T> {
        /// How often this looks whether the call is given up.
        const LOOK_EVERY: Duration = Duration::from_millis(50);
        let (call, replies) = self.call(body);
        let mut told = false;
        let taken = loop {
            match replies.recv_timeout(LOOK_EVERY) {
                Ok(reply) => {
                    if let Some(taken) = take(reply) {
                        break Some(taken);
                    }
                }
                Err(RecvTimeoutError::Disconnected) => break None,
                Err(RecvTimeoutError::Timeout) if !told && cancelled() => {
                    told = true;
                    let cancel = message::CancelCall { other: call };
                    let body = session_request::Body::CancelCall(cancel);
                    self.tell(self.number(), body);
                }
                Err(RecvTimeoutError::Timeout) => {}
            }
        };
        self.forget(call);
        taken
    }

    /// Whether the stream has ended.
    pub(super) fn is_lost(&self) -> bool {
        lock(&self.waiting).lost.is_some()
    }

    /// Registers a transfer before its request is sent. Returns the reason if the node is lost.
    pub(super) fn expect(&self, call: u64, transfer: Arc<dyn Follower>) -> Result<(), Lost> {
        let mut waiting = lock(&self.waiting);
        match waiting.lost {
            Some(_) => {
                drop(waiting);
                Err(self.lost())
            }
            None => {
                waiting.transfers.insert(call, transfer);
                Ok(())
            }
        }
    }

    pub(super) fn lost(&self) -> Lost {
        let reason = lock(&self.waiting).lost.clone();
        Lost {
            node: Arc::clone(&self.node),
            reason: reason.unwrap_or_else(|| "the session has ended".into()),
        }
    }

    /// Passes replies on until the stream ends. Returns the reason.
    pub(super) async fn receive(&self, mut replies: Streaming<message::SessionReply>) -> Arc<str> {
        loop {
            match replies.message().await {
                Ok(Some(message::SessionReply {
                    call,
                    body: Some(body),
                })) => {
                    if let Err(error) = wire::check_reply(&body) {
                        break error.to_string().into();
                    }
                    self.pass_on(call, body);
                }
                Ok(Some(_)) => {}
                Ok(None) => break "it has ended the session".into(),
                Err(status) => break reason_of(&status),
            }
        }
    }

    /// All that wait learn that the node is lost.
    pub(super) fn end(&self, reason: Arc<str>) {
        *lock(&self.requests) = None;
        let (calls, transfers) = {
            let mut waiting = lock(&self.waiting);
            waiting.lost.get_or_insert(reason);
            let waiting = &mut *waiting;
            (
                std::mem::take(&mut waiting.calls),
                std::mem::take(&mut waiting.transfers),
            )
        };
        drop(calls);
        let lost = self.lost();
        for transfer in transfers.into_values() {
            transfer.lose(&lost);
        }
    }

    fn pass_on(&self, call: u64, body: session_reply::Body) {
        let mut waiting = lock(&self.waiting);
        match body {
            session_reply::Body::Transfer(event) => {
                let transfer = waiting.transfers.get(&call).cloned();
                drop(waiting);
                if let Some(transfer) = transfer
                    && transfer.note(event)
                {
                    lock(&self.waiting).transfers.remove(&call);
                }
            }
            body => {
                // A call has one reply, and a checksum tells its progress before.
                let is_progress = matches!(body, session_reply::Body::CheckedBytes(_));
                let waits = match is_progress {
                    true => waiting.calls.get(&call).cloned(),
                    false => waiting.calls.remove(&call),
                };
                if let Some(waits) = waits {
                    waits.pass_on(body, is_progress);
                }
            }
        }
    }
}

impl Waits {
    /// Progress that the caller does not take is left out.
    fn pass_on(&self, body: session_reply::Body, is_progress: bool) {
        if is_progress && self.queued.load(Ordering::Acquire) >= PROGRESS {
            return;
        }
        self.queued.fetch_add(1, Ordering::AcqRel);
        // The caller may have given up.
        let _ = self.sender.send(body);
    }
}

impl Replies {
    /// Waits for the next reply.
    pub(super) fn recv(&self) -> Result<session_reply::Body, RecvTimeoutError> {
        let reply = self.receiver.recv();
        self.taken(reply.map_err(|_| RecvTimeoutError::Disconnected))
    }

    /// The same with a limit for the time.
    pub(super) fn recv_timeout(
        &self,
        limit: Duration,
    ) -> Result<session_reply::Body, RecvTimeoutError> {
        self.taken(self.receiver.recv_timeout(limit))
    }

    fn taken<E>(&self, reply: Result<session_reply::Body, E>) -> Result<session_reply::Body, E> {
        reply.inspect(|_| {
            self.queued.fetch_sub(1, Ordering::AcqRel);
        })
    }
}

/// The reason in words, without the names of gRPC.
pub(super) fn reason_of(status: &Status) -> Arc<str> {
    let mut text = status.message().to_owned();
    let mut source = std::error::Error::source(status);
    // The last cause is the one that says what happened: "connection refused".
    while let Some(error) = source {
        text = error.to_string();
        source = error.source();
    }
    if text.is_empty() {
        text = status.code().to_string();
    }
    text.into()
}

impl fmt::Debug for Link {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Link")
            .field("node", &self.node)
            .finish_non_exhaustive()
    }
}
