//! What TCP has measured on the data connection: the round trip time to the peer, and the longest packet.

use std::os::fd::{AsFd as _, OwnedFd};
use std::time::Duration;

use gridhaul_tcp::connection_facts;

/// The round trip time of a connection; zero while TCP has not measured it.
pub(crate) fn round_trip(socket: &OwnedFd) -> Duration {
    connection_facts(socket.as_fd()).map_or(Duration::ZERO, |facts| facts.rtt)
}

/// The longest IP packet to the peer in bytes; `None` if TCP does not know it.
pub(super) fn path_mtu(socket: &OwnedFd) -> Option<u32> {
    let facts = connection_facts(socket.as_fd()).ok()?;
    Some(facts.path_mtu).filter(|bytes| *bytes > 0)
}
