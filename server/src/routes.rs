//! The route that the kernel takes to an address: rtnetlink(7).
//!
//! The addresses of interfaces are not the only local ones. A route of the type `local` (`ip route add local 10.9.0.0/16 dev
//! lo`, as load balancers and proxies have it) makes every address of a block local.

use std::io;
use std::net::IpAddr;
use std::os::fd::OwnedFd;

use rustix::io::Errno;
use rustix::net::netlink::SocketAddrNetlink;
use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, recv, sendto, socket_with,
};

/// Whether packets to `address` stay on this machine. No packet is sent.
///
/// # Errors
///
/// The OS error, when the kernel does not answer.
pub(crate) fn lead_here(address: IpAddr) -> io::Result<bool> {
    let socket = socket_with(
        AddressFamily::NETLINK,
        SocketType::RAW,
        SocketFlags::CLOEXEC,
        // NETLINK_ROUTE, which is 0.
        None,
    )?;
    match ask(&socket, address) {
        Ok(kind) => Ok(STAYS.contains(&kind)),
        // There is no route, or an administrator has blocked it, or the kernel lacks the protocol: connecting fails.
        Err(
            Errno::NETUNREACH
            | Errno::HOSTUNREACH
            | Errno::ACCESS
            | Errno::INVAL
            | Errno::AFNOSUPPORT
            | Errno::OPNOTSUPP,
        ) => Ok(false),
        Err(error) => Err(error.into()),
    }
}

/// `RTN_LOCAL`, `RTN_BROADCAST` and `RTN_ANYCAST` of linux/rtnetlink.h.
const STAYS: [u8; 3] = [2, 3, 4];

/// `struct nlmsghdr` and `struct rtmsg`.
const HEADER_BYTES: usize = 16;
const ROUTE_BYTES: usize = 12;
/// The offset of a route's type in `struct rtmsg`.
const KIND: usize = HEADER_BYTES + 7;

/// The type of the kernel's route.
fn ask(socket: &OwnedFd, address: IpAddr) -> Result<u8, Errno> {
    const NEW_ROUTE: u16 = 24;
    const ERROR: u16 = 2;

    sendto(
        socket,
        &request(address),
        SendFlags::empty(),
        &SocketAddrNetlink::new(0, 0),
    )?;
    let mut answer = [0; 512];
    let (length, _) = recv(socket, &mut answer[..], RecvFlags::empty())?;
    let answer = &answer[..length];
    let bytes = |at: usize, length: usize| answer.get(at..at + length).ok_or(Errno::BADMSG);
    let kind = u16::from_ne_bytes(bytes(4, 2)?.try_into().expect("two"));
    match kind {
        NEW_ROUTE => Ok(bytes(KIND, 1)?[0]),
        ERROR => {
            let number = i32::from_ne_bytes(bytes(HEADER_BYTES, 4)?.try_into().expect("four"));
            Err(Errno::from_raw_os_error(number.saturating_neg()))
        }
        _ => Err(Errno::BADMSG),
    }
}

/// `RTM_GETROUTE` with `RTA_DST`.
fn request(address: IpAddr) -> Vec<u8> {
    const GET_ROUTE: u16 = 26;
    const REQUEST: u16 = 1;
    const DESTINATION: u16 = 1;

    let (family, octets) = match address.to_canonical() {
        IpAddr::V4(v4) => (AddressFamily::INET, v4.octets().to_vec()),
        IpAddr::V6(v6) => (AddressFamily::INET6, v6.octets().to_vec()),
    };
    let small = |number: usize| u8::try_from(number).expect("an address is short");
    let attribute = 4 + small(octets.len());
    let length = small(HEADER_BYTES + ROUTE_BYTES) + attribute;
    let mut message = Vec::with_capacity(usize::from(length));
    message.extend(u32::from(length).to_ne_bytes());
    message.extend(GET_ROUTE.to_ne_bytes());
    message.extend(REQUEST.to_ne_bytes());
    // Sequence and port: there is one request and one response.
    message.extend([0; 8]);
    message.push(u8::try_from(family.as_raw()).expect("families are small numbers"));
    message.push(small(octets.len() * 8));
    message.extend([0; ROUTE_BYTES - 2]);
    message.extend(u16::from(attribute).to_ne_bytes());
    message.extend(DESTINATION.to_ne_bytes());
    message.extend(octets);
    message
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_of_this_machine_stay_and_others_do_not() {
        for here in ["127.0.0.1", "127.200.3.4", "::ffff:127.0.0.1"] {
            assert!(lead_here(here.parse().unwrap()).unwrap(), "{here}");
        }
        // Documentation and benchmarks: RFC 5737, RFC 3849, RFC 2544. There may be no route at all.
        for elsewhere in ["192.0.2.1", "2001:db8::1", "198.18.0.1"] {
            assert!(
                !lead_here(elsewhere.parse().unwrap()).unwrap(),
                "{elsewhere}"
            );
        }
    }
}
