//! The addresses that the server connects to for a session.
//!
//! When the server opens a data connection, the client chooses the bytes and the address (`PORT`, `EPRT`, `SPOR`). From the
//! server's machine such a connection reaches services that the client cannot reach itself: those that listen on the loopback
//! interface or on a link, and those that trust the addresses of the machine. So the server refuses these addresses, unless the
//! client uses the address itself, or the administrator has named it. RFC 2577 3 calls the attack "bounce".

mod embedded;
mod kind;

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use self::embedded::Embedded;
use self::kind::AddressKind;
use crate::admission::AddressBlock;

/// The facts that decide whether the server connects to an address.
#[derive(Debug, Clone, Copy)]
pub struct Reach<'a> {
    /// The client's address on the control connection.
    pub client: IpAddr,
    /// The addresses of this machine: those of its interfaces, the local one of the control connection, and others that the
    /// kernel routes locally.
    pub machine: &'a [IpAddr],
    /// Further addresses that lead to this machine: those advertised to clients behind address translation.
    pub advertised: &'a [IpAddr],
    /// Blocks that the administrator has named in `data-hosts`.
    pub named: &'a [AddressBlock],
}

/// Why the server does not connect to an address.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Unreachable {
    /// The address is multicast, broadcast, unspecified or reserved.
    #[error("{0} is no address of a host")]
    NoHost(IpAddr),
    /// The address is a loopback address.
    #[error(
        "{0} is a loopback address of the server, which it connects to for clients on its own machine only, unless \
         the administrator names it in data-hosts (as 127.0.0.0/8 or ::1)"
    )]
    Loopback(IpAddr),
    /// The address is link-local.
    #[error(
        "{0} is a link-local address, which the server connects to for the client with this address only, unless \
         the administrator names it in data-hosts (as 169.254.0.0/16 or fe80::/10)"
    )]
    LinkLocal(IpAddr),
    /// The address belongs to this machine.
    #[error(
        "{0} is an address of the server's own machine, which it connects to for clients on the same machine only, \
         unless the administrator names this one address in data-hosts; third-party copies between two servers of \
         one machine need that"
    )]
    Own(IpAddr),
}

/// All addresses at which a connection to `address` may end, for callers that look up their routes: see [`Reach::machine`].
pub fn destinations(address: IpAddr) -> Vec<IpAddr> {
    let mut all = vec![address.to_canonical()];
    if let Embedded::Translated(ends) = Embedded::of(address.to_canonical()) {
        all.extend(ends);
    }
    all
}

impl Reach<'_> {
    /// Checks that the server may connect to `address` for the session.
    ///
    /// # Errors
    ///
    /// When it may not; the text names the setting that allows it.
    pub fn check(&self, address: IpAddr) -> Result<(), Unreachable> {
        let canonical = address.to_canonical();
        let check_end = |end| {
            self.check_end(end).map_err(|kind| match kind {
                AddressKind::Loopback => Unreachable::Loopback(address),
                AddressKind::LinkLocal => Unreachable::LinkLocal(address),
                AddressKind::Own => Unreachable::Own(address),
                AddressKind::NoHost | AddressKind::Remote => Unreachable::NoHost(address),
            })
        };
        check_end(canonical)?;
        match Embedded::of(canonical) {
            Embedded::None => Ok(()),
            Embedded::Translated(ends) => {
                // The prefix length is unknown; wrong lengths mostly give addresses that are no hosts.
                let is_host = |end: &IpAddr| AddressKind::by_number(*end) != AddressKind::NoHost;
                if !ends.iter().any(is_host) {
                    return Err(Unreachable::NoHost(address));
                }
                ends.into_iter().filter(is_host).try_for_each(check_end)
            }
            Embedded::Tunnel(ends) => {
                // A tunnel may end at this machine and lead to another host, so an own address is allowed here.
                let is_special = |end: &IpAddr| AddressKind::by_number(*end) != AddressKind::Remote;
                ends.into_iter().filter(is_special).try_for_each(check_end)
            }
        }
    }

    /// Checks the end of a connection; the error is the kind of the address.
    fn check_end(&self, end: IpAddr) -> Result<(), AddressKind> {
        let kind = match AddressKind::by_number(end) {
            AddressKind::Remote if self.is_own(end) => AddressKind::Own,
            kind => kind,
        };
        let is_allowed = kind == AddressKind::Remote
            || self.is_reachable_by_client(end, kind)
            || self.is_named(end, kind);
        if is_allowed { Ok(()) } else { Err(kind) }
    }

    fn is_own(&self, address: IpAddr) -> bool {
        let mut own = self.machine.iter().chain(self.advertised);
        own.any(|own| own.to_canonical() == address)
    }

    /// A client reaches its own address without the server. A client on the loopback interface is a program on this machine and
    /// reaches all of its addresses; one with another address of this machine reaches the non-loopback ones.
    fn is_reachable_by_client(&self, address: IpAddr, kind: AddressKind) -> bool {
        let client = self.client.to_canonical();
        if client == address {
            return kind != AddressKind::NoHost;
        }
        let is_local = client.is_loopback();
        match kind {
            AddressKind::Loopback => is_local,
            // Not for advertised addresses: they may belong to a router that other hosts are behind.
            AddressKind::Own => {
                is_local || self.machine.iter().any(|own| own.to_canonical() == client)
            }
            AddressKind::LinkLocal | AddressKind::NoHost | AddressKind::Remote => false,
        }
    }

    /// A block allows special addresses only if it contains no others: `10.0.0.0/8` stands for the hosts of a site, and not
    /// for other services at this machine's address in it.
    fn is_named(&self, address: IpAddr, kind: AddressKind) -> bool {
        let mut named = self.named.iter().filter(|block| block.contains(address));
        named.any(|block| match kind {
            AddressKind::Loopback => block.is_within(LOOPBACK_IPV4) || block.is_host(),
            AddressKind::LinkLocal => {
                block.is_within(LINK_LOCAL_IPV4) || block.is_within(LINK_LOCAL_IPV6)
            }
            AddressKind::Own => block.is_host(),
            AddressKind::NoHost | AddressKind::Remote => false,
        })
    }
}

