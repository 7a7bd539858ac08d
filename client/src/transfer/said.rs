//! What a server says while it transfers.

use gridhaul_protocol::marker::RestartMarker;
use gridhaul_protocol::ranges::RangeSet;
use gridhaul_protocol::reply::Reply;

/// A reply to a command that transfers.
pub(super) enum Said {
    /// `111`: ranges that the server has stored.
    Stored(RangeSet),
    /// Any other preliminary reply. The server is at work.
    Preliminary,
    /// The last reply.
    Last(Reply),
}

impl Said {
    pub(super) fn of(reply: Reply) -> Self {
        // A wrong marker costs only bytes at a restart.
        if let Ok(marker) = RestartMarker::from_reply(&reply) {
            return Self::Stored(marker.0);
        }
        match reply.is_preliminary() {
            true => Self::Preliminary,
            false => Self::Last(reply),
        }
    }
}
