//! IPv4 addresses embedded in IPv6 addresses.
//!
//! Packets for such an IPv6 address may reach the IPv4 address: a translator or the end of a tunnel extracts it. It may be an
//! address of this machine.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// The addresses embedded in an address.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Embedded {
    None,
    /// A translator forwards to one of these. There are several if the length of the prefix is unknown.
    Translated(Vec<IpAddr>),
    /// A tunnel for the address ends at one of these.
    Tunnel([IpAddr; 2]),
}

impl Embedded {
    /// The addresses embedded in `address`; see also [`IpAddr::to_canonical`].
    pub(super) fn of(address: IpAddr) -> Self {
        match address {
            IpAddr::V4(_) => Self::None,
            IpAddr::V6(v6) => in_ipv6(v6),
        }
    }
}

fn in_ipv6(address: Ipv6Addr) -> Embedded {
    match address.segments() {
        // RFC 6052 2.1: the well-known prefix. RFC 2765 2.1: IPv4-translated addresses.
        [0x64, 0xff9b, 0, 0, 0, 0, ..] | [0, 0, 0, 0, 0xffff, 0, ..] => {
            Embedded::Translated(vec![bits_from(address, 96)])
        }
        // RFC 8215: local-use prefixes, of any length that fits.
        [0x64, 0xff9b, 1, ..] => {
            let lengths = [48, 56, 64, 96];
            Embedded::Translated(lengths.map(|length| translated(address, length)).to_vec())
        }
        // RFC 3056 2: 6to4, with the address of the router.
        [0x2002, ..] => Embedded::Tunnel([bits_from(address, 16); 2]),
        // RFC 4380 4: Teredo, with the addresses of server and client; the latter has its bits inverted.
        [0x2001, 0, ..] => {
            let inverted = Ipv6Addr::from_bits(!address.to_bits());
            Embedded::Tunnel([bits_from(address, 32), bits_from(inverted, 96)])
        }
        _ => Embedded::None,
    }
}

/// The 32 bits from `start` on.
fn bits_from(address: Ipv6Addr, start: u32) -> IpAddr {
    #[expect(
        clippy::cast_possible_truncation,
        reason = "the lowest 32 bits are wanted"
    )]
    let bits = (address.to_bits() >> (96 - start)) as u32;
    Ipv4Addr::from_bits(bits).into()
}

/// RFC 6052 2.2: the bits of the IPv4 address follow the prefix, and skip bits 64 to 71.
fn translated(address: Ipv6Addr, prefix: u32) -> IpAddr {
    if prefix == 96 {
        return bits_from(address, prefix);
    }
    let bits = address.to_bits();
    let without_reserved = bits >> 64 << 56 | bits & ((1 << 56) - 1);
    #[expect(
        clippy::cast_possible_truncation,
        reason = "the lowest 32 bits are wanted"
    )]
    let bits = (without_reserved >> (88 - prefix)) as u32;
    Ipv4Addr::from_bits(bits).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    /// The table of RFC 6052 2.4, in the prefix of RFC 8215.
    #[test]
    fn translators_unpack_as_the_standard_shows() {
        for (text, at) in [
            ("64:ff9b:1:c000:2:2100::", 0),
            ("64:ff9b:1:1c0:0:221::", 1),
            ("64:ff9b:1:0:c0:2:2100::", 2),
            ("64:ff9b:1::192.0.2.33", 3),
        ] {
            let Embedded::Translated(found) = Embedded::of(address(text)) else {
                panic!("{text}");
            };
            assert_eq!(found[at], address("192.0.2.33"), "{text}: {found:?}");
        }
    }

    #[test]
    fn others_carry_one_address_or_none() {
        let expected = address("192.0.2.33");
        for text in ["64:ff9b::192.0.2.33", "::ffff:0:192.0.2.33"] {
            let found = Embedded::of(address(text));
            assert_eq!(found, Embedded::Translated(vec![expected]), "{text}");
        }
        for text in ["2002:c000:221::1", "2001:0:c000:221::3fff:fdde"] {
            let found = Embedded::of(address(text));
            assert_eq!(found, Embedded::Tunnel([expected; 2]), "{text}");
        }
        for text in [
            "192.0.2.33",
            "2001:db8::192.0.2.33",
            "64:ff9b:2::192.0.2.33",
        ] {
            assert_eq!(Embedded::of(address(text)), Embedded::None, "{text}");
        }
    }
}
