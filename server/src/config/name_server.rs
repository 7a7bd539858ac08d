//! The name servers of `nodes-resolver`.

use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::str::FromStr;

use super::texts::deserialize_as_text;
use super::values::ValueError;

/// The port of name servers (RFC 1035 4.2).
const PORT: u16 = 53;

/// The address of a name server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NameServer(pub SocketAddr);

impl FromStr for NameServer {
    type Err = ValueError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let address = text.parse::<IpAddr>();
        let address = address.map(|address| SocketAddr::new(address, PORT));
        let address = address.or_else(|_| text.parse::<SocketAddr>()).ok();
        let usable = address.filter(|address| !address.ip().is_unspecified() && address.port() > 0);
        usable.map(Self).ok_or_else(|| {
            ValueError::new(
                text,
                "the address of a name server, like 192.0.2.53, 192.0.2.53:5353 or [2001:db8::53]:53",
            )
        })
    }
}

impl fmt::Display for NameServer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

deserialize_as_text!(NameServer);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_server_has_an_address() {
        for (text, shown) in [
            ("192.0.2.53", "192.0.2.53:53"),
            ("192.0.2.53:5353", "192.0.2.53:5353"),
            ("2001:db8::53", "[2001:db8::53]:53"),
        ] {
            assert_eq!(text.parse::<NameServer>().expect(text).to_string(), shown);
        }
        for text in ["", "ns.example.org", "0.0.0.0", "192.0.2.53:0"] {
            text.parse::<NameServer>().expect_err(text);
        }
    }
}
