//! One session of a client, as a stream of requests.
//!
//! Calls for storage run side by side, each on a blocking thread. What concerns data channels runs in the order of the requests.
//! When the stream ends, everything of the session ends.

mod data_port;

use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex};

use gridhaul_shares::{Grant, Source};
use gridhaul_transfer::{AttachError, CancelReason, NodeSession};
use tokio::sync::{Semaphore, mpsc};
use tokio::time::timeout;
use tonic::{Status, Streaming};
use tracing::warn;

use self::data_port::Refused;
use super::calls::Files;
use super::replies::{Replies, Sender};
use super::shared::{Counted, Shared};
use super::threads::run;
use super::transfers::Transfers;
use crate::generated::{self as message, session_reply, session_request};
use crate::limits::{ATTACH, CALLS, LARGE_BYTES, ORDERED_REQUESTS, WAITING_CALLS};
use crate::sync::lock;
use crate::wire::{self, WireError};

/// What a session has on the node.
struct Session {
    shared: Arc<Shared>,
    node: Arc<dyn NodeSession>,
    files: Arc<Files>,
    replies: Sender,
    transfers: Transfers,
    here: SocketAddr,
    /// Whom its threads count for.
    source: Source,
    /// The network of the client, by its first address: for IPv4, the client.
    client: IpAddr,
    /// Why the last `Connect` failed; the next transfer fails with it.
    refused_stack: Mutex<Option<Refused>>,
    _counted: Counted,
}

/// A request, and its place among the large ones.
struct Request {
    call: u64,
    body: Option<session_request::Body>,
    room: Option<Grant>,
}

/// The bounds of calls for storage.
struct Calls {
    /// Of those that run.
    permits: Arc<Semaphore>,
    /// Of those that run or wait.
    places: Arc<Semaphore>,
}

/// Attaches to the account that the first request names, and serves the session. Returns its replies.
///
/// # Errors
///
/// When the stream does not begin as it must.
pub(super) async fn begin(
    shared: Arc<Shared>,
    here: SocketAddr,
    mut requests: Streaming<message::SessionRequest>,
) -> Result<Replies, Status> {
    let first = timeout(ATTACH, requests.message()).await;
    let late = |_| Status::deadline_exceeded("a session does not begin");
    let first = first.map_err(late)??;
    let Some(message::SessionRequest {
        call,
        body: Some(session_request::Body::Attach(attach)),
    }) = first
    else {
        return Err(Status::invalid_argument("a session begins with Attach"));
    };
    let account = wire::account(&attach, &shared.config.root)
        .map_err(|error| Status::invalid_argument(error.to_string()))?;
    let source = account.source.clone();
    let client = source.network.first_address();
    let (replies, stream) = Sender::new(shared.config.reply_time);
    let node = Arc::clone(&shared.config.node);
    let attached = run(&shared.threads.attaching, &source, move || {
        let session = node.attach(&account)?;
        let (storage, home) = (session.storage(), session.home());
        Ok::<_, AttachError>((session, storage, home))
    });
    match attached.await {
        Some(Ok((node, storage, home))) => {
            let home = wire::path(&home);
            let attached = message::Attached { home };
            replies
                .send_async(call, session_reply::Body::Attached(attached))
                .await;
            let session = Arc::new(Session {
                _counted: shared.count(),
                transfers: Transfers::new(&shared, replies.clone()),
                shared,
                files: Files::new(&node, storage, replies.clone()),
                node,
                replies,
                here,
                source,
                client,
                refused_stack: Mutex::default(),
            });
            tokio::spawn(session.serve(requests));
        }
        Some(Err(error)) => {
            let failure = message::Failure::of(&error);
            replies
                .send_async(call, session_reply::Body::Failure(failure))
                .await;
        }
        None => return Err(Status::internal("the node failed")),
    }
    Ok(stream)
}

impl Session {
    /// Serves requests until the stream ends.
    async fn serve(self: Arc<Self>, mut requests: Streaming<message::SessionRequest>) {
        let (ordered, queue) = mpsc::channel(ORDERED_REQUESTS);
        let mut in_order = tokio::spawn(Arc::clone(&self).serve_in_order(queue));
        let permits = Arc::new(Semaphore::new(CALLS));
        let places = Arc::new(Semaphore::new(CALLS + WAITING_CALLS));
        let calls = Calls { permits, places };
        loop {
            let serving = async {
                match self.next(&mut requests).await {
                    Some(request) => self.take(request, &ordered, &calls).await,
                    None => false,
                }
            };
            tokio::select! {
                goes_on = serving => {
                    if !goes_on {
                        break;
                    }
                }
                // Without this a session whose calls hang would not see that it has ended.
                () = self.replies.ended() => break,
                () = self.replies.stuck() => {
                    let seconds = self.shared.config.reply_time.as_secs();
                    warn!(seconds, "a session ends whose control server takes no replies");
                    break;
                }
                // After a panic: the control server learns of it by the end of the stream.
                _ = &mut in_order => break,
            }
        }
        drop(ordered);
        // Calls that wait do not begin.
        calls.permits.close();
        // A call that waits for the control server ends, because it cannot send.
        self.files.cancel_all();
        self.transfers.end(CancelReason::ControlChannelLost);
        if !in_order.is_finished() {
            let _ = in_order.await;
        }
        // One that was in the queue.
        self.transfers.end(CancelReason::ControlChannelLost);
        let session = Arc::clone(&self);
        run(&self.shared.threads.ports, &self.source, move || {
            session.node.release();
        })
        .await;
    }

