//! The replies of a session.

use tokio::sync::mpsc;
use tonic::Status;

use crate::generated::{self as message, session_reply};
use crate::limits::REPLIES;

/// An item of the stream to the control server.
pub(super) type Reply = Result<message::SessionReply, Status>;

/// Sends replies.
#[derive(Clone)]
pub(super) struct Sender(mpsc::Sender<Reply>);

impl Sender {
    /// Sends to the receiver, which is the stream of the control server.
    pub(super) fn new() -> (Self, mpsc::Receiver<Reply>) {
        let (sender, receiver) = mpsc::channel(REPLIES);
        (Self(sender), receiver)
    }

    /// Sends a reply from a blocking thread; waits while the control server does not read. Without a control server the reply
    /// is dropped, and false returned.
    pub(super) fn send(&self, call: u64, body: session_reply::Body) -> bool {
        let body = Some(body);
        self.0
            .blocking_send(Ok(message::SessionReply { call, body }))
            .is_ok()
    }

    /// The same from a task.
    pub(super) async fn send_async(&self, call: u64, body: session_reply::Body) -> bool {
        let body = Some(body);
        let reply = Ok(message::SessionReply { call, body });
        self.0.send(reply).await.is_ok()
    }
}
