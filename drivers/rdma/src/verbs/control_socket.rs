//! The control socket: the data connection stays open in addition to the queue pairs. It shows how
//! the peer ended, and carries the notices that replace queue pairs.
//!
//! An end that has finished closes it, and one that gives up resets it, as without RDMA.

use std::io;
use std::os::fd::OwnedFd;
use std::time::Duration;

use rustix::event::epoll;
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags, Shutdown, recv, send, shutdown, sockopt};

use crate::provider::{PortRecord, QueuePairRecord};

/// The data connection.
#[derive(Debug)]
pub(super) struct ControlSocket {
    /// `None` after a reset.
    socket: Option<OwnedFd>,
    peer: Peer,
    /// Its identifier in epoll.
    id: u64,
    /// The received part of a notice.
    received: Vec<u8>,
}

/// The peer's state.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Peer {
    Connected,
    /// It has finished.
    Closed,
    /// It or its host gave up.
    Reset,
}

/// A notice about a queue pair.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Notice {
    pub(super) queue_pair: u8,
    /// How many times it was replaced, including this time.
    pub(super) generation: u16,
    pub(super) step: Step,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Step {
    /// The sender has discarded the earlier queue pair. This is the new one, and its port as it is
    /// addressed now: a subnet manager may have given it another LID.
    Replaced(QueuePairRecord, PortRecord),
    /// The sender has connected it, and can receive on it.
    Connected,
    /// The sender does not replace it any more.
    GivenUp,
}

const NOTICE_BYTES: usize = 12 + PortRecord::BYTES;

impl Notice {
    fn encode(self) -> [u8; NOTICE_BYTES] {
        let (kind, record, port) = match self.step {
            Step::Replaced(record, port) => (1, record, port.encode()),
            Step::Connected => (2, NO_RECORD, NO_PORT),
            Step::GivenUp => (3, NO_RECORD, NO_PORT),
        };
        let [a, b] = self.generation.to_be_bytes();
        let [c, d, e, f] = record.number.to_be_bytes();
        let [g, h, i, j] = record.first_packet.to_be_bytes();
        let mut bytes = [0; NOTICE_BYTES];
        let (head, rest) = bytes.split_at_mut(NOTICE_BYTES - port.len());
        head.copy_from_slice(&[kind, self.queue_pair, a, b, c, d, e, f, g, h, i, j]);
        rest.copy_from_slice(&port);
        bytes
    }

    /// `None` if the bytes are no valid notice.
    fn decode(bytes: [u8; NOTICE_BYTES]) -> Option<Self> {
        let [kind, queue_pair, a, b, c, d, e, f, g, h, i, j, port @ ..] = bytes;
        let record = QueuePairRecord {
            number: u32::from_be_bytes([c, d, e, f]),
            first_packet: u32::from_be_bytes([g, h, i, j]),
        };
        let step = match kind {
            1 if record.is_valid() => Step::Replaced(record, PortRecord::decode(port)?),
            2 if record == NO_RECORD && port == NO_PORT => Step::Connected,
            3 if record == NO_RECORD && port == NO_PORT => Step::GivenUp,
            _ => return None,
        };
        Some(Self {
            queue_pair,
            generation: u16::from_be_bytes([a, b]),
            step,
        })
    }
}

const NO_RECORD: QueuePairRecord = QueuePairRecord {
    number: 0,
    first_packet: 0,
};

const NO_PORT: [u8; PortRecord::BYTES] = [0; PortRecord::BYTES];

/// After the end of the peer the socket stays readable, and would cause events for ever.
const ONCE: epoll::EventFlags = epoll::EventFlags::IN.union(epoll::EventFlags::ONESHOT);

/// Notices that are read with one call.
const BATCH: usize = 32;

impl ControlSocket {
    /// Takes the connection and watches it under this identifier until the next event.
    pub(super) fn new(socket: OwnedFd, watch: &OwnedFd, id: u64) -> io::Result<Self> {
        epoll::add(watch, &socket, epoll::EventData::new_u64(id), ONCE)?;
        Ok(Self {
            socket: Some(socket),
            peer: Peer::Connected,
            id,
            received: Vec::new(),
        })
    }

