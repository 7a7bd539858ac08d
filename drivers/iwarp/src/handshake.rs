//! Opens an iWARP connection on a TCP connection.

use std::os::fd::OwnedFd;

use gridhaul_stack::exact::{ReadError, read_exact, write_all};
use gridhaul_stack::{ChannelError, Operation, Side};

use crate::mpa::fpdu::MAX_PAYLOAD_BYTES;
use crate::mpa::frame::{FRAME_BYTES, Frame, FrameError, FrameKind, ReadDepths};

/// Outstanding READs of one queue pair in each direction.
pub(crate) const READ_DEPTH: u16 = 64;

/// The parameters of this end.
#[derive(Debug, Clone)]
pub struct Offer {
    /// FPDUs carry a checksum. They also do if the other end asks for it.
    pub checksum: bool,
    /// MPA revision 1, or 2 with READ depths. The accepting end takes that of the request.
    pub revision: u8,
    /// The largest payload of a sent segment in bytes: hardware may need it to fit into a packet.
    pub segment_bytes: usize,
    /// Private data for the other end: at most 256 bytes, and four fewer in revision 2.
    pub private: Vec<u8>,
}

/// An open connection.
#[derive(Debug)]
pub struct Connection {
    pub(crate) socket: OwnedFd,
    pub(crate) terms: Terms,
    /// Outstanding READs in each direction.
    pub(crate) reads: u16,
}

/// The negotiated parameters.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Terms {
    pub(crate) has_checksum: bool,
    /// The largest payload of a sent tagged segment in bytes.
    pub(crate) segment_bytes: usize,
}

/// Why a connection does not open.
#[derive(Debug, thiserror::Error)]
pub enum HandshakeError {
    /// The frame of this end could not be sent.
    #[error(transparent)]
    Write(#[from] ChannelError),
    /// The frame of the other end did not arrive.
    #[error(transparent)]
    Read(#[from] ReadError),
    /// The frame of the other end is invalid.
    #[error(transparent)]
    Frame(#[from] FrameError),
    /// One of the ends rejected the connection.
    #[error("the other end refused the iWARP connection")]
    Rejected,
}

impl HandshakeError {
    /// Whether the operation has ended, so that further connections would fail as well.
    pub fn is_final(&self) -> bool {
        matches!(
            self,
            Self::Write(ChannelError::Cancelled | ChannelError::DeadlineExceeded)
                | Self::Read(ReadError::Channel(
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
pub fn establish(
    socket: OwnedFd,
    side: Side,
    offer: &Offer,
    accepts: &dyn Fn(&[u8]) -> bool,
    operation: &Operation<'_>,
) -> Result<Connection, HandshakeError> {
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
    Ok(Connection {
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
    read_exact(socket, &mut head, operation)?;
    let mut tail = vec![0; Frame::tail_bytes(kind, &head)?];
    read_exact(socket, &mut tail, operation)?;
    Ok(Frame::decode(kind, &head, &tail)?)
}
