//! The hosts that may open data channels to a session.

use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;

/// The hosts that a session accepts data connections from, and connects to.
///
/// Without data channel authentication a data port accepts the first connection, so
/// only the client's host and those that the administrator has named may use it (RFC 2577 3).
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Admission {
    /// Every host.
    Anyone,
    /// The hosts in these blocks.
    Hosts(Vec<AddressBlock>),
}

impl Admission {
    /// No host: for sessions that only connect.
    pub const fn none() -> Self {
        Self::Hosts(Vec::new())
    }

    /// Whether `peer` may use the session's data channels.
    pub fn admits(&self, peer: IpAddr) -> bool {
        match self {
            Self::Anyone => true,
            Self::Hosts(blocks) => blocks.iter().any(|block| block.contains(peer)),
        }
    }
}

/// A block of IP addresses: `192.0.2.0/24`, `2001:db8::/32`, or one address.
///
/// `ipnet::IpNet` does not serve: it refuses an address without a prefix length, and takes an IPv4-mapped block for an IPv6
/// block, where this type compares canonical addresses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AddressBlock {
    network: IpAddr,
    prefix_bits: u8,
}

impl AddressBlock {
    /// The block of a single address.
    pub fn host(address: IpAddr) -> Self {
        let network = address.to_canonical();
        Self {
            network,
            prefix_bits: width(network),
        }
    }

    /// Whether the block has a single address.
    pub(crate) fn is_host(&self) -> bool {
        self.prefix_bits == width(self.network)
    }

    /// Whether the whole block is in the block `network/prefix_bits`.
    pub(crate) fn is_within(&self, (network, prefix_bits): (IpAddr, u8)) -> bool {
        let outer = Self {
            network,
            prefix_bits,
        };
        self.prefix_bits >= prefix_bits && outer.contains(self.network)
    }

    /// Whether `address` is in the block. An IPv4-mapped IPv6 address counts as IPv4.
    pub fn contains(&self, address: IpAddr) -> bool {
        let address = address.to_canonical();
        width(address) == width(self.network)
            && masked(address, self.prefix_bits) == masked(self.network, self.prefix_bits)
    }
}

/// Why a text is not an address block.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "'{0}' is no address and no block of addresses; examples: 192.0.2.7, 192.0.2.0/24, 2001:db8::/32"
)]
pub struct AddressBlockError(String);

impl FromStr for AddressBlock {
    type Err = AddressBlockError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let error = || AddressBlockError(text.to_owned());
        let (address, bits) = match text.split_once('/') {
            Some((address, bits)) => (address, Some(bits.parse::<u8>().map_err(|_| error())?)),
            None => (text, None),
        };
        let network = IpAddr::from_str(address)
            .map_err(|_| error())?
            .to_canonical();
        let prefix_bits = bits.unwrap_or_else(|| width(network));
        if prefix_bits > width(network) {
            return Err(error());
        }
        Ok(Self {
            network,
            prefix_bits,
        })
    }
}

impl fmt::Display for AddressBlock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.network, self.prefix_bits)
    }
}

fn width(address: IpAddr) -> u8 {
    match address {
        IpAddr::V4(_) => 32,
        IpAddr::V6(_) => 128,
    }
}

/// The first `bits` bits of an address, the others zero.
fn masked(address: IpAddr, bits: u8) -> u128 {
    let (value, width) = match address {
        IpAddr::V4(address) => (u128::from(address.to_bits()), 32),
        IpAddr::V6(address) => (address.to_bits(), 128),
    };
    // A shift by the whole width overflows; then no bits are significant.
    value.checked_shr(u32::from(width - bits)).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn block(text: &str) -> AddressBlock {
        text.parse().expect("a block")
    }

    fn address(text: &str) -> IpAddr {
        text.parse().expect("an address")
    }

    #[test]
    fn a_block_contains_its_addresses_only() {
        assert!(block("192.0.2.0/24").contains(address("192.0.2.255")));
        assert!(!block("192.0.2.0/24").contains(address("192.0.3.0")));
        assert!(block("2001:db8::/32").contains(address("2001:db8:ffff::1")));
        assert!(!block("2001:db8::/32").contains(address("2001:db9::1")));
        assert!(block("0.0.0.0/0").contains(address("255.255.255.255")));
        assert!(!block("0.0.0.0/0").contains(address("::1")));
        assert!(block("127.0.0.1").contains(address("127.0.0.1")));
        assert!(!block("127.0.0.1").contains(address("127.0.0.2")));
    }

    #[test]
    fn mapped_addresses_are_ipv4() {
        assert!(block("127.0.0.1").contains(address("::ffff:127.0.0.1")));
        assert!(AddressBlock::host(address("::ffff:127.0.0.1")).contains(address("127.0.0.1")));
    }

    #[test]
    fn the_error_quotes_the_text() {
        for text in [
            "",
            "localhost",
            "1.2.3.4/33",
            "1.2.3/8",
            "::1/129",
            "1.2.3.4/x",
        ] {
            let error = text.parse::<AddressBlock>().expect_err(text);
            assert!(error.to_string().contains(text));
        }
    }

    #[test]
    fn any_block_admits_a_host() {
        let hosts = Admission::Hosts(vec![block("127.0.0.1"), block("192.0.2.0/24")]);
        assert!(hosts.admits(address("192.0.2.9")));
        assert!(!hosts.admits(address("198.51.100.1")));
        assert!(Admission::Anyone.admits(address("198.51.100.1")));
        assert!(!Admission::none().admits(address("127.0.0.1")));
    }
}
