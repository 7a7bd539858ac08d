//! The data port that `PASV`, `PORT` and similar commands set, and the transfers that may use it.
//!
//! In stream mode a port is valid for one transfer, in either direction. In MODE E the sender connects (GFD.20, SPAS and SPOR), so
//! a passive port is for receiving and an active one for sending; its channels stay open after a transfer, and the next transfer
//! in the same direction needs no new port.

use super::refusal::Refusal;
use crate::address::Family;
use crate::command::{BufferBytes, Command, EpsvRequest, RdmaCommand, TransferMode};

/// The data port that the client has set.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) enum DataPort {
    /// Not set, or used.
    #[default]
    None,
    /// The session listens.
    Passive {
        /// The number of addresses in the reply.
        stripes: usize,
        /// Data channels exist.
        used: bool,
    },
    /// The session will listen when a transfer begins.
    Delayed(PassiveRequest),
    /// The session connects.
    Active {
        /// The number of addresses.
        stripes: usize,
        /// Data channels exist.
        used: bool,
    },
}

/// A command that makes the session listen.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PassiveRequest {
    /// `PASV`.
    Pasv,
    /// `EPSV`, for the protocol of the control channel or for this one.
    Epsv(Option<Family>),
    /// `SPAS`: addresses as in `PORT`, or of this protocol.
    Spas(Option<Family>),
    /// `RPSV`, with the buffer size that the client requests.
    Rpsv(Option<BufferBytes>),
}

impl PassiveRequest {
    /// The request of a command, if it is one; `EPSV ALL` is not.
    pub fn of(command: &Command) -> Option<Self> {
        match command {
            Command::Pasv => Some(Self::Pasv),
            Command::Epsv(EpsvRequest::Same) => Some(Self::Epsv(None)),
            Command::Epsv(EpsvRequest::Family(family)) => Some(Self::Epsv(Some(*family))),
            Command::Spas(family) => Some(Self::Spas(*family)),
            Command::Rdma(RdmaCommand::Passive { buffer }) => Some(Self::Rpsv(*buffer)),
            _ => None,
        }
    }
}

/// The session's action for a [`PassiveRequest`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use]
pub enum Passive {
    /// Listen now, then call [`Negotiated::listening`](super::Negotiated::listening) and send the addresses.
    Listen {
        /// The reply may contain several addresses.
        striped: bool,
    },
    /// Close the present listener, and reply `200 Passive delayed.`
    Delay,
}

/// The direction of a transfer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Direction {
    /// To the client: files and listings.
    Send,
    /// From the client.
    Receive,
}

/// The end of a transfer, with respect to its data channels.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TransferEnd {
    /// No data channel was used, for example because the file could not be opened.
    NotStarted,
    /// All data channels reached the end of the file.
    Complete,
    /// The transfer failed.
    Broken,
}

/// The action for the session's data channels and listeners.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use]
pub enum Channels {
    /// Keep them.
    Keep,
    /// Close them.
    Release,
}

impl DataPort {
    pub(super) fn passive(stripes: usize) -> Self {
        Self::Passive {
            stripes,
            used: false,
        }
    }

    pub(super) fn active(stripes: usize) -> Self {
        Self::Active {
            stripes,
            used: false,
        }
    }

    /// Whether a transfer may use this port, and the request that was delayed until now.
    pub(super) fn check(
        &self,
        mode: TransferMode,
        direction: Direction,
    ) -> Result<Option<PassiveRequest>, Refusal> {
        match (self, mode, direction) {
            (Self::None, _, _) => Err(Refusal::NoDataPort),
            (Self::Passive { .. } | Self::Delayed(_), TransferMode::Extended, Direction::Send) => {
                Err(Refusal::SenderListens)
            }
            (Self::Active { .. }, TransferMode::Extended, Direction::Receive) => {
                Err(Refusal::ReceiverConnects)
            }
            // The mode was changed after the port was set.
            (
                Self::Passive { stripes: 2.., .. } | Self::Active { stripes: 2.., .. },
                TransferMode::Stream,
                _,
            ) => Err(Refusal::StripesNeedExtendedMode),
            (Self::Delayed(request), _, _) => Ok(Some(*request)),
            (Self::Passive { .. } | Self::Active { .. }, _, _) => Ok(None),
        }
    }

    /// Channels of one mode cannot be used in the other. A port without channels stays.
    pub(super) fn mode_changed(&mut self) -> Channels {
        match self {
            Self::Passive { used: true, .. } | Self::Active { used: true, .. } => {
                *self = Self::None;
                Channels::Release
            }
            _ => Channels::Keep,
        }
    }

    /// A transfer in this mode has ended.
    pub(super) fn finish(&mut self, mode: TransferMode, end: TransferEnd) -> Channels {
        let stays = match (end, mode) {
            (TransferEnd::NotStarted, _) => return Channels::Keep,
            (TransferEnd::Complete, TransferMode::Extended) => true,
            (TransferEnd::Complete, TransferMode::Stream) | (TransferEnd::Broken, _) => false,
        };
        match self {
            Self::Passive { used, .. } | Self::Active { used, .. } if stays => {
                *used = true;
                Channels::Keep
            }
            port => {
                *port = Self::None;
                Channels::Release
            }
        }
    }
}
