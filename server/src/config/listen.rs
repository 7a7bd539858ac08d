//! Addresses to listen at.

use std::fmt;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener};
use std::str::FromStr;
use std::sync::OnceLock;

use super::texts::deserialize_as_number_or_text;
use super::values::ValueError;

/// An address to listen at. Names are not looked up, except for `localhost`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ListenAddress {
    /// An address with a port.
    At(SocketAddr),
    /// `localhost:2811`: the loopback addresses. No name service is asked.
    Localhost(u16),
    /// `2811`, `:2811` or `*:2811`: a port alone.
    Port(u16),
}

impl ListenAddress {
    /// The addresses, where a port alone means all addresses of the machine. Many machines have no IPv6.
    pub(super) fn everywhere(self, has_ipv6: bool) -> Vec<SocketAddr> {
        let (port, v4, v6) = match self {
            Self::At(address) => return vec![address],
            Self::Localhost(port) => (port, Ipv4Addr::LOCALHOST, Ipv6Addr::LOCALHOST),
            Self::Port(port) => (port, Ipv4Addr::UNSPECIFIED, Ipv6Addr::UNSPECIFIED),
        };
        let mut addresses = vec![SocketAddr::from((v4, port))];
        if has_ipv6 {
            addresses.push((v6, port).into());
        }
        addresses
    }

    /// The one address of a service that asks for no password. A port alone is on this machine only, so that a short notation
    /// opens nothing to others.
    pub(super) fn on_this_machine(self) -> SocketAddr {
        match self {
            Self::At(address) => address,
            Self::Localhost(port) | Self::Port(port) => (Ipv4Addr::LOCALHOST, port).into(),
        }
    }
}

/// Whether this machine has IPv6. It is tried at the first configuration: a reload must find the addresses of the start, and
/// some processes of the server may not make sockets any more.
pub(super) fn has_ipv6() -> bool {
    static FOUND: OnceLock<bool> = OnceLock::new();
    *FOUND.get_or_init(|| TcpListener::bind((Ipv6Addr::LOCALHOST, 0)).is_ok())
}

impl FromStr for ListenAddress {
    type Err = ValueError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let port = |text: &str| {
            let is_number = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
            text.parse().ok().filter(|_| is_number)
        };
        let parse = || {
            if let Ok(address) = text.parse() {
                return Some(Self::At(address));
            }
            match text.rsplit_once(':') {
                Some(("localhost", number)) => port(number).map(Self::Localhost),
                Some(("" | "*", number)) => port(number).map(Self::Port),
                Some(_) => None,
                None => port(text).map(Self::Port),
            }
        };
        parse().ok_or_else(|| {
            ValueError::new(
                text,
                "an address with a port, like 0.0.0.0:2811, [::]:2811 or localhost:2811, or a port, like 2811 (other \
                 host names are not looked up)",
            )
        })
    }
}

impl From<SocketAddr> for ListenAddress {
    fn from(address: SocketAddr) -> Self {
        Self::At(address)
    }
}

impl fmt::Display for ListenAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::At(address) => address.fmt(f),
            Self::Localhost(port) => write!(f, "localhost:{port}"),
            Self::Port(port) => write!(f, ":{port}"),
        }
    }
}

deserialize_as_number_or_text!(ListenAddress);

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(text: &str) -> ListenAddress {
        text.parse().expect(text)
    }

    fn address(text: &str) -> SocketAddr {
        text.parse().expect(text)
    }

    #[test]
    fn localhost_and_ports_need_no_name_service() {
        let localhost = parsed("localhost:2811");
        let both = [address("127.0.0.1:2811"), address("[::1]:2811")];
        assert_eq!(localhost.everywhere(true), both);
        assert_eq!(localhost.everywhere(false), both[..1]);
        for text in ["2811", ":2811", "*:2811"] {
            let both = [address("0.0.0.0:2811"), address("[::]:2811")];
            assert_eq!(parsed(text).everywhere(true), both);
            assert_eq!(parsed(text).everywhere(false), both[..1]);
            assert_eq!(parsed(text).on_this_machine(), address("127.0.0.1:2811"));
        }
        let one = parsed("[2001:db8::1]:2811");
        assert_eq!(one.everywhere(true), [address("[2001:db8::1]:2811")]);
        assert_eq!(one.on_this_machine(), address("[2001:db8::1]:2811"));
    }

    #[test]
    fn what_is_no_address_gets_an_example() {
        for text in [
            "",
            ":",
            "nonsense",
            "127.0.0.1",
            "::1:2811:",
            "host.example.org:2811",
            "65536",
            "+1",
            "localhost:",
        ] {
            let error = text.parse::<ListenAddress>().expect_err(text).to_string();
            assert!(error.contains("0.0.0.0:2811"), "{error}");
        }
    }
}
