//! The data port: what `PASV`, `PORT` and their kin have set, and which transfers it is good for.
//!
//! In stream mode a port is good for one transfer, in either direction. In MODE E the sender connects
//! (GFD.20, SPAS and SPOR), so a passive port is for receiving and an active one for sending; its
//! channels stay open after a transfer, and the next one in that direction needs no new port.

use super::{Channels, Negotiated};
use crate::address::{Family, StripeAddresses};
use crate::command::{BufferBytes, Command, EpsvRequest, RdmaCommand, TransferMode};
use crate::reply::Reply;

/// What a client has set.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) enum DataPort {
    /// Nothing, or it was used up.
    #[default]
    None,
    /// The session listens.
    Passive {
        /// So many addresses were given.
        stripes: usize,
        /// There were data channels already.
        used: bool,
    },
    /// The session will listen when the transfer comes.
    Delayed(PassiveRequest),
    /// The session connects.
    Active {
        /// To so many addresses.
        stripes: usize,
        /// There were data channels already.
        used: bool,
    },
}

/// A command after which the session listens.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PassiveRequest {
    /// `PASV`.
    Pasv,
    /// `EPSV`, for the protocol of the control channel or for this one.
    Epsv(Option<Family>),
    /// `SPAS`: addresses as in `PORT`, or of this protocol.
    Spas(Option<Family>),
    /// `RPSV`, with the size of buffers that the client would like.
    Rpsv(Option<BufferBytes>),
}

impl PassiveRequest {
    /// The request of a command, if it is one. `EPSV ALL` is not.
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

/// What a session does about a [`PassiveRequest`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use]
pub enum Passive {
    /// Listen now, then call [`Negotiated::listening`] and send the addresses.
    Listen {
        /// More than one address may be given.
        striped: bool,
    },
    /// Close the present listener, and answer `200 Passive delayed.`
    Delay,
}

/// Where the bytes of a transfer go.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Direction {
    /// To the client: files and listings.
    Send,
    /// From the client.
    Receive,
}

/// How a transfer ended, as far as its data channels are concerned.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TransferEnd {
    /// No data channel was touched: the file could not be opened, for example.
    NotStarted,
    /// The file came to its end on all data channels.
    Complete,
    /// The transfer broke off.
    Broken,
}

/// Why a command cannot come now. The client is at fault.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// There is no data port.
    #[error("No data port: send PASV, EPSV or SPAS, or PORT, EPRT or SPOR, before each transfer.")]
    NoDataPort,
    /// A file is to be sent in MODE E, and we are the ones who listen.
    #[error("In MODE E the sender connects: send PORT, EPRT or SPOR before receiving from here.")]
    SenderListens,
    /// A file is to be received in MODE E, and we are the ones who connect.
    #[error("In MODE E the sender connects: send PASV, EPSV or SPAS before sending to here.")]
    ReceiverConnects,
    /// More than one address, and not MODE E.
    #[error("More than one data address needs MODE E.")]
    StripesNeedExtendedMode,
    /// A restart in stream mode can only leave out the beginning of a file (RFC 3659 5).
    #[error("A restart with several ranges, or one that does not start at 0, needs MODE E.")]
    RestartWithHoles,
    /// A restart counts the bytes that are sent (RFC 3659 5.3), which in TYPE A are not those of the file.
    #[error("A restart in TYPE A would count bytes that no file has: send TYPE I before REST.")]
    RestartOfText,
    /// `REST` before `STOU`, whose file is new.
    #[error("A new file cannot be restarted: send STOR with the name of the file.")]
    RestartOfNewFile,
    /// `SIZE` tells the bytes that would be sent (RFC 3659 4), which in TYPE A are not those of the file.
    #[error(
        "SIZE is not available in TYPE A, which changes the number of bytes: send TYPE I first."
    )]
    SizeOfText,
    /// Another command than `EPSV` sets a data port after `EPSV ALL`.
    #[error("EPSV ALL was sent: only EPSV can set the data port now.")]
    EpsvOnly,
    /// The second of two commands came without the first.
    #[error("Bad sequence of commands: send {0} first.")]
    NoFirstHalf(&'static str),
    /// The administrator wants data to be encrypted, and the client did not ask for it.
    #[error("Data connection auth error : Encryption is required. Send PROT P.")]
    EncryptionRequired,
    /// `PROT S` or `PROT P` together with `DCAU N`.
    #[error("PROT S and PROT P need DCAU A or DCAU S: who is not authenticated is not protected.")]
    ProtectionWithoutAuthentication,
}

