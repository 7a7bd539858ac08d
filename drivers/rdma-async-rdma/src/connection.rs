//! The data connection, which stays open beside the queue pair and shows how the peer ended.
//!
//! async-rdma does not report a peer that disconnected. Its completions arrive through a task of its own, so the end of the
//! connection may be seen before the last completion. Therefore an end that finishes in order sends a farewell behind its last
//! message, and the end of the connection counts only without a farewell.

use std::io;
use std::net::{Shutdown, TcpStream};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::Duration;

use rustix::net::sockopt;
use tokio::io::Interest;
use tokio::runtime::Handle;
use tokio::task::JoinHandle;
use tokio::time::sleep;

use crate::signal::Signal;

/// The time limit for a farewell that was sent before the connection was closed.
const GRACE: Duration = Duration::from_secs(1);

/// The data connection.
#[derive(Debug)]
pub(crate) struct PeerConnection {
    socket: TcpStream,
    /// `None` only during a change of state.
    watch: Option<Watch>,
    peer: Arc<AtomicU8>,
}

#[derive(Debug)]
enum Watch {
    /// Only the handshake of the channel reads from it.
    Later(TcpStream),
    Task(JoinHandle<()>),
}

/// The state of the peer, as the connection shows it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Peer {
    There,
    /// It has closed the connection; its farewell may still arrive.
    Closed,
    /// It closed the connection without a farewell, reset it, or its host failed.
    Lost,
}

impl PeerConnection {
    /// Takes a non-blocking connection.
    ///
    /// # Errors
    ///
    /// If the process has no descriptor left.
    pub(crate) fn new(socket: OwnedFd) -> io::Result<Self> {
        let socket = TcpStream::from(socket);
        Ok(Self {
            watch: Some(Watch::Later(socket.try_clone()?)),
            socket,
            peer: Arc::new(AtomicU8::new(Peer::There as u8)),
        })
    }

    /// Begins to watch the connection, after the handshake.
    pub(crate) fn watch(&mut self, runtime: &Handle, signal: &Arc<Signal>) {
        let watched = match self.watch.take() {
            Some(Watch::Later(watched)) => watched,
            other => return self.watch = other,
        };
        let (told, signal) = (Arc::clone(&self.peer), Arc::clone(signal));
        let tell = move |peer: Peer| {
            told.store(peer as u8, Ordering::Release);
            signal.give();
        };
        self.watch = Some(Watch::Task(runtime.spawn(async move {
            if is_closed(watched).await {
                tell(Peer::Closed);
                sleep(GRACE).await;
            }
            tell(Peer::Lost);
        })));
    }

    /// The present state.
    pub(crate) fn peer(&self) -> Peer {
        let peer = self.peer.load(Ordering::Acquire);
        [Peer::There, Peer::Closed]
            .into_iter()
            .find(|&state| state as u8 == peer)
            .unwrap_or(Peer::Lost)
    }

    /// Closes the sending direction.
    pub(crate) fn end(&self) {
        // A connection that is closed already needs no shutdown.
        let _ = self.socket.shutdown(Shutdown::Write);
    }

    /// Resets the connection, so that the peer sees a failure.
    pub(crate) fn reset(self) {
        // Without a linger time a close is a reset (socket(7)).
        let _ = sockopt::set_socket_linger(&self.socket, Some(Duration::ZERO));
    }
}

impl Drop for PeerConnection {
    fn drop(&mut self) {
        if let Some(Watch::Task(watcher)) = &self.watch {
            watcher.abort();
        }
    }
}

/// Waits for the end of a connection; `false` if it was reset or the peer sent data.
async fn is_closed(socket: TcpStream) -> bool {
    let Ok(socket) = tokio::net::TcpStream::from_std(socket) else {
        return false;
    };
    loop {
        if socket.ready(Interest::READABLE).await.is_err() {
            return false;
        }
        match socket.try_read(&mut [0; 1]) {
            Ok(0) => return true,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            // After the handshake, data is a protocol error.
            Ok(_) | Err(_) => return false,
        }
    }
}
