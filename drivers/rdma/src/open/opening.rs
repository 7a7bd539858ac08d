//! A channel that is being opened: the data connection, and what each step of the handshake needs.

use std::net::{IpAddr, SocketAddr};
use std::os::fd::OwnedFd;

use gridhaul_iwarp::HandshakeError;
use gridhaul_stack::{ChannelError, Operation, SocketOptions};
use gridhaul_tcp::TcpListener;

use super::agreement::NoSlots;
use crate::handshake::{self, Mode, Record, RecordError, Token};
use crate::provider::Limits;
use crate::settings::Settings;
use crate::verbs::{Listener, VerbsError};

/// Why a channel did not open.
#[derive(Debug, thiserror::Error)]
pub(super) enum OpenError {
    #[error(transparent)]
    Channel(#[from] ChannelError),
    #[error(transparent)]
    Record(#[from] RecordError),
    #[error(transparent)]
    Handshake(#[from] HandshakeError),
    #[error("the other end sent an unexpected record")]
    Unexpected,
    #[error("the other end chose more than it was offered")]
    ExceedsOffer,
    /// No adapter was found.
    #[error(transparent)]
    Verbs(VerbsError),
    /// A reason of this end, which is sent to the other end.
    #[error("{0}")]
    Local(String),
    /// The path does not carry packets of the adapters. Both ends know that.
    #[error("{0}")]
    NoPath(String),
}

/// The other end learns of it.
impl From<NoSlots> for OpenError {
    fn from(error: NoSlots) -> Self {
        Self::Local(error.to_string())
    }
}

/// The data connection of a channel that is being opened.
pub(super) struct Opening<'a> {
    pub(super) socket: OwnedFd,
    pub(super) peer: SocketAddr,
    pub(super) settings: &'a Settings,
    pub(super) options: &'a SocketOptions,
    pub(super) operation: &'a Operation<'a>,
}

impl Opening<'_> {
    pub(super) fn listen(&self) -> Result<TcpListener, OpenError> {
        let local = self.local()?;
        let options = self.options.at(local);
        TcpListener::open(&self.settings.tcp, local.ip(), &options)
            .map_err(|error| OpenError::Local(error.to_string()))
    }

    /// Sends the reason of a failure to the other end.
    pub(super) fn or_refuse<T>(&self, outcome: Result<T, OpenError>) -> Result<T, OpenError> {
        if let Err(OpenError::Local(reason)) = &outcome {
            // It is sent if possible; the reason of this end is what counts.
            let refusal = Record::Refusal(reason.clone());
            let _ = handshake::write(&self.socket, &refusal, self.operation);
        }
        outcome
    }

    pub(super) fn local_address(&self) -> Result<IpAddr, OpenError> {
        Ok(self.local()?.ip())
    }

    fn local(&self) -> Result<SocketAddr, OpenError> {
        rustix::net::getsockname(&self.socket)
            .and_then(SocketAddr::try_from)
            .map_err(|errno| OpenError::Local(errno.to_string()))
    }
}

/// Where the other end connects queue pairs that have connections of their own.
pub(super) enum QueuePairListener {
    None,
    Tcp(TcpListener),
    /// With its port.
    ConnectionManager(Listener, u16),
}

impl QueuePairListener {
    /// The port, or 0 without one.
    pub(super) fn port(&self) -> u16 {
        match self {
            Self::None => 0,
            Self::Tcp(listener) => listener.port(),
            Self::ConnectionManager(_, port) => *port,
        }
    }
}

/// Private data of a connection: it proves which data connection it belongs to, and names the queue
/// pair.
pub(crate) fn private_data(token: Token, number: u16) -> Vec<u8> {
    let mut private = token.to_vec();
    private.extend(number.to_be_bytes());
    private
}

pub(super) fn local_error(error: std::io::Error) -> OpenError {
    OpenError::Local(error.to_string())
}

/// Whether the two adapters can do what the mode needs.
pub(super) fn check_reads(limits: Limits, mode: Mode) -> Result<(), OpenError> {
    if mode == Mode::Put || limits.reads > 0 {
        return Ok(());
    }
    Err(OpenError::Local(
        "mode=get needs READs, of which the adapter of this end requests none or that of the other end answers none \
         (max_qp_init_rd_atom and max_qp_rd_atom of ibv_devinfo -v): use mode=put"
            .to_owned(),
    ))
}
