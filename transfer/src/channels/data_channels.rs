//! The data port of a session, and the open channels that the next transfer reuses.

use std::net::SocketAddr;

use gridhaul_stack::{Channel, SocketOptions, Stack, StackListener};

use super::block_reader::BlockReader;
use super::open_ports::OpenPort;
use crate::error::SequenceError;

/// The data port of `PASV`, `PORT` and their variants.
#[derive(Debug)]
pub(crate) enum DataPort {
    /// The server listens, with one listener for each stripe.
    Passive(Vec<StackListener>),
    /// The server connects, to one peer for each stripe.
    Active {
        stack: Stack,
        peers: Vec<SocketAddr>,
        sockets: SocketOptions,
    },
}

impl DataPort {
    fn stripes(&self) -> usize {
        match self {
            Self::Passive(listeners) => listeners.len(),
            Self::Active { peers, .. } => peers.len(),
        }
    }

    fn wants_direct(&self) -> bool {
        match self {
            Self::Passive(listeners) => listeners.iter().any(StackListener::wants_direct),
            Self::Active { stack, .. } => stack.wants_direct(),
        }
    }

    fn bypasses_cache(&self) -> bool {
        match self {
            Self::Passive(listeners) => listeners.iter().any(StackListener::bypasses_cache),
            Self::Active { stack, .. } => stack.bypasses_cache(),
        }
    }
}

/// An open channel with its read-ahead.
#[derive(Debug)]
pub(crate) struct DataChannel {
    pub(crate) channel: Box<dyn Channel>,
    pub(crate) reader: BlockReader,
}

impl DataChannel {
    pub(crate) fn new(channel: Box<dyn Channel>) -> Self {
        Self {
            channel,
            reader: BlockReader::default(),
        }
    }
}

/// The role of the node in a transfer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Role {
    Sender,
    Receiver,
}

/// The data port of a session, with the channels that an earlier MODE E transfer left open.
#[derive(Debug)]
pub(crate) struct DataChannels {
    pub(crate) port: DataPort,
    /// Open channels by stripe. The port determines their direction: the end that connects sends.
    pub(crate) kept: Vec<Vec<DataChannel>>,
    /// Registers the listeners of the port while it exists.
    _open: Vec<OpenPort>,
}

impl DataChannels {
    pub(crate) fn new(port: DataPort, open: Vec<OpenPort>) -> Self {
        let kept = (0..port.stripes()).map(|_| Vec::new()).collect();
        Self {
            port,
            kept,
            _open: open,
        }
    }

    pub(crate) fn stripes(&self) -> usize {
        self.port.stripes()
    }

    /// Whether a driver may use direct I/O, so that files should be opened for it as well.
    pub(crate) fn wants_direct(&self) -> bool {
        self.port.wants_direct()
    }

    /// Whether a driver uses the page cache only for files that cannot be moved past it.
    pub(crate) fn bypasses_cache(&self) -> bool {
        self.port.bypasses_cache()
    }

    /// Whether an earlier transfer left channels open.
    pub(crate) fn reused(&self) -> bool {
        self.kept.iter().any(|stripe| !stripe.is_empty())
    }

    /// The channel that an earlier transfer left open, if it is the only one.
    pub(crate) fn only_kept(&self) -> Option<&DataChannel> {
        match self.kept.as_slice() {
            [stripe] => stripe.first().filter(|_| stripe.len() == 1),
            _ => None,
        }
    }

    /// As [`Self::only_kept`].
    pub(crate) fn only_kept_mut(&mut self) -> Option<&mut DataChannel> {
        match self.kept.as_mut_slice() {
            [stripe] if stripe.len() == 1 => stripe.first_mut(),
            _ => None,
        }
    }

    /// Checks that a MODE E transfer with this role can use the port.
    ///
    /// # Errors
    ///
    /// GFD.20 3.4: the sender connects, the receiver listens.
    pub(crate) fn check_role(&self, role: Role) -> Result<(), SequenceError> {
        match (&self.port, role) {
            (DataPort::Active { .. }, Role::Sender) | (DataPort::Passive(_), Role::Receiver) => {
                Ok(())
            }
            (DataPort::Passive(_), Role::Sender) => Err(SequenceError::SenderMustConnect),
            (DataPort::Active { .. }, Role::Receiver) => Err(SequenceError::ReceiverMustListen),
        }
    }
}
