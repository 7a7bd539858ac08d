//! Socket addresses in the form of the operating system.

use std::ffi::c_int;
use std::net::SocketAddr;
use std::ptr;

/// An address in the form of the operating system.
pub(super) enum Address {
    V4(libc::sockaddr_in),
    V6(libc::sockaddr_in6),
}

impl Address {
    pub(super) fn new(address: SocketAddr) -> Self {
        match address {
            SocketAddr::V4(address) => Self::V4(libc::sockaddr_in {
                sin_family: family(libc::AF_INET),
                sin_port: address.port().to_be(),
                sin_addr: libc::in_addr {
                    s_addr: u32::from_ne_bytes(address.ip().octets()),
                },
                sin_zero: [0; 8],
            }),
            SocketAddr::V6(address) => Self::V6(libc::sockaddr_in6 {
                sin6_family: family(libc::AF_INET6),
                sin6_port: address.port().to_be(),
                sin6_flowinfo: 0,
                sin6_addr: libc::in6_addr {
                    s6_addr: address.ip().octets(),
                },
                sin6_scope_id: address.scope_id(),
            }),
        }
    }

    pub(super) fn as_ptr(&self) -> *const libc::sockaddr {
        match self {
            Self::V4(address) => ptr::from_ref(address).cast(),
            Self::V6(address) => ptr::from_ref(address).cast(),
        }
    }
}

fn family(number: c_int) -> libc::sa_family_t {
    libc::sa_family_t::try_from(number).expect("families are small numbers")
}
