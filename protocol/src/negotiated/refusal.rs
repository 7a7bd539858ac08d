//! Why a command cannot be accepted in the present state.

use crate::reply::Reply;

/// Why a command is refused in the present state. The client is at fault.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// There is no data port.
    #[error("No data port: send PASV, EPSV or SPAS, or PORT, EPRT or SPOR, before each transfer.")]
    NoDataPort,
    /// A file is to be sent in MODE E, but this end listens.
    #[error("In MODE E the sender connects: send PORT, EPRT or SPOR before receiving from here.")]
    SenderListens,
    /// A file is to be received in MODE E, but this end connects.
    #[error("In MODE E the sender connects: send PASV, EPSV or SPAS before sending to here.")]
    ReceiverConnects,
    /// Several addresses in stream mode.
    #[error("More than one data address needs MODE E.")]
    StripesNeedExtendedMode,
    /// A restart in stream mode can only skip the start of a file (RFC 3659 5).
    #[error("A restart with several ranges, or one that does not start at 0, needs MODE E.")]
    RestartWithHoles,
    /// A restart counts bytes on the wire (RFC 3659 5.3), which differ from the file's in TYPE A.
    #[error("A restart in TYPE A would count bytes that no file has: send TYPE I before REST.")]
    RestartOfText,
    /// `REST` before `STOU`, which creates a new file.
    #[error("A new file cannot be restarted: send STOR with the name of the file.")]
    RestartOfNewFile,
    /// `SIZE` returns the number of bytes on the wire (RFC 3659 4), which differs from the file's size in TYPE A.
    #[error(
        "SIZE is not available in TYPE A, which changes the number of bytes: send TYPE I first."
    )]
    SizeOfText,
    /// A command other than `EPSV` after `EPSV ALL`.
    #[error("EPSV ALL was sent: only EPSV can set the data port now.")]
    EpsvOnly,
    /// The second command of a pair without the first.
    #[error("Bad sequence of commands: send {0} first.")]
    NoFirstHalf(&'static str),
    /// The administrator requires encryption, and the client has not requested it.
    #[error("Data connection auth error : Encryption is required. Send PROT P.")]
    EncryptionRequired,
    /// `PROT S` or `PROT P` together with `DCAU N`.
    #[error("PROT S and PROT P need DCAU A or DCAU S: who is not authenticated is not protected.")]
    ProtectionWithoutAuthentication,
}

impl Refusal {
    /// The reply for the client.
    pub fn reply(&self) -> Reply {
        let code = match self {
            Self::NoDataPort | Self::SenderListens | Self::ReceiverConnects => 425,
            Self::StripesNeedExtendedMode | Self::RestartWithHoles => 501,
            // RFC 3659 4.2 has 550 for SIZE, but curl 7.88 then reports a missing file.
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
