//! Which addresses a session may have this machine connect to.
//!
//! Data connections that a server makes carry bytes that the client chose, to an address that the client chose (`PORT`, `EPRT`,
//! `SPOR`). From the server's machine they reach services that the client cannot reach itself: those that listen on the loopback
//! interface, or on the link, and those that trust the machine's own addresses. So these addresses are refused, unless the
//! client is there already, or the administrator has named them. RFC 2577 3 calls the attack "bounce".

mod embedded;

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use self::embedded::{Carried, carried};
use crate::admission::AddressBlock;

/// What decides about a destination: where the client is, where this machine is, and what the administrator has named.
#[derive(Debug, Clone, Copy)]
pub struct Reach<'a> {
    /// Where the control connection comes from.
    pub client: IpAddr,
    /// The addresses of this machine's interfaces, the one to which the control connection was made, and what the kernel routes
    /// to this machine beside them.
    pub machine: &'a [IpAddr],
    /// Further addresses that lead to this machine: those that it tells clients, for address translation.
    pub advertised: &'a [IpAddr],
    /// Blocks that the administrator has named.
    pub named: &'a [AddressBlock],
}

/// Why this machine does not connect to an address.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Unreachable {
    /// It is no address of a host: multicast, broadcast, unspecified, reserved.
    #[error("{0} is no address of a host")]
    NoHost(IpAddr),
    /// It is a loopback address.
    #[error(
        "{0} is a loopback address of the server, which it connects to for clients on its own machine only, unless \
         the administrator names it in data-hosts (as 127.0.0.0/8 or ::1)"
    )]
    Loopback(IpAddr),
    /// It is a link-local address.
    #[error(
        "{0} is a link-local address, which the server connects to for the client with this address only, unless \
         the administrator names it in data-hosts (as 169.254.0.0/16 or fe80::/10)"
    )]
    LinkLocal(IpAddr),
    /// It is an address of this machine.
    #[error(
        "{0} is an address of the server's own machine, which it connects to for clients on the same machine only, \
         unless the administrator names this one address in data-hosts; third-party copies between two servers of \
         one machine need that"
    )]
    Own(IpAddr),
}

/// What is special about an address.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Place {
    NoHost,
    Loopback,
    LinkLocal,
    Own,
    Elsewhere,
}

/// Every address at which a connection to `address` may end up, for callers that ask the kernel about them: see [`Reach::machine`].
pub fn destinations(address: IpAddr) -> Vec<IpAddr> {
    let mut all = vec![address.to_canonical()];
    if let Carried::Translated(ends) = carried(address.to_canonical()) {
        all.extend(ends);
    }
    all
}

