//! Which clients a server serves.

use std::io;
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;

use tokio::task::JoinHandle;

use super::accept::{accept, accept_first, welcome};
use super::sockets::in_runtime;
use crate::shared::Shared;
use crate::shutdown::Shutdown;

/// How a server gets its clients, and when it ends without an order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Mode {
    /// It listens, and does not end.
    Daemon,
    /// It listens, and ends after the first connection (`globus-gridftp-server -1`).
    Single,
    /// Another program has accepted a connection, and passes it as the last socket. The server ends after it
    /// (`globus-gridftp-server -i`).
    Accepted,
}

/// The sockets of the process that talks to clients first.
#[derive(Debug)]
pub(crate) enum Clients {
    /// All that connect are served.
    All(Vec<TcpListener>),
    /// The first one that connects is served, and no other can connect then.
    First(Vec<TcpListener>),
    /// This one is served.
    Accepted(TcpStream),
}

impl Clients {
    /// Begins to accept, or welcomes the client. Returns the task that begins the session of a client that stays the only one.
    /// Must be called in a runtime.
    ///
    /// # Errors
    ///
    /// When a socket cannot be handed to the runtime.
    pub(super) fn begin(
        self,
        shared: &Arc<Shared>,
        shutdown: &Shutdown,
    ) -> io::Result<Option<JoinHandle<()>>> {
        let (shared, phase) = (Arc::clone(shared), shutdown.watch());
        match self {
            Self::All(listeners) => {
                for listener in listeners {
                    let listener = in_runtime(listener)?;
                    tokio::spawn(accept(listener, Arc::clone(&shared), phase.clone()));
                }
                Ok(None)
            }
            Self::First(listeners) => {
                let listeners: io::Result<_> = listeners.into_iter().map(in_runtime).collect();
                let accepting = accept_first(listeners?, shared, phase);
                Ok(Some(tokio::spawn(accepting)))
            }
            Self::Accepted(stream) => {
                stream.set_nonblocking(true)?;
                let stream = tokio::net::TcpStream::from_std(stream)?;
                let begin = async move { welcome(stream, &shared, &phase) };
                Ok(Some(tokio::spawn(begin)))
            }
        }
    }
}
