//! Why sessions end.

use std::io;

use gridhaul_protocol::reply::Reply;

/// A client that may log in, for the process that will serve it.
#[derive(Debug)]
pub(super) struct Arrival {
    pub(super) name: String,
    pub(super) is_anonymous: bool,
}

/// Why a session ends.
#[derive(Debug, thiserror::Error)]
pub(super) enum End {
    #[error("the client said goodbye")]
    Quit,
    #[error("the client closed the connection")]
    ClosedByClient,
    #[error("the client did nothing for too long")]
    Idle,
    /// The server is to blame, not the client.
    #[error("the login was not decided within login-timeout")]
    Undecided,
    #[error("too many wrong logins")]
    WrongLogins,
    #[error("the TLS handshake failed: {0}")]
    Handshake(String),
    #[error("{0}")]
    Broken(String),
    /// The server does not check passwords now.
    #[error("{0}")]
    TryLater(String),
    /// The client may log in, and another process will serve it.
    #[error("another process serves the client")]
    HandedOver(Arrival),
    /// `REIN` of a client that the front process handed over.
    #[error("the client begins anew")]
    Returned,
    /// The login of a client that the front process handed over failed. The reply was sent.
    #[error("the client cannot be served")]
    NotServed,
    #[error("the place was given to another client before login")]
    Displaced,
    #[error("the server is shutting down")]
    Shutdown,
    #[error("ended by the administrator")]
    Administrator,
    /// A ban list or a rule refuses the client since a reload.
    #[error("the user is refused since the configuration was read again")]
    Refused,
    #[error("the control connection failed: {0}")]
    Network(#[from] io::Error),
}

impl End {
    /// The last reply, if the client may still read one.
    pub(super) fn reply(&self) -> Option<Reply> {
        match self {
            Self::ClosedByClient | Self::Handshake(_) | Self::Network(_) => None,
            Self::HandedOver(_) | Self::Returned | Self::NotServed => None,
            // RFC 959 5.4, before login as well; globus-gridftp-server 13.24 answers 211 there.
            Self::Quit => Some(Reply::new(221, "Goodbye.")),
            Self::Idle => Some(Reply::new(421, "Idle Timeout: closing control connection.")),
            Self::Undecided => Some(Reply::new(
                421,
                "The server cannot decide about logins now. Please try again later. Closing control connection.",
            )),
            // RFC 2228 3: the integrity check failed, and no later command could be authenticated.
            Self::Broken(reason) => Some(Reply::new(
                535,
                format!("{reason} Closing control connection."),
            )),
            Self::WrongLogins => Some(Reply::new(
                421,
                "Too many wrong logins: closing control connection.",
            )),
            Self::TryLater(reason) => Some(Reply::new(
                421,
                format!("{reason}. Closing control connection."),
            )),
            Self::Displaced => Some(Reply::new(
                421,
                "Service busy: too many clients have not logged in. Please try again later. Closing control connection.",
            )),
            Self::Administrator => Some(Reply::new(
                421,
                "Session ended by the administrator: closing control connection.",
            )),
            Self::Refused => Some(Reply::new(
                421,
                "Access was withdrawn: closing control connection.",
            )),
            Self::Shutdown => Some(Reply::new(
                421,
                "Server shutting down: closing control connection.",
            )),
        }
    }
}
