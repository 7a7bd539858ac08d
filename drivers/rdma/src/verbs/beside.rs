//! The data connection, which stays beside the queue pairs: it tells how the peer went.
//!
//! An end that is done closes it, and one that gives up resets it, as it would without RDMA.

use std::io;
use std::os::fd::OwnedFd;
use std::time::Duration;

use rustix::event::epoll;
use rustix::io::Errno;
use rustix::net::{RecvFlags, Shutdown, recv, shutdown, sockopt};

/// The data connection.
#[derive(Debug)]
pub(super) struct Beside {
    /// `None` when it was reset.
    socket: Option<OwnedFd>,
    peer: Peer,
    /// What the watch calls it.
    name: u64,
}

const ONCE: epoll::EventFlags = epoll::EventFlags::IN.union(epoll::EventFlags::ONESHOT);

/// Where the peer is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Peer {
    There,
    /// It is done.
    Closed,
    /// It gave up, or its host did.
    Reset,
}

impl Beside {
    /// Takes the connection.
    pub(super) fn new(socket: OwnedFd, watch: &OwnedFd, name: u64) -> io::Result<Self> {
        let beside = Self {
            socket: Some(socket),
            peer: Peer::There,
            name,
        };
        if let Some(socket) = &beside.socket {
            epoll::add(watch, socket, epoll::EventData::new_u64(name), ONCE)?;
        }
        Ok(beside)
    }

    /// Has it watched until the next event: an end stays readable, and would be one for ever.
    pub(super) fn watch(&self, watch: &OwnedFd) -> io::Result<()> {
        if let Some(socket) = &self.socket {
            epoll::modify(watch, socket, epoll::EventData::new_u64(self.name), ONCE)?;
        }
        Ok(())
    }

    /// Looks what the peer did.
    pub(super) fn look(&mut self) {
        let Some(socket) = self.socket.as_ref().filter(|_| self.peer == Peer::There) else {
            return;
        };
        self.peer = loop {
            match recv(socket, &mut [0; 64], RecvFlags::DONTWAIT) {
                Ok((_, 0)) => break Peer::Closed,
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => break Peer::There,
                // There is nothing to be said any more.
                Ok(_) | Err(_) => break Peer::Reset,
            }
        };
    }

    /// Where the peer was when somebody looked.
    pub(super) fn peer(&self) -> Peer {
        self.peer
    }

    /// Tells the peer that nothing more comes.
    pub(super) fn close(&self) {
        if let Some(socket) = &self.socket {
            // It fails only if the peer is gone, and needs to hear nothing.
            let _ = shutdown(socket, Shutdown::Write);
        }
    }

    /// Closes it so that the peer notices that something went wrong.
    pub(super) fn reset(&mut self) {
        if let Some(socket) = self.socket.take() {
            // Without a linger time a close is a reset (socket(7)).
            let _ = sockopt::set_socket_linger(&socket, Some(Duration::ZERO));
        }
    }
}
