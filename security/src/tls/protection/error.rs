//! Why a record cannot be opened or sealed.

use rustls::AlertDescription;

/// Why a record cannot be opened or sealed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(in crate::tls) enum RecordError {
    #[error("a record was changed, lost, repeated or cut on its way")]
    Forged,
    #[error("a record is longer than TLS allows")]
    TooLong,
    #[error("a record has an unexpected type")]
    Unexpected,
    #[error("the keys of the connection are exhausted")]
    Exhausted,
    #[error("there is no room for the records")]
    NoRoom,
}

impl RecordError {
    /// The alert for the peer.
    pub(in crate::tls) fn alert(self) -> AlertDescription {
        match self {
            Self::Forged => AlertDescription::BadRecordMac,
            Self::TooLong => AlertDescription::RecordOverflow,
            Self::Unexpected => AlertDescription::UnexpectedMessage,
            Self::Exhausted | Self::NoRoom => AlertDescription::InternalError,
        }
    }
}
