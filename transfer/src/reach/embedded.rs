//! IPv4 addresses that IPv6 addresses carry.
//!
//! What is sent to such an address may end up at the IPv4 address: a translator or the end of a tunnel unpacks it, and that may be
//! this machine.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// What an address carries.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Carried {
    Nothing,
    /// A translator sends on to one of these. Where there are several, the length of its prefix decides, which is not known.
    Translated(Vec<IpAddr>),
    /// A tunnel to the address ends at one of these.
    Tunnel([IpAddr; 2]),
}

/// What `address` carries; see also [`IpAddr::to_canonical`].
pub(crate) fn carried(address: IpAddr) -> Carried {
    let IpAddr::V6(v6) = address else {
        return Carried::Nothing;
    };
    match v6.segments() {
        // RFC 6052 2.1: for all translators. RFC 2765 2.1: hosts that have no IPv6.
        [0x64, 0xff9b, 0, 0, 0, 0, ..] | [0, 0, 0, 0, 0xffff, 0, ..] => {
            Carried::Translated(vec![bits_from(v6, 96)])
        }
        // RFC 8215: for the translators of one network, with prefixes of any length that fits.
        [0x64, 0xff9b, 1, ..] => {
            let lengths = [48, 56, 64, 96];
            Carried::Translated(lengths.map(|length| translated(v6, length)).to_vec())
        }
        // RFC 3056 2: 6to4, with the router's address.
        [0x2002, ..] => Carried::Tunnel([bits_from(v6, 16); 2]),
        // RFC 4380 4: Teredo, with those of server and client; the latter is written with its bits inverted.
        [0x2001, 0, ..] => {
            let inverted = Ipv6Addr::from_bits(!v6.to_bits());
            Carried::Tunnel([bits_from(v6, 32), bits_from(inverted, 96)])
        }
        _ => Carried::Nothing,
    }
}

/// The 32 bits from this one on.
fn bits_from(address: Ipv6Addr, start: u32) -> IpAddr {
    #[expect(
        clippy::cast_possible_truncation,
        reason = "the lowest 32 bits are wanted"
    )]
    let bits = (address.to_bits() >> (96 - start)) as u32;
    Ipv4Addr::from_bits(bits).into()
}

/// RFC 6052 2.2: after a prefix of this length come the bits of the address, but for bits 64 to 71, which are left out.
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
            let Carried::Translated(found) = carried(address(text)) else {
                panic!("{text}");
            };
            assert_eq!(found[at], address("192.0.2.33"), "{text}: {found:?}");
        }
    }

    #[test]
    fn others_carry_one_address_or_none() {
        let expected = address("192.0.2.33");
        for text in ["64:ff9b::192.0.2.33", "::ffff:0:192.0.2.33"] {
            let found = carried(address(text));
            assert_eq!(found, Carried::Translated(vec![expected]), "{text}");
        }
        for text in ["2002:c000:221::1", "2001:0:c000:221::3fff:fdde"] {
            let found = carried(address(text));
            assert_eq!(found, Carried::Tunnel([expected; 2]), "{text}");
        }
        for text in [
            "192.0.2.33",
            "2001:db8::192.0.2.33",
            "64:ff9b:2::192.0.2.33",
        ] {
            assert_eq!(carried(address(text)), Carried::Nothing, "{text}");
        }
    }
}
