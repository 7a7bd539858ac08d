//! The kinds of addresses that are not ordinary remote hosts.

use std::net::{IpAddr, Ipv6Addr};

/// The kind of an address.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum AddressKind {
    /// Multicast, broadcast, unspecified or reserved.
    NoHost,
    Loopback,
    LinkLocal,
    /// An address of this machine.
    Own,
    Remote,
}

impl AddressKind {
    /// The kind of an address by its number, so never [`Self::Own`].
    pub(super) fn by_number(address: IpAddr) -> Self {
        let is_no_host = match address {
            // RFC 1122 3.2.1.3 and RFC 6890: "this network", reserved, broadcast.
            IpAddr::V4(v4) => v4.octets()[0] == 0 || v4.octets()[0] >= 240 || v4.is_multicast(),
            // RFC 4291 2.5.5.1: IPv4-compatible addresses (96 zero bits before the IPv4 address) are deprecated.
            IpAddr::V6(v6) => {
                v6.is_multicast() || (v6.to_bits() >> 32 == 0 && v6 != Ipv6Addr::LOCALHOST)
            }
        };
        let is_link_local = match address {
            IpAddr::V4(v4) => v4.is_link_local(),
            IpAddr::V6(v6) => v6.is_unicast_link_local(),
        };
        if is_no_host {
            Self::NoHost
        } else if address.is_loopback() {
            Self::Loopback
        } else if is_link_local {
            Self::LinkLocal
        } else {
            Self::Remote
        }
    }
}
