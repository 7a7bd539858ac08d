//! Why a connection cannot continue.

use std::io;

use crate::event::Loss;
use crate::placed::Scattered;
use crate::regions::AccessError;
use crate::segment::SegmentError;

/// Why the connection cannot continue.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ReceiveError {
    #[error("{0}")]
    Network(#[from] io::Error),
    #[error("the connection ended")]
    Ended,
    #[error("the connection ended in the middle of a message")]
    Cut,
    #[error("the other end sent {0}")]
    Segment(#[from] SegmentError),
    #[error("the other end may not do that: {0}")]
    Access(#[from] AccessError),
    #[error("the other end sent message {seen} of a queue, not message {wanted}")]
    Order { seen: u32, wanted: u32 },
    #[error("the other end sent byte {seen} of a message, not byte {wanted}")]
    Offset { seen: u32, wanted: usize },
    #[error("the other end sent a message of {bytes} bytes; {limit} are the limit")]
    TooLong { bytes: usize, limit: usize },
    #[error("the other end sent a message with a wrong checksum")]
    Checksum,
    #[error("the other end sent {0}")]
    Scattered(#[from] Scattered),
    #[error("the other end sent a READ response that does not match the oldest outstanding READ")]
    Response,
    #[error("the other end sent more than the negotiated {0} READs at a time")]
    TooManyReads(usize),
    #[error("the other end ended the connection: layer {layer}, code {code} (RFC 5040 4.8)")]
    Terminated { layer: u8, code: u8 },
}

impl ReceiveError {
    /// The reason for the loss of the queue pair.
    pub(crate) fn loss(&self) -> Loss {
        match self {
            Self::Ended => Loss::Closed,
            Self::Network(error)
                if matches!(
                    error.kind(),
                    io::ErrorKind::ConnectionReset | io::ErrorKind::BrokenPipe
                ) =>
            {
                Loss::Reset
            }
            other => Loss::Failed(other.to_string()),
        }
    }

    /// The control field of a TERMINATE message about a fault of the peer (RFC 5040 4.8): layer and
    /// error type, error code, and no copy of the offending header. `None` if the peer is not at
    /// fault, or has ended the connection.
    pub(crate) fn terminate(&self) -> Option<[u8; 4]> {
        // RFC 5040 figure 10: layer 0 is RDMAP, 1 DDP, 2 MPA; type 1 is a protection error of RDMAP.
        let [layers, code] = match self {
            Self::Network(_) | Self::Ended | Self::Cut | Self::Terminated { .. } => return None,
            Self::Access(AccessError::Key(_)) => [0x01, 0x00],
            Self::Access(AccessError::Bounds { .. }) => [0x01, 0x01],
            Self::Access(AccessError::Rights(_)) => [0x01, 0x02],
            Self::Checksum => [0x20, 0x02],
            Self::Order { .. } => [0x12, 0x02],
            Self::Offset { .. } => [0x12, 0x04],
            Self::TooLong { .. } => [0x12, 0x05],
            Self::Segment(_) | Self::Scattered(_) | Self::Response | Self::TooManyReads(_) => {
                [0x02, 0xff]
            }
        };
        Some([layers, code, 0, 0])
    }
}
