//! Opens an iWARP connection on a TCP connection.

use std::os::fd::OwnedFd;

use gridhaul_stack::{ChannelError, Operation, Side};

use super::READ_DEPTH;
use super::mpa::{FRAME_BYTES, Frame, FrameError, FrameKind, MAX_PAYLOAD_BYTES, ReadDepths};
use super::queue_pair::Terms;
use crate::handshake::{RecordError, read_all, write_all};

/// The parameters of this end.
#[derive(Debug, Clone)]
pub(crate) struct Offer {
    /// FPDUs carry a checksum. They also do if the other end asks for it.
    pub(crate) checksum: bool,
    /// MPA revision 1, or 2 with READ depths. The accepting end takes that of the other.
    pub(crate) revision: u8,
    /// The largest payload of a sent segment in bytes: hardware may need it to fit into a packet.
    pub(crate) segment_bytes: usize,
    /// Private data for the other end, at most 256 bytes, of which revision 2 takes four.
    pub(crate) private: Vec<u8>,
}

/// An open connection.
#[derive(Debug)]
pub(crate) struct Established {
    pub(super) socket: OwnedFd,
    pub(super) terms: Terms,
    /// READs at a time, in each direction.
    pub(super) reads: u16,
}

/// Why a connection does not open.
#[derive(Debug, thiserror::Error)]
pub(crate) enum HandshakeError {
    #[error(transparent)]
    Channel(#[from] ChannelError),
    #[error(transparent)]
    Record(#[from] RecordError),
    #[error(transparent)]
    Frame(#[from] FrameError),
    #[error("the other end refused the iWARP connection")]
    Rejected,
}

impl HandshakeError {
    /// Whether this end is at fault, so that further connections would fail as well.
    pub(crate) fn is_final(&self) -> bool {
        matches!(
            self,
            Self::Channel(ChannelError::Cancelled | ChannelError::DeadlineExceeded)
                | Self::Record(RecordError::Channel(
                    ChannelError::Cancelled | ChannelError::DeadlineExceeded
                ))
        )
    }
}

/// Exchanges the two MPA frames over a non-blocking socket. `accepts` checks the private data of a
/// connecting end before it is answered; others are rejected.
///
/// # Errors
///
/// When the other end does not speak MPA, rejects, or is silent until the deadline.
pub(crate) fn establish(
    socket: OwnedFd,
    side: Side,
    offer: &Offer,
    accepts: &dyn Fn(&[u8]) -> bool,
    operation: &Operation<'_>,
) -> Result<Established, HandshakeError> {
    let own = Frame {
        kind: FrameKind::Request,
        revision: offer.revision,
        checksum: offer.checksum,
        rejected: false,
        depths: (offer.revision == 2).then_some(ReadDepths {
            inbound: READ_DEPTH,
            outbound: READ_DEPTH,
        }),
        private: offer.private.clone(),
    };
    let (own, peer) = match side {
        Side::Connector => {
            write_all(&socket, &own.encode(), operation)?;
            let peer = read_frame(&socket, FrameKind::Reply, operation)?;
            (own, peer)
        }
        Side::Acceptor => {
            let peer = read_frame(&socket, FrameKind::Request, operation)?;
            let own = answer(own, &peer, accepts(&peer.private));
            write_all(&socket, &own.encode(), operation)?;
            (own, peer)
        }
    };
    if own.rejected || peer.rejected {
        return Err(HandshakeError::Rejected);
    }
    // RFC 6581 6: neither end requests more READs than the other answers. Revision 1 does not
    // negotiate them.
    let reads = peer
        .depths
        .map_or(1, |depths| depths.inbound.min(READ_DEPTH));
    Ok(Established {
        socket,
        terms: Terms {
            // RFC 5044 7.1: either end may ask for it.
            has_checksum: own.checksum || peer.checksum,
            segment_bytes: offer.segment_bytes.clamp(1, MAX_PAYLOAD_BYTES),
        },
        reads,
    })
}

/// The reply to a request: in its revision, and with a checksum if it asks for one.
fn answer(own: Frame, request: &Frame, accepted: bool) -> Frame {
    Frame {
        kind: FrameKind::Reply,
        revision: request.revision,
        checksum: own.checksum || request.checksum,
        rejected: !accepted,
        depths: request.depths.map(|asked| ReadDepths {
            inbound: asked.outbound.min(READ_DEPTH),
            outbound: asked.inbound.min(READ_DEPTH),
        }),
        private: own.private,
    }
}

fn read_frame(
    socket: &OwnedFd,
    kind: FrameKind,
    operation: &Operation<'_>,
) -> Result<Frame, HandshakeError> {
    let mut head = [0; FRAME_BYTES];
    read_all(socket, &mut head, operation)?;
    let mut tail = vec![0; Frame::tail_bytes(kind, &head)?];
    read_all(socket, &mut tail, operation)?;
    Ok(Frame::decode(kind, &head, &tail)?)
}
