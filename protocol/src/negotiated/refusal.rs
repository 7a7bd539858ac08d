//! Why a command cannot be accepted in the present state.

use crate::reply::Reply;

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
