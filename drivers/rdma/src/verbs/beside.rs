//! The data connection, which stays beside the queue pairs: it tells how the peer went, and which queue pairs are
//! replaced.
//!
//! An end that is done closes it, and one that gives up resets it, as it would without RDMA.

use std::io;
use std::os::fd::OwnedFd;
use std::time::Duration;

use rustix::event::epoll;
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags, Shutdown, recv, send, shutdown, sockopt};

use crate::handshake::QueuePairRecord;

/// The data connection.
#[derive(Debug)]
pub(super) struct Beside {
    /// `None` when it was reset.
    socket: Option<OwnedFd>,
    peer: Peer,
    /// What the watch calls it.
    name: u64,
    /// The beginning of a notice.
    received: Vec<u8>,
}

/// Where the peer is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Peer {
    There,
    /// It is done.
    Closed,
    /// It gave up, or its host did.
    Reset,
}

/// What one end tells the other of a queue pair.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Notice {
    pub(super) queue_pair: u8,
    /// How often it was replaced, this time included.
    pub(super) life: u16,
    pub(super) step: Step,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Step {
    /// The sender of the notice has thrown the earlier one away, and this is the next.
    Replaced(QueuePairRecord),
    /// It is connected to that of the other end, and receives.
    Connected,
}

const NOTICE_BYTES: usize = 12;

impl Notice {
    fn encode(self) -> [u8; NOTICE_BYTES] {
        let (kind, record) = match self.step {
            Step::Replaced(record) => (1, record),
            Step::Connected => (2, NO_RECORD),
        };
        let [a, b] = self.life.to_be_bytes();
        let [c, d, e, f] = record.number.to_be_bytes();
        let [g, h, i, j] = record.first_packet.to_be_bytes();
        [kind, self.queue_pair, a, b, c, d, e, f, g, h, i, j]
    }

    /// `None` for what is no notice.
    fn decode(bytes: [u8; NOTICE_BYTES]) -> Option<Self> {
        let [kind, queue_pair, a, b, c, d, e, f, g, h, i, j] = bytes;
        let record = QueuePairRecord {
            number: u32::from_be_bytes([c, d, e, f]),
            first_packet: u32::from_be_bytes([g, h, i, j]),
        };
        let step = match kind {
            1 if record.is_valid() => Step::Replaced(record),
            2 if record == NO_RECORD => Step::Connected,
            _ => return None,
        };
        Some(Self {
            queue_pair,
            life: u16::from_be_bytes([a, b]),
            step,
        })
    }
}

const NO_RECORD: QueuePairRecord = QueuePairRecord {
    number: 0,
    first_packet: 0,
};

/// An end of the connection stays readable, and would be an event for ever.
const ONCE: epoll::EventFlags = epoll::EventFlags::IN.union(epoll::EventFlags::ONESHOT);

/// Notices that are taken at a time.
const BATCH: usize = 32;

impl Beside {
    /// Takes the connection, and has it watched under this name until the next event.
    pub(super) fn new(socket: OwnedFd, watch: &OwnedFd, name: u64) -> io::Result<Self> {
        epoll::add(watch, &socket, epoll::EventData::new_u64(name), ONCE)?;
        Ok(Self {
            socket: Some(socket),
            peer: Peer::There,
            name,
            received: Vec::new(),
        })
    }

    /// Has it watched until the next event.
    pub(super) fn watch(&self, watch: &OwnedFd) -> io::Result<()> {
        if let Some(socket) = &self.socket {
            epoll::modify(watch, socket, epoll::EventData::new_u64(self.name), ONCE)?;
        }
        Ok(())
    }

    /// Looks what the peer did, and adds what it says to `notices`. There may be more.
    pub(super) fn look(&mut self, notices: &mut Vec<Notice>) {
        let Some(socket) = self.socket.as_ref().filter(|_| self.peer == Peer::There) else {
            return;
        };
        let mut bytes = [0; BATCH * NOTICE_BYTES];
        match recv(socket, &mut bytes, RecvFlags::DONTWAIT) {
            Ok((_, 0)) => self.peer = Peer::Closed,
            Ok((_, count)) => self.hear(&bytes[..count], notices),
            Err(Errno::INTR | Errno::AGAIN) => {}
            Err(_) => self.peer = Peer::Reset,
        }
    }

    fn hear(&mut self, bytes: &[u8], notices: &mut Vec<Notice>) {
        self.received.extend(bytes);
        let (whole, rest) = self.received.as_chunks::<NOTICE_BYTES>();
        for notice in whole {
            match Notice::decode(*notice) {
                Some(notice) => notices.push(notice),
                // It does not keep to the protocol: nothing that it says can be understood.
                None => self.peer = Peer::Reset,
            }
        }
        self.received = rest.to_vec();
    }

    /// Where the peer was when somebody looked.
    pub(super) fn peer(&self) -> Peer {
        self.peer
    }

    /// Tells the peer something.
    ///
    /// # Errors
    ///
    /// When the connection is gone, or the peer has not listened for long.
    pub(super) fn tell(&self, notice: Notice) -> io::Result<()> {
        let socket = self.socket.as_ref().ok_or(io::ErrorKind::NotConnected)?;
        let bytes = notice.encode();
        let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
        // So few bytes go whole, or the buffer is full of notices that nobody read.
        match rustix::io::retry_on_intr(|| send(socket, &bytes, flags))? {
            NOTICE_BYTES => Ok(()),
            _ => Err(io::ErrorKind::WouldBlock.into()),
        }
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

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn records() -> impl Strategy<Value = QueuePairRecord> {
        (0..1_u32 << 24, 0..1_u32 << 24).prop_map(|(number, first_packet)| QueuePairRecord {
            number,
            first_packet,
        })
    }

    proptest! {
        #[test]
        fn notices_survive_the_wire(queue_pair: u8, life: u16, record in proptest::option::of(records())) {
            let step = record.map_or(Step::Connected, Step::Replaced);
            let notice = Notice { queue_pair, life, step };
            prop_assert_eq!(Notice::decode(notice.encode()), Some(notice));
        }

        #[test]
        fn any_bytes_are_a_notice_or_none(bytes: [u8; NOTICE_BYTES]) {
            if let Some(notice) = Notice::decode(bytes) {
                prop_assert_eq!(notice.encode(), bytes);
            }
        }
    }
}
