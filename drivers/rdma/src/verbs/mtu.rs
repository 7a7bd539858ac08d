//! The MTU of packets: `enum ibv_mtu`, where 1 is 256 bytes, and each further value doubles it, up to 5.

use std::io;
use std::net::{IpAddr, UdpSocket};

use rustix::net::sockopt;

/// RFC 6335: the port of RoCE v2.
const ROCE_PORT: u16 = 4791;

/// The bytes of the headers of a RoCE packet, as the kernel reserves them (iboe_get_mtu in rdma/ib_addr.h).
pub(super) const HEADERS: u64 = 96;

/// The smallest.
pub(super) const LEAST: u8 = 1;

/// The length of a packet's payload in bytes.
pub(super) fn bytes(mtu: u8) -> u64 {
    128 << mtu.min(5)
}

/// The length in bytes of the IP packets that carry such packets of RoCE.
pub(super) fn ip_bytes(mtu: u8) -> u64 {
    bytes(mtu) + HEADERS
}

/// The largest MTU up to this one whose packets fit into IP packets of so many bytes.
pub(super) fn within(most: u8, most_bytes: Option<u32>) -> u8 {
    let fits = |mtu| most_bytes.is_none_or(|most| ip_bytes(mtu) <= u64::from(most));
    (LEAST..=most).rev().find(|&mtu| fits(mtu)).unwrap_or(LEAST)
}

/// The longest IP packet in bytes that the kernel sends to the peer at this moment. TCP shows what was known when the connection was
/// made.
pub(super) fn of_route(own: IpAddr, peer: IpAddr) -> io::Result<u32> {
    let socket = UdpSocket::bind((own, 0))?;
    // It sends nothing.
    socket.connect((peer, ROCE_PORT))?;
    let bytes = match own {
        IpAddr::V4(_) => sockopt::ip_mtu(&socket),
        IpAddr::V6(_) => sockopt::ipv6_mtu(&socket),
    };
    Ok(bytes?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packets_are_no_longer_than_those_of_ip() {
        let paths = [
            None,
            Some(9000),
            Some(4192),
            Some(4191),
            Some(1500),
            Some(300),
        ];
        assert_eq!(paths.map(|path| within(5, path)), [5, 5, 5, 4, 3, 1]);
        assert_eq!(within(3, Some(9000)), 3);
        assert_eq!(within(0, None), 1);
        assert_eq!([1, 3, 5].map(bytes), [256, 1024, 4096]);
    }

    #[test]
    fn the_kernel_knows_the_longest_packet_of_a_route() {
        let local = IpAddr::from([127, 0, 0, 1]);
        assert!(of_route(local, local).unwrap() >= 16_384);
    }
}