    /// The next request, when there is room for it. `None` at the end of the stream.
    async fn next(&self, requests: &mut Streaming<message::SessionRequest>) -> Option<Request> {
        let message = requests.message().await.ok()??;
        let Some(body) = message.body else {
            return Some(Request {
                call: message.call,
                body: None,
                room: None,
            });
        };
        if let Err(error) = wire::check_request(&body) {
            let status = Status::resource_exhausted(error.to_string());
            self.replies.end(status).await;
            return None;
        }
        let room = if body.encoded_len() > LARGE_BYTES {
            Some(self.shared.large.take(&self.source, 1).granted().await)
        } else {
            None
        };
        Some(Request {
            call: message.call,
            body: Some(body),
            room,
        })
    }

    /// Begins to serve a request. False if the session has to end.
    async fn take(
        self: &Arc<Self>,
        request: Request,
        ordered: &mpsc::Sender<Request>,
        calls: &Calls,
    ) -> bool {
        let Request { call, body, room } = request;
        match body {
            Some(session_request::Body::Storage(storage)) => {
                // Before the call begins, so that it can be given up while it waits.
                let cancel = self.files.cancellable(call);
                return self
                    .call(calls, call, move |files| {
                        let _room = room;
                        files.serve(call, storage, &cancel);
                    })
                    .await;
            }
            Some(session_request::Body::Checksum(checksum)) => {
                // Before the call begins, so that it can be given up while it waits.
                let cancel = self.files.cancellable(call);
                return self
                    .call(calls, call, move |files| {
                        let _room = room;
                        files.checksum(call, &checksum, &cancel);
                    })
                    .await;
            }
            Some(session_request::Body::CancelCall(cancel)) => self.files.cancel(cancel.other),
            Some(session_request::Body::LookAhead(look_ahead)) => {
                let paths = look_ahead.paths.iter().map(|path| wire::to_path(path));
                if let Ok(paths) = paths.collect() {
                    self.node.look_ahead(paths);
                }
            }
            Some(session_request::Body::Lines(lines)) => self.transfers.lines(lines),
            Some(session_request::Body::CompanionsDone(done)) => {
                self.transfers.companions_done(done);
            }
            Some(session_request::Body::SetRate(sent)) => self.transfers.set_rate(sent),
            Some(
                body @ (session_request::Body::Listen(_)
                | session_request::Body::Connect(_)
                | session_request::Body::Release(_)
                | session_request::Body::Transfer(_)
                | session_request::Body::CancelTransfer(_)),
            ) => {
                let body = Some(body);
                let request = Request { call, body, room };
                return ordered.send(request).await.is_ok();
            }
            Some(session_request::Body::Attach(_)) | None => {
                let failure = message::Failure::unknown();
                self.replies
                    .send_async(call, session_reply::Body::Failure(failure))
                    .await;
            }
        }
        true
    }

    /// Runs a call on a blocking thread, when there are not too many. Does not wait for that: a later request may cancel the calls
    /// that hang. False if the session has to end, because too many calls wait.
    async fn call(
        self: &Arc<Self>,
        calls: &Calls,
        call: u64,
        work: impl FnOnce(&Files) + Send + 'static,
    ) -> bool {
        let Ok(place) = Arc::clone(&calls.places).try_acquire_owned() else {
            let reason = format!("more than {WAITING_CALLS} calls of a session wait");
            self.replies.end(Status::resource_exhausted(reason)).await;
            return false;
        };
        let permits = Arc::clone(&calls.permits);
        let session = Arc::clone(self);
        tokio::spawn(async move {
            let _place = place;
            let Ok(permit) = permits.acquire_owned().await else {
                return;
            };
            let files = Arc::clone(&session.files);
            let threads = &session.shared.threads.files;
            let done = run(threads, &session.source, move || work(&files)).await;
            drop(permit);
            if done.is_none() {
                session.files.forget(call);
                let failure = message::Failure::refused(&WireError::new("an error of its own"));
                let body = session_reply::Body::Failure(failure);
                session.replies.send_async(call, body).await;
            }
        });
        true
    }

    /// Serves what concerns data channels, one request after the other.
    async fn serve_in_order(self: Arc<Self>, mut queue: mpsc::Receiver<Request>) {
        while let Some(Request { call, body, room }) = queue.recv().await {
            let Some(body) = body else { continue };
            let session = Arc::clone(&self);
            let served = run(&self.shared.threads.ports, &self.source, move || {
                let _room = room;
                session.serve_one(call, body);
            });
            // A panic must not leave the control server without a reply: the stream ends.
            if served.await.is_none() {
                return;
            }
        }
    }

    fn serve_one(&self, call: u64, body: session_request::Body) {
        match body {
            session_request::Body::Listen(listen) => {
                let reply = match self.listen(listen) {
                    Ok(addresses) => session_reply::Body::Listening(message::Listening {
                        addresses: addresses.into_iter().map(wire::address).collect(),
                    }),
                    Err(failure) => session_reply::Body::Failure(failure),
                };
                self.replies.send(call, reply);
            }
            session_request::Body::Connect(connect) => {
                *lock(&self.refused_stack) = None;
                if let Err(error) = self.connect(connect) {
                    self.node.release();
                    *lock(&self.refused_stack) = Some(error);
                }
            }
            session_request::Body::Release(_) => {
                *lock(&self.refused_stack) = None;
                self.node.release();
            }
            session_request::Body::Transfer(transfer) => match lock(&self.refused_stack).take() {
                None => self.transfers.start(&self.node, call, transfer),
                Some(error) => self.transfers.refuse(call, &error.to_string()),
            },
            session_request::Body::CancelTransfer(cancel) => self.transfers.cancel(cancel),
            _ => {}
        }
    }
}