    /// Watches it until the next event.
    pub(super) fn watch(&self, watch: &OwnedFd) -> io::Result<()> {
        if let Some(socket) = &self.socket {
            epoll::modify(watch, socket, epoll::EventData::new_u64(self.id), ONCE)?;
        }
        Ok(())
    }

    /// Reads from the socket once, and appends the received notices. There may be more.
    pub(super) fn receive(&mut self, notices: &mut Vec<Notice>) {
        let Some(socket) = self
            .socket
            .as_ref()
            .filter(|_| self.peer == Peer::Connected)
        else {
            return;
        };
        let mut bytes = [0; BATCH * NOTICE_BYTES];
        match recv(socket, &mut bytes, RecvFlags::DONTWAIT) {
            Ok((_, 0)) => self.peer = Peer::Closed,
            Ok((_, count)) => self.parse(&bytes[..count], notices),
            Err(Errno::INTR | Errno::AGAIN) => {}
            Err(_) => self.peer = Peer::Reset,
        }
    }

    fn parse(&mut self, bytes: &[u8], notices: &mut Vec<Notice>) {
        self.received.extend(bytes);
        let (whole, rest) = self.received.as_chunks::<NOTICE_BYTES>();
        for notice in whole {
            match Notice::decode(*notice) {
                Some(notice) => notices.push(notice),
                // A violation of the protocol: no further notice can be trusted.
                None => self.peer = Peer::Reset,
            }
        }
        self.received = rest.to_vec();
    }

    /// The state of the peer when the socket was last read.
    pub(super) fn peer(&self) -> Peer {
        self.peer
    }

    /// Sends a notice.
    ///
    /// # Errors
    ///
    /// When the connection is lost, or the peer does not read.
    pub(super) fn send(&self, notice: Notice) -> io::Result<()> {
        let socket = self.socket.as_ref().ok_or(io::ErrorKind::NotConnected)?;
        let bytes = notice.encode();
        let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
        // A notice is sent whole, unless the buffer is full of unread ones.
        match rustix::io::retry_on_intr(|| send(socket, &bytes, flags))? {
            NOTICE_BYTES => Ok(()),
            _ => Err(io::ErrorKind::WouldBlock.into()),
        }
    }

    /// Closes the sending direction, because this end has finished.
    pub(super) fn close(&self) {
        if let Some(socket) = &self.socket {
            // It fails only if the connection is lost.
            let _ = shutdown(socket, Shutdown::Write);
        }
    }

    /// Resets it, so that the peer notices an error.
    pub(super) fn reset(&mut self) {
        if let Some(socket) = self.socket.take() {
            // With a linger time of zero, close sends a reset (socket(7)).
            let _ = sockopt::set_socket_linger(&socket, Some(Duration::ZERO));
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn records() -> impl Strategy<Value = (QueuePairRecord, PortRecord)> {
        let queue_pair = (0..1_u32 << 24, 0..1_u32 << 24);
        let port = (any::<[u8; 16]>(), any::<[u16; 2]>(), 1..=5_u8, any::<u8>());
        (queue_pair, port).prop_map(
            |((number, first_packet), (gid, [lid, partition], mtu, reads))| {
                let queue_pair = QueuePairRecord {
                    number,
                    first_packet,
                };
                let port = PortRecord {
                    gid,
                    lid,
                    mtu,
                    reads,
                    partition,
                };
                (queue_pair, port)
            },
        )
    }

    proptest! {
        #[test]
        fn notices_survive_the_wire(queue_pair: u8, generation: u16, records in proptest::option::of(records()), gives_up: bool) {
            let without = if gives_up { Step::GivenUp } else { Step::Connected };
            let step = records.map_or(without, |(record, port)| Step::Replaced(record, port));
            let notice = Notice { queue_pair, generation, step };
            prop_assert_eq!(Notice::decode(notice.encode()), Some(notice));
        }

        #[test]
        fn any_bytes_are_a_notice_or_none(kind in 0..5_u8, rest: [u8; NOTICE_BYTES - 1]) {
            let mut bytes = [kind; NOTICE_BYTES];
            bytes[1..].copy_from_slice(&rest);
            if let Some(notice) = Notice::decode(bytes) {
                prop_assert_eq!(notice.encode(), bytes);
            }
        }
    }
}