const LOOPBACK_IPV4: (IpAddr, u8) = (IpAddr::V4(Ipv4Addr::new(127, 0, 0, 0)), 8);
const LINK_LOCAL_IPV4: (IpAddr, u8) = (IpAddr::V4(Ipv4Addr::new(169, 254, 0, 0)), 16);
const LINK_LOCAL_IPV6: (IpAddr, u8) = (IpAddr::V6(Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 0)), 10);

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const MACHINE: &[&str] = &["198.51.100.7", "2001:db8::7", "127.0.0.1", "::1", "fe80::7"];
    const ADVERTISED: &[&str] = &["203.0.113.7"];
    const REMOTE: &str = "192.0.2.1";

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
    fn a_remote_client_reaches_no_address_of_this_machine() {
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
            let refusal = check(REMOTE, &[], peer).unwrap_err();
            assert_eq!(refusal, Unreachable::Loopback(address(peer)));
            assert!(refusal.to_string().contains("data-hosts"), "{refusal}");
        }
        for peer in [
            "169.254.169.254",
            "fe80::1",
            "febf::1",
            "::ffff:169.254.0.1",
        ] {
            let refusal = check(REMOTE, &[], peer).unwrap_err();
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
            let refusal = check(REMOTE, &[], peer).unwrap_err();
            assert_eq!(refusal, Unreachable::Own(address(peer)));
        }
        for peer in [
            "198.51.100.8",
            "2001:db8::8",
            "192.0.2.1",
            "10.0.0.1",
            "fec0::1",
            "2002:c000:201::1",
            // The tunnel ends at this machine.
            "2002:c633:6407::1",
            "2001:0:c000:201::3fff:fdfe",
            "64:ff9b:1::c000:201",
        ] {
            assert_eq!(check(REMOTE, &[], peer), Ok(()), "{peer}");
        }
    }

    #[test]
    fn addresses_of_no_host_are_never_reached() {
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
            for client in ["127.0.0.1", "::1", REMOTE] {
                let refusal = check(client, &named, peer).unwrap_err();
                assert_eq!(refusal, Unreachable::NoHost(address(peer)));
            }
        }
    }

    #[test]
    fn a_local_client_reaches_local_addresses() {
        for client in ["127.0.0.1", "127.0.0.2", "::1"] {
            for peer in ["127.0.0.1", "::1", "198.51.100.7", "2001:db8::7"] {
                assert_eq!(check(client, &[], peer), Ok(()), "{client} {peer}");
            }
        }
        assert_eq!(check("198.51.100.7", &[], "2001:db8::7"), Ok(()));
        assert_eq!(check("fe80::9", &[], "fe80::9"), Ok(()));
        check("fe80::9", &[], "fe80::8").unwrap_err();
        check("127.0.0.1", &[], "169.254.169.254").unwrap_err();
        // The client may be a container behind address translation.
        check("198.51.100.7", &[], "127.0.0.1").unwrap_err();
        // Hosts behind the same router have the advertised address.
        check("203.0.113.7", &[], "198.51.100.7").unwrap_err();
        assert_eq!(check("203.0.113.7", &[], "203.0.113.7"), Ok(()));
    }

    #[test]
    fn a_block_allows_special_addresses_only_without_others() {
        for (block, peer) in [
            ("127.0.0.0/8", "127.0.0.1"),
            ("127.0.0.1", "::ffff:127.0.0.1"),
            ("::1", "::1"),
            ("169.254.0.0/16", "169.254.1.1"),
            ("fe80::/10", "fe80::1"),
            ("198.51.100.7", "198.51.100.7"),
            ("203.0.113.7", "203.0.113.7"),
        ] {
            check(REMOTE, &[], peer).unwrap_err();
            assert_eq!(check(REMOTE, &[block], peer), Ok(()), "{block} {peer}");
        }
        for (block, peer) in [
            ("0.0.0.0/0", "127.0.0.1"),
            ("126.0.0.0/7", "127.0.0.1"),
            ("::/0", "::1"),
            ("169.254.0.0/15", "169.254.1.1"),
            ("fe00::/8", "fe80::1"),
            ("198.51.100.0/24", "198.51.100.7"),
        ] {
            check(REMOTE, &[block], peer).expect_err(block);
        }
    }

    /// RFC 8215.
    const LOCAL_USE: u128 = 0x64_ff9b_0001 << 80;

    proptest! {
        /// Compares with a model of number ranges.
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
            // Another prefix length may give an address of a host.
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
            // It may give a special address as well, so ordinary addresses may be refused.
            prop_assume!(!(may_have_other_length && model.is_ok()));
            let found = check(REMOTE, &[], &peer.to_string());
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
            prop_assert!(check(REMOTE, &["::/0"], &peer.to_string()).is_err());
        }
    }
}
