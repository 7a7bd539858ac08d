//! The replies of a session, and the bound for a control server that does not take them.

use std::pin::{Pin, pin};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::sync::{mpsc, watch};
use tokio::time::{Instant, timeout_at};
use tokio_stream::Stream;
use tonic::Status;

use crate::generated::{self as message, session_reply};
use crate::limits::REPLIES;
use crate::sync::lock;

/// An item of the stream to the control server.
pub(super) type Reply = Result<message::SessionReply, Status>;

/// Sends replies.
#[derive(Clone)]
pub(super) struct Sender {
    queue: mpsc::Sender<Reply>,
    shared: Arc<Shared>,
    runtime: Handle,
    /// How long the control server may take no reply.
    within: Duration,
}

struct Shared {
    queue: Mutex<mpsc::Receiver<Reply>>,
    /// When the control server has taken a reply.
    taken: Mutex<Instant>,
    /// It has taken none for too long.
    is_stuck: watch::Sender<bool>,
}

/// The stream of replies to the control server.
pub(super) struct Replies(Arc<Shared>);

impl Sender {
    /// Sends to the stream. Must be called in the runtime.
    pub(super) fn new(within: Duration) -> (Self, Replies) {
        let (queue, receiver) = mpsc::channel(REPLIES);
        let shared = Arc::new(Shared {
            queue: Mutex::new(receiver),
            taken: Mutex::new(Instant::now()),
            is_stuck: watch::Sender::new(false),
        });
        let sender = Self {
            queue,
            shared: Arc::clone(&shared),
            runtime: Handle::current(),
            within,
        };
        (sender, Replies(shared))
    }

    /// Sends a reply from a blocking thread; waits while the control server takes others. Without a control server, or with one
    /// that takes none for too long, the reply is dropped, and false returned.
    pub(super) fn send(&self, call: u64, body: session_reply::Body) -> bool {
        self.runtime.block_on(self.send_async(call, body))
    }

    /// The same from a task.
    pub(super) async fn send_async(&self, call: u64, body: session_reply::Body) -> bool {
        let reply = message::SessionReply {
            call,
            body: Some(body),
        };
        let began = Instant::now();
        let mut place = pin!(self.queue.reserve());
        loop {
            // Others may wait before this one, so it counts whether any reply is taken.
            let last = began.max(*lock(&self.shared.taken));
            match timeout_at(last + self.within, &mut place).await {
                Ok(Ok(place)) => {
                    place.send(Ok(reply));
                    return true;
                }
                Ok(Err(_)) => return false,
                Err(_) if last < *lock(&self.shared.taken) => {}
                Err(_) => {
                    self.shared.give_up();
                    return false;
                }
            }
        }
    }

    /// Ends the stream with this reason, unless the control server has ended it.
    pub(super) async fn end(&self, status: Status) {
        let _ = self.queue.send_timeout(Err(status), self.within).await;
    }

    /// Waits until nothing takes replies any more: the control server has ended the stream, or it is stuck.
    pub(super) async fn ended(&self) {
        self.queue.closed().await;
    }

    /// Waits until the control server has taken no reply for too long.
    pub(super) async fn stuck(&self) {
        let mut is_stuck = self.shared.is_stuck.subscribe();
        // The sender is in `self`.
        let _ = is_stuck.wait_for(|is_stuck| *is_stuck).await;
    }
}

impl Shared {
    /// Drops the replies that wait. The stream ends.
    fn give_up(&self) {
        let mut queue = lock(&self.queue);
        queue.close();
        while queue.try_recv().is_ok() {}
        drop(queue);
        self.is_stuck.send_replace(true);
    }
}

impl Stream for Replies {
    type Item = Reply;

    fn poll_next(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Reply>> {
        let next = lock(&self.0.queue).poll_recv(context);
        if let Poll::Ready(Some(_)) = next {
            *lock(&self.0.taken) = Instant::now();
        }
        next
    }
}

impl Drop for Replies {
    /// The control server has ended the stream: those who wait to send learn it.
    fn drop(&mut self) {
        lock(&self.0.queue).close();
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::sleep;
    use tokio_stream::StreamExt as _;

    use super::*;

    const WITHIN: Duration = Duration::from_secs(60);

    async fn fill(sender: &Sender) {
        for call in 0..REPLIES as u64 {
            assert!(sender.send_async(call, done()).await);
        }
    }

    fn done() -> session_reply::Body {
        session_reply::Body::Done(message::Done {})
    }

    #[tokio::test(start_paused = true)]
    async fn a_control_server_that_takes_no_reply_is_given_up() {
        let (sender, mut replies) = Sender::new(WITHIN);
        // Time without replies does not count.
        sleep(2 * WITHIN).await;
        fill(&sender).await;
        let began = Instant::now();
        let stuck = sender.stuck();
        let (sent, ()) = tokio::join!(sender.send_async(99, done()), stuck);
        assert!(!sent);
        assert_eq!(began.elapsed().as_secs(), WITHIN.as_secs());
        assert!(replies.next().await.is_none(), "what waited is dropped");
    }

    #[tokio::test(start_paused = true)]
    async fn a_slow_control_server_gets_all_replies() {
        let (sender, mut replies) = Sender::new(WITHIN);
        fill(&sender).await;
        let sending = async {
            let mut all = Vec::new();
            for call in 0..5 {
                all.push(sender.send_async(call, done()));
            }
            for one in all {
                assert!(one.await);
            }
        };
        let taking = async {
            for _ in 0..10 {
                sleep(WITHIN - Duration::from_secs(5)).await;
                assert!(replies.next().await.is_some());
            }
        };
        tokio::join!(sending, taking);
    }

    #[tokio::test]
    async fn those_who_wait_learn_that_the_stream_has_ended() {
        let (sender, replies) = Sender::new(WITHIN);
        fill(&sender).await;
        let waiting = sender.clone();
        let waiting = tokio::task::spawn_blocking(move || waiting.send(99, done()));
        drop(replies);
        assert!(!waiting.await.expect("no panic"));
    }
}
