//! Sources: the network and the account that units are counted for.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::Arc;

/// The unit of address for shares: an IPv4 address, or the /64 network of an IPv6 address.
///
/// A host with IPv6 usually owns a whole /64 (RFC 6177, RFC 7217) and may use a new address of it for each
/// connection, so a single IPv6 address does not identify it. An IPv4-mapped IPv6 address counts as the IPv4 address.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Network(Kind);

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
enum Kind {
    V4(Ipv4Addr),
    /// The first 64 bits.
    V6(u64),
}

impl Network {
    /// The network that `address` counts for.
    pub fn of(address: IpAddr) -> Self {
        Self(match address.to_canonical() {
            IpAddr::V4(address) => Kind::V4(address),
            IpAddr::V6(address) => {
                let [a, b, c, d, e, f, g, h, ..] = address.octets();
                Kind::V6(u64::from_be_bytes([a, b, c, d, e, f, g, h]))
            }
        })
    }

    /// The first address of the network.
    pub fn first_address(&self) -> IpAddr {
        match self.0 {
            Kind::V4(address) => address.into(),
            Kind::V6(prefix) => Ipv6Addr::from(u128::from(prefix) << 64).into(),
        }
    }

    /// Whether it is a /64. One owner usually has thousands of those.
    pub fn is_ipv6(&self) -> bool {
        matches!(self.0, Kind::V6(_))
    }
}

impl From<IpAddr> for Network {
    fn from(address: IpAddr) -> Self {
        Self::of(address)
    }
}

impl fmt::Display for Network {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Kind::V4(address) => address.fmt(f),
            Kind::V6(prefix) => {
                let address = Ipv6Addr::from(u128::from(prefix) << 64);
                write!(f, "{address}/64")
            }
        }
    }
}

/// The source of requests: a network, and an account once the client has logged in.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Source {
    /// The network that the client connects from.
    pub network: Network,
    /// The account that the client logged in to; `None` before login and for anonymous users.
    pub account: Option<Arc<str>>,
}

impl Source {
    /// A client at `address` without an account.
    pub fn at(address: IpAddr) -> Self {
        Self {
            network: Network::of(address),
            account: None,
        }
    }

    /// The same network with this account.
    pub fn with_account(self, account: impl Into<Arc<str>>) -> Self {
        Self {
            account: Some(account.into()),
            ..self
        }
    }
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.account {
            Some(account) => write!(f, "{account} at {}", self.network),
            None => self.network.fmt(f),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn network(text: &str) -> Network {
        Network::of(text.parse().expect("an address"))
    }

    #[test]
    fn ipv4_counts_by_address_and_ipv6_by_64_bits() {
        assert_ne!(network("192.0.2.1"), network("192.0.2.2"));
        assert_eq!(network("192.0.2.1"), network("::ffff:192.0.2.1"));
        assert_eq!(network("2001:db8::1"), network("2001:db8::ffff:1:2:3"));
        assert_ne!(network("2001:db8::1"), network("2001:db8:0:1::1"));
        assert_eq!(network("2001:db8::1").to_string(), "2001:db8::/64");
        assert_eq!(network("::ffff:192.0.2.1").to_string(), "192.0.2.1");
    }

    #[test]
    fn a_source_is_shown_with_its_account() {
        let source = Source::at(Ipv4Addr::LOCALHOST.into());
        assert_eq!(source.to_string(), "127.0.0.1");
        assert_eq!(source.with_account("ada").to_string(), "ada at 127.0.0.1");
    }
}