impl Refusal {
    /// The reply that tells the client.
    pub fn reply(&self) -> Reply {
        let code = match self {
            Self::NoDataPort | Self::SenderListens | Self::ReceiverConnects => 425,
            Self::StripesNeedExtendedMode | Self::RestartWithHoles => 501,
            // RFC 3659 4.2 has 550 for SIZE, but curl 7.88 tells its user then that there is no such file.
            Self::SizeOfText | Self::RestartOfText => 504,
            // RFC 1123 4.1.3.4.
            Self::RestartOfNewFile => 554,
            Self::EpsvOnly | Self::NoFirstHalf(_) => 503,
            Self::EncryptionRequired => 534,
            Self::ProtectionWithoutAuthentication => 536,
        };
        Reply::new(code, self.to_string())
    }
}

impl Negotiated {
    /// `PASV`, `EPSV` or `SPAS` came.
    ///
    /// # Errors
    ///
    /// After `EPSV ALL`, if it is not `EPSV`; and when data channels cannot be made as things are
    /// ([`Negotiated::data_security`]).
    pub fn passive(&mut self, request: PassiveRequest) -> Result<Passive, Refusal> {
        self.data_security()?;
        if self.settings.epsv_only && !matches!(request, PassiveRequest::Epsv(_)) {
            return Err(Refusal::EpsvOnly);
        }
        if self.settings.delayed_passive {
            self.port = DataPort::Delayed(request);
            return Ok(Passive::Delay);
        }
        self.port = DataPort::None;
        Ok(Passive::Listen {
            striped: self.may_stripe(request),
        })
    }

    /// Whether the reply to this request may give more than one address now.
    pub fn may_stripe(&self, request: PassiveRequest) -> bool {
        let is_extended = self.settings.mode == TransferMode::Extended;
        is_extended && matches!(request, PassiveRequest::Spas(_))
    }

    /// The session listens, at so many addresses.
    pub fn listening(&mut self, stripes: usize) {
        self.port = DataPort::Passive {
            stripes,
            used: false,
        };
    }

    /// `PORT`, `EPRT` or `SPOR` came, and the session is willing to connect there.
    ///
    /// # Errors
    ///
    /// After `EPSV ALL`, or with several addresses in stream mode; and when data channels cannot be made
    /// as things are ([`Negotiated::data_security`]).
    pub fn active(&mut self, addresses: &StripeAddresses) -> Result<(), Refusal> {
        self.data_security()?;
        if self.settings.epsv_only {
            return Err(Refusal::EpsvOnly);
        }
        let stripes = addresses.as_slice().len();
        if self.settings.mode == TransferMode::Stream && stripes > 1 {
            return Err(Refusal::StripesNeedExtendedMode);
        }
        self.port = DataPort::Active {
            stripes,
            used: false,
        };
        Ok(())
    }

    /// The data port cannot be used: listening or preparing to connect failed.
    pub fn port_failed(&mut self) {
        self.port = DataPort::None;
    }

    /// A transfer that [`Negotiated::begin`] let pass has ended.
    pub fn finish(&mut self, end: TransferEnd) -> Channels {
        let stays = match (end, self.settings.mode) {
            (TransferEnd::NotStarted, _) => return Channels::Keep,
            (TransferEnd::Complete, TransferMode::Extended) => true,
            (TransferEnd::Complete, TransferMode::Stream) | (TransferEnd::Broken, _) => false,
        };
        match &mut self.port {
            DataPort::Passive { used, .. } | DataPort::Active { used, .. } if stays => {
                *used = true;
                Channels::Keep
            }
            port => {
                *port = DataPort::None;
                Channels::Release
            }
        }
    }
}

impl DataPort {
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
            // The mode was another one when the port was set.
            (
                Self::Passive { stripes: 2.., .. } | Self::Active { stripes: 2.., .. },
                TransferMode::Stream,
                _,
            ) => Err(Refusal::StripesNeedExtendedMode),
            (Self::Delayed(request), _, _) => Ok(Some(*request)),
            (Self::Passive { .. } | Self::Active { .. }, _, _) => Ok(None),
        }
    }

    /// Channels of one mode are of no use in the other. A port that has none yet stays.
    pub(super) fn mode_changed(&mut self) -> Channels {
        match self {
            Self::Passive { used: true, .. } | Self::Active { used: true, .. } => {
                *self = Self::None;
                Channels::Release
            }
            _ => Channels::Keep,
        }
    }
}
