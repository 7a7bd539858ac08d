//! The data connection, which stays beside the queue pair: it tells how the peer went.
//!
//! async-rdma tells nothing of a peer that went away, and its completions come by way of a task of its own: the end of the
//! connection may be heard before the last of them. So an end that is done sends a farewell behind its last
//! message, and the connection counts only where none comes.

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

/// How long a farewell may take that was sent before the connection was closed.
const GRACE: Duration = Duration::from_secs(1);

/// The data connection.
#[derive(Debug)]
pub(crate) struct Beside {
    socket: TcpStream,
    /// `None` only while it changes.
    watch: Option<Watch>,
    peer: Arc<AtomicU8>,
}

#[derive(Debug)]
enum Watch {
    /// Only the handshake of the channel reads from it so far.
    Later(TcpStream),
    Task(JoinHandle<()>),
}

/// What the connection says of the peer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Peer {
    There,
    /// It has closed the connection; its farewell may still come.
    Closed,
    /// It has closed it without a farewell, or it gave up, or its host did.
    Lost,
}

impl Beside {
    /// Takes a connection that does not block.
    ///
    /// # Errors
    ///
    /// When the process has no descriptor left.
    pub(crate) fn new(socket: OwnedFd) -> io::Result<Self> {
        let socket = TcpStream::from(socket);
        Ok(Self {
            watch: Some(Watch::Later(socket.try_clone()?)),
            socket,
            peer: Arc::new(AtomicU8::new(Peer::There as u8)),
        })
    }

    /// Begins to watch the connection, when all that had to be said there was said.
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

    /// What it says at this moment.
    pub(crate) fn peer(&self) -> Peer {
        let peer = self.peer.load(Ordering::Acquire);
        [Peer::There, Peer::Closed]
            .into_iter()
            .find(|&state| state as u8 == peer)
            .unwrap_or(Peer::Lost)
    }

    /// Tells the peer that nothing more comes.
    pub(crate) fn end(&self) {
        // A connection that is gone needs no end.
        let _ = self.socket.shutdown(Shutdown::Write);
    }

    /// Closes it so that the peer notices that something went wrong.
    pub(crate) fn reset(self) {
        // Without a linger time a close is a reset (socket(7)).
        let _ = sockopt::set_socket_linger(&self.socket, Some(Duration::ZERO));
    }
}

impl Drop for Beside {
    fn drop(&mut self) {
        if let Some(Watch::Task(watcher)) = &self.watch {
            watcher.abort();
        }
    }
}

/// Waits for the end of a connection; `false` if it is not an orderly one.
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
            // Nothing is to be said there any more.
            Ok(_) | Err(_) => return false,
        }
    }
}
