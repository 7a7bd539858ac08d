//! What happens in the server, defined once. The log and the transfer log derive from it.

use std::net::{IpAddr, SocketAddr};
use std::time::SystemTime;

use gridhaul_protocol::command::Command;
use gridhaul_protocol::reply::Reply;
use tracing::{debug, info, warn};

use crate::transfer_log::TransferLog;

/// Something that an administrator may want to know.
#[derive(Debug)]
pub(crate) enum Event<'a> {
    /// A client connected.
    SessionOpened { session: u64, peer: SocketAddr },
    /// A client was turned away before anything was read from it.
    ConnectionRefused { peer: SocketAddr, reason: &'a str },
    /// A client logged in.
    LoggedIn {
        session: u64,
        user: &'a str,
        read_only: bool,
    },
    /// A client tried to.
    LoginFailed {
        session: u64,
        peer: IpAddr,
        user: &'a str,
        reason: &'a str,
    },
    /// What the client says of itself.
    ClientInfo { session: u64, info: &'a str },
    /// A command, as the client sent it, without secrets.
    Command { session: u64, command: &'a Command },
    /// What the client was told.
    Reply { session: u64, reply: &'a Reply },
    /// A transfer ended.
    TransferFinished(&'a Transfer<'a>),
    /// A client is gone.
    SessionClosed { session: u64, reason: &'a str },
}

/// A transfer that ended, in success or not.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Transfer<'a> {
    pub(crate) session: u64,
    pub(crate) user: &'a str,
    /// `RETR`, `STOR`, `MLSD`, ...
    pub(crate) verb: &'static str,
    /// The absolute path as the session sees it.
    pub(crate) path: &'a str,
    pub(crate) started: SystemTime,
    pub(crate) finished: SystemTime,
    pub(crate) bytes: u64,
    pub(crate) channels: usize,
    pub(crate) stripes: usize,
    pub(crate) peers: &'a [IpAddr],
    /// Data connections of strangers, which were closed.
    pub(crate) refused: usize,
    pub(crate) buffer_bytes: usize,
    pub(crate) block_bytes: usize,
    /// The code of the last reply.
    pub(crate) code: u16,
    pub(crate) error: Option<&'a str>,
    /// From `SITE TASKID`.
    pub(crate) task_id: Option<&'a str>,
}

/// Where events go.
#[derive(Debug, Default)]
pub(crate) struct Journal {
    pub(crate) transfer_log: Option<TransferLog>,
}

impl Journal {
    /// Tells everybody who listens.
    pub(crate) fn publish(&self, event: &Event<'_>) {
        match *event {
            Event::SessionOpened { session, peer } => info!(session, %peer, "session opened"),
            Event::ConnectionRefused { peer, reason } => warn!(%peer, reason, "connection refused"),
            Event::LoggedIn {
                session,
                user,
                read_only,
            } => {
                info!(session, user, read_only, "logged in");
            }
            Event::LoginFailed {
                session,
                peer,
                user,
                reason,
            } => {
                warn!(session, %peer, user, reason, "login failed");
            }
            Event::ClientInfo { session, info } => debug!(session, info, "client"),
            Event::Command { session, command } => debug!(session, ?command, "command"),
            Event::Reply { session, reply } => debug!(session, ?reply, "reply"),
            Event::TransferFinished(transfer) => self.transfer_finished(transfer),
            Event::SessionClosed { session, reason } => info!(session, reason, "session closed"),
        }
    }

    fn transfer_finished(&self, transfer: &Transfer<'_>) {
        let seconds = transfer
            .finished
            .duration_since(transfer.started)
            .unwrap_or_default()
            .as_secs_f64();
        info!(
            session = transfer.session,
            user = transfer.user,
            verb = transfer.verb,
            path = transfer.path,
            bytes = transfer.bytes,
            seconds,
            channels = transfer.channels,
            stripes = transfer.stripes,
            peers = ?transfer.peers,
            refused = transfer.refused,
            code = transfer.code,
            error = transfer.error,
            "transfer finished"
        );
        if let Some(Err(error)) = self.transfer_log.as_ref().map(|log| log.record(transfer)) {
            warn!(%error, "the transfer log cannot be written");
        }
    }
}