impl Reach<'_> {
    /// Whether the session may have this machine connect to `address`.
    ///
    /// # Errors
    ///
    /// When it may not; the text says what the administrator can do about it.
    pub fn check(&self, address: IpAddr) -> Result<(), Unreachable> {
        let itself = address.to_canonical();
        let may_be = |end| {
            self.check_end(end).map_err(|place| match place {
                Place::Loopback => Unreachable::Loopback(address),
                Place::LinkLocal => Unreachable::LinkLocal(address),
                Place::Own => Unreachable::Own(address),
                Place::NoHost | Place::Elsewhere => Unreachable::NoHost(address),
            })
        };
        may_be(itself)?;
        match carried(itself) {
            Carried::Nothing => Ok(()),
            Carried::Translated(ends) => {
                // With another length than that of the prefix there is mostly no host.
                let is_host = |end: &IpAddr| place_by_number(*end) != Place::NoHost;
                if !ends.iter().any(is_host) {
                    return Err(Unreachable::NoHost(address));
                }
                ends.into_iter().filter(is_host).try_for_each(may_be)
            }
            Carried::Tunnel(ends) => {
                // A tunnel may end at this machine, and the host behind it be another one.
                let is_special = |end: &IpAddr| place_by_number(*end) != Place::Elsewhere;
                ends.into_iter().filter(is_special).try_for_each(may_be)
            }
        }
    }

    /// Whether this may be the end of a connection; if not, what is special about it.
    fn check_end(&self, end: IpAddr) -> Result<(), Place> {
        let place = match place_by_number(end) {
            Place::Elsewhere if self.is_own(end) => Place::Own,
            place => place,
        };
        let is_allowed = place == Place::Elsewhere
            || self.client_is_there(end, place)
            || self.is_named(end, place);
        if is_allowed { Ok(()) } else { Err(place) }
    }

    fn is_own(&self, address: IpAddr) -> bool {
        let mut own = self.machine.iter().chain(self.advertised);
        own.any(|own| own.to_canonical() == address)
    }

    /// A client reaches its own address without us. One on the loopback interface is a program of this machine and reaches all
    /// of its addresses; one with another address of this machine reaches these.
    fn client_is_there(&self, address: IpAddr, place: Place) -> bool {
        let client = self.client.to_canonical();
        if client == address {
            return place != Place::NoHost;
        }
        let is_local = client.is_loopback();
        match place {
            Place::Loopback => is_local,
            // What is advertised may be the address of a router, and other hosts come from it.
            Place::Own => is_local || self.machine.iter().any(|own| own.to_canonical() == client),
            Place::LinkLocal | Place::NoHost | Place::Elsewhere => false,
        }
    }

    /// A block names special addresses only if it has no others: who writes `10.0.0.0/8` means the hosts of a site, and not
    /// what else listens at this machine's address.
    fn is_named(&self, address: IpAddr, place: Place) -> bool {
        let mut named = self.named.iter().filter(|block| block.contains(address));
        named.any(|block| match place {
            Place::Loopback => block.is_within(LOOPBACK_IPV4) || block.is_host(),
            Place::LinkLocal => {
                block.is_within(LINK_LOCAL_IPV4) || block.is_within(LINK_LOCAL_IPV6)
            }
            Place::Own => block.is_host(),
            Place::NoHost | Place::Elsewhere => false,
        })
    }
}

const LOOPBACK_IPV4: (IpAddr, u8) = (IpAddr::V4(Ipv4Addr::new(127, 0, 0, 0)), 8);
const LINK_LOCAL_IPV4: (IpAddr, u8) = (IpAddr::V4(Ipv4Addr::new(169, 254, 0, 0)), 16);
const LINK_LOCAL_IPV6: (IpAddr, u8) = (IpAddr::V6(Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 0)), 10);

