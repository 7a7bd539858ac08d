//! Addresses of data channels.

use std::net::SocketAddr;

/// A network protocol, by its number in `EPRT`, `EPSV` and `SPAS` (RFC 2428 2).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Family {
    /// `1`.
    Ipv4,
    /// `2`.
    Ipv6,
}

/// The addresses of a `SPOR` command or a `SPAS` reply, one for each stripe: from 1 to 64.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StripeAddresses(Vec<SocketAddr>);

impl StripeAddresses {
    /// The most stripes that are dealt with.
    pub const MAX: usize = 64;

    /// Takes addresses, or `None` if there are none or more than [`Self::MAX`].
    pub fn new(addresses: Vec<SocketAddr>) -> Option<Self> {
        (1..=Self::MAX)
            .contains(&addresses.len())
            .then_some(Self(addresses))
    }

    /// The addresses, in the order of the stripes.
    pub fn as_slice(&self) -> &[SocketAddr] {
        &self.0
    }
}
