//! The round trip time to the peer, as TCP has measured it on the data connection.

use std::os::fd::{AsFd as _, OwnedFd};
use std::time::Duration;

use gridhaul_tcp::connection_facts;

/// The round trip time of a connection; zero while TCP has not measured it.
pub(crate) fn round_trip(socket: &OwnedFd) -> Duration {
    connection_facts(socket.as_fd()).map_or(Duration::ZERO, |facts| facts.rtt)
}