/// What the number alone says.
fn place_by_number(address: IpAddr) -> Place {
    let is_no_host = match address {
        // RFC 1122 3.2.1.3 and RFC 6890: "this network", reserved, broadcast.
        IpAddr::V4(v4) => v4.octets()[0] == 0 || v4.octets()[0] >= 240 || v4.is_multicast(),
        // RFC 4291 2.5.5.1: addresses with an IPv4 address in their last 32 bits and zeros before are not used any more.
        IpAddr::V6(v6) => {
            v6.is_multicast() || (v6.to_bits() >> 32 == 0 && v6 != Ipv6Addr::LOCALHOST)
        }
    };
    let is_link_local = match address {
        IpAddr::V4(v4) => v4.is_link_local(),
        IpAddr::V6(v6) => v6.is_unicast_link_local(),
    };
    if is_no_host {
        Place::NoHost
    } else if address.is_loopback() {
        Place::Loopback
    } else if is_link_local {
        Place::LinkLocal
    } else {
        Place::Elsewhere
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const MACHINE: &[&str] = &["198.51.100.7", "2001:db8::7", "127.0.0.1", "::1", "fe80::7"];
    const ADVERTISED: &[&str] = &["203.0.113.7"];
    const STRANGER: &str = "192.0.2.1";

    fn address(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    fn addresses(texts: &[&str]) -> Vec<IpAddr> {
        texts.iter().map(|text| address(text)).collect()
    }

    fn check(client: &str, named: &[&str], peer: &str) -> Result<(), Unreachable> {
        let named: Vec<_> = named.iter().map(|block| block.parse().unwrap()).collect();
        Reach {
            client: address(client),
            machine: &addresses(MACHINE),
            advertised: &addresses(ADVERTISED),
            named: &named,
        }
        .check(address(peer))
    }

    #[test]
    fn a_client_elsewhere_reaches_nothing_of_this_machine() {
        for peer in [
            "127.0.0.1",
            "127.9.9.9",
            "::1",
            "::ffff:127.0.0.1",
            "64:ff9b::7f00:1",
            "::ffff:0:127.0.0.1",
            "64:ff9b:1::7f00:1",
            "64:ff9b:1:7f00:0:100::",
            "64:ff9b:1:aa7f:0:1::",
            "64:ff9b:1:aaaa:7f:0:100:0",
            "2002:7f00:1::",
            "2001:0:7f00:1::",
            "2001:0:c000:201::80ff:fffe",
        ] {
            let refusal = check(STRANGER, &[], peer).unwrap_err();
            assert_eq!(refusal, Unreachable::Loopback(address(peer)));
            assert!(refusal.to_string().contains("data-hosts"), "{refusal}");
        }
        for peer in [
            "169.254.169.254",
            "fe80::1",
            "febf::1",
            "::ffff:169.254.0.1",
        ] {
            let refusal = check(STRANGER, &[], peer).unwrap_err();
            assert_eq!(refusal, Unreachable::LinkLocal(address(peer)));
        }
        for peer in [
            "198.51.100.7",
            "::ffff:198.51.100.7",
            "2001:db8::7",
            "203.0.113.7",
            "64:ff9b::c633:6407",
            "64:ff9b:1::c633:6407",
        ] {
            let refusal = check(STRANGER, &[], peer).unwrap_err();
            assert_eq!(refusal, Unreachable::Own(address(peer)));
        }
        for peer in [
            "198.51.100.8",
            "2001:db8::8",
            "192.0.2.1",
            "10.0.0.1",
            "fec0::1",
            "2002:c000:201::1",
            // Their tunnel ends at this machine.
            "2002:c633:6407::1",
            "2001:0:c000:201::3fff:fdfe",
            "64:ff9b:1::c000:201",
        ] {
            assert_eq!(check(STRANGER, &[], peer), Ok(()), "{peer}");
        }
    }

    #[test]
    fn what_is_no_host_is_never_reached() {
        for peer in [
            "0.0.0.0",
            "0.1.2.3",
            "255.255.255.255",
            "224.0.0.1",
            "240.0.0.1",
            "::",
            "::7f00:1",
            "ff02::1",
            "::ffff:0.0.0.0",
            "64:ff9b::",
            "64:ff9b:1::",
            "2002::1",
        ] {
            let named = ["0.0.0.0/0", "::/0", "224.0.0.1", "0.0.0.0", "ff02::1"];
            for client in ["127.0.0.1", "::1", STRANGER] {
                let refusal = check(client, &named, peer).unwrap_err();
                assert_eq!(refusal, Unreachable::NoHost(address(peer)));
            }
        }
    }

    #[test]
    fn a_client_on_this_machine_reaches_what_it_reaches_anyway() {
        for client in ["127.0.0.1", "127.0.0.2", "::1"] {
            for peer in ["127.0.0.1", "::1", "198.51.100.7", "2001:db8::7"] {
                assert_eq!(check(client, &[], peer), Ok(()), "{client} {peer}");
            }
        }
        assert_eq!(check("198.51.100.7", &[], "2001:db8::7"), Ok(()));
        assert_eq!(check("fe80::9", &[], "fe80::9"), Ok(()));
        check("fe80::9", &[], "fe80::8").unwrap_err();
        check("127.0.0.1", &[], "169.254.169.254").unwrap_err();
        // It may be a container whose packets were translated.
        check("198.51.100.7", &[], "127.0.0.1").unwrap_err();
        // Hosts behind the same router come from the advertised address.
        check("203.0.113.7", &[], "198.51.100.7").unwrap_err();
        assert_eq!(check("203.0.113.7", &[], "203.0.113.7"), Ok(()));
    }

    #[test]
    fn the_administrator_names_special_addresses_by_themselves() {
        for (block, peer) in [
            ("127.0.0.0/8", "127.0.0.1"),
            ("127.0.0.1", "::ffff:127.0.0.1"),
            ("::1", "::1"),
            ("169.254.0.0/16", "169.254.1.1"),
            ("fe80::/10", "fe80::1"),
            ("198.51.100.7", "198.51.100.7"),
            ("203.0.113.7", "203.0.113.7"),
        ] {
            check(STRANGER, &[], peer).unwrap_err();
            assert_eq!(check(STRANGER, &[block], peer), Ok(()), "{block} {peer}");
        }
        for (block, peer) in [
            ("0.0.0.0/0", "127.0.0.1"),
            ("126.0.0.0/7", "127.0.0.1"),
            ("::/0", "::1"),
            ("169.254.0.0/15", "169.254.1.1"),
            ("fe00::/8", "fe80::1"),
            ("198.51.100.0/24", "198.51.100.7"),
        ] {
            check(STRANGER, &[block], peer).expect_err(block);
        }
    }

    /// RFC 8215.
    const LOCAL_USE: u128 = 0x64_ff9b_0001 << 80;

    proptest! {
        /// The model: ranges of numbers.
        #[test]
        fn no_form_of_an_ipv4_address_escapes(
            bits in prop_oneof![
                any::<u32>(),
                0x7f00_0000..=0x7fff_ffff_u32,
                0xa9fe_0000..=0xa9fe_ffff_u32,
                Just(0xc633_6407),
                0..=0x00ff_ffff_u32,
                0xe000_0000..=0xffff_ffff_u32,
            ],
            form in 0..9_usize,
        ) {
            let wide = u128::from(bits);
            let in_ipv6 = match form {
                0 => 0xffff << 32 | wide,
                1 => 0x64_ff9b << 96 | wide,
                2 => 0xffff << 48 | wide,
                3 => wide,
                // With prefixes of 48, 56, 64 and 96 bits; bits 64 to 71 are left out.
                4 => LOCAL_USE | wide >> 16 << 64 | (wide & 0xffff) << 40,
                5 => LOCAL_USE | 0xaa << 72 | wide >> 24 << 64 | (wide & 0xff_ffff) << 32,
                6 => LOCAL_USE | 0xaaaa << 64 | wide << 24,
                _ => LOCAL_USE | 0xaaaa << 64 | 0xaaaa_aaaa << 32 | wide,
            };
            let peer = match form {
                8 => IpAddr::V4(Ipv4Addr::from_bits(bits)),
                _ => IpAddr::V6(Ipv6Addr::from_bits(in_ipv6)),
            };
            let is_no_host = matches!(bits, 0..=0x00ff_ffff | 0xe000_0000..);
            let may_have_other_length = (4..8).contains(&form);
            // A prefix of another length may give an address of a host.
            prop_assume!(!(may_have_other_length && is_no_host));
            let model = match bits {
                // The loopback address itself and the unspecified one.
                1 if form == 3 => Err(Unreachable::Loopback(peer)),
                _ if form == 3 || is_no_host => Err(Unreachable::NoHost(peer)),
                0x7f00_0000..=0x7fff_ffff => Err(Unreachable::Loopback(peer)),
                0xa9fe_0000..=0xa9fe_ffff => Err(Unreachable::LinkLocal(peer)),
                0xc633_6407 | 0xcb00_7107 => Err(Unreachable::Own(peer)),
                _ => Ok(()),
            };
            // It may give a special one as well, so what is no special address may be refused.
            prop_assume!(!(may_have_other_length && model.is_ok()));
            let found = check(STRANGER, &[], &peer.to_string());
            prop_assert!(found == model || may_have_other_length && found.is_err(), "{peer}: {found:?}");
        }

        #[test]
        fn no_ipv6_address_of_a_special_range_escapes(bits in any::<u128>(), range in 0..3_usize) {
            let within = |prefix: u128, length: u32| prefix | bits & (u128::MAX >> length);
            let peer = IpAddr::V6(Ipv6Addr::from_bits(match range {
                0 => within(0xfe80 << 112, 10),
                1 => within(0xff << 120, 8),
                _ => within(0, 96),
            }));
            prop_assert!(check(STRANGER, &["::/0"], &peer.to_string()).is_err());
        }
    }
}
