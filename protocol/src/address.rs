//! Addresses of data channels, in commands and in replies.
//!
//! There are two forms: six numbers (`PORT`, `227`; RFC 959 4.1.2), for IPv4 only, and `|protocol|address|port|` (`EPRT`;
//! RFC 2428 2). The caller decides whether an address may be connected to.

mod passive;

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV4};

use nom::bytes::complete::take_while1;
use nom::character::complete::char;
use nom::combinator::map_opt;
use nom::error::Error;
use nom::sequence::preceded;
use nom::{IResult, Parser};

use crate::number::decimal;

pub use passive::{PassiveAddress, PassiveReplyError};

/// A network protocol, by its number in `EPRT`, `EPSV` and `SPAS` (RFC 2428 2).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Family {
    /// `1`.
    Ipv4,
    /// `2`.
    Ipv6,
}

impl Family {
    /// The protocol of an address.
    pub fn of(address: IpAddr) -> Self {
        match address {
            IpAddr::V4(_) => Self::Ipv4,
            IpAddr::V6(_) => Self::Ipv6,
        }
    }

    /// Reads the number.
    pub(crate) fn parse(number: &[u8]) -> Option<Self> {
        match decimal::<u32>(number)? {
            1 => Some(Self::Ipv4),
            2 => Some(Self::Ipv6),
            _ => None,
        }
    }

    /// The number.
    pub fn number(self) -> u8 {
        match self {
            Self::Ipv4 => 1,
            Self::Ipv6 => 2,
        }
    }
}

/// The addresses of a `SPOR` command or a `SPAS` reply, one for each stripe: from 1 to
/// [`Self::MAX`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StripeAddresses(Vec<SocketAddr>);

impl StripeAddresses {
    /// The most stripes that are supported.
    pub const MAX: usize = 64;

    /// Takes addresses, or `None` if there are none or more than [`Self::MAX`].
    pub fn new(addresses: Vec<SocketAddr>) -> Option<Self> {
        (1..=Self::MAX)
            .contains(&addresses.len())
            .then_some(Self(addresses))
    }

    /// The addresses, in the order of the stripes.
    pub fn as_slice(&self) -> &[SocketAddr] {
        &self.0
    }
}

impl From<SocketAddr> for StripeAddresses {
    fn from(address: SocketAddr) -> Self {
        Self(vec![address])
    }
}

/// Why an address of a command cannot be used.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum AddressError {
    /// The text is not an address, or its port is 0.
    #[error("not an address with a port")]
    Syntax,
    /// The network protocol is neither IPv4 nor IPv6.
    #[error("network protocol not supported, use (1,2)")]
    Family,
}

/// Reads `h1,h2,h3,h4,p1,p2` (RFC 959 4.1.2, `PORT`).
///
/// # Errors
///
/// When the text has another form, or the port is 0.
pub fn parse_host_port(text: &[u8]) -> Result<SocketAddrV4, AddressError> {
    match host_port(text) {
        Ok(([], address)) => Ok(address),
        _ => Err(AddressError::Syntax),
    }
}

/// Writes `h1,h2,h3,h4,p1,p2`.
pub fn format_host_port(address: SocketAddrV4) -> String {
    let [a, b, c, d] = address.ip().octets();
    let [high, low] = address.port().to_be_bytes();
    format!("{a},{b},{c},{d},{high},{low}")
}

/// Reads `|protocol|address|port|`, with any delimiter (RFC 2428 2).
///
/// # Errors
///
/// When the text has another form, or the port is 0.
pub fn parse_extended(text: &[u8]) -> Result<SocketAddr, AddressError> {
    socket_address(&fields(text).ok_or(AddressError::Syntax)?)
}

/// Writes `|protocol|address|port|`.
pub fn format_extended(address: SocketAddr) -> String {
    let family = Family::of(address.ip()).number();
    format!("|{family}|{}|{}|", address.ip(), address.port())
}

/// Reads an address of `SPOR` or of a `SPAS` reply, in either form.
pub(crate) fn parse_stripe(text: &[u8]) -> Result<SocketAddr, AddressError> {
    if text.first().is_some_and(u8::is_ascii_digit) {
        parse_host_port(text).map(SocketAddr::V4)
    } else {
        parse_extended(text)
    }
}

/// Writes an address for `SPOR` in the form that most servers support.
pub(crate) fn format_stripe(address: SocketAddr) -> String {
    match address {
        SocketAddr::V4(address) => format_host_port(address),
        SocketAddr::V6(_) => format_extended(address),
    }
}

fn host_port(input: &[u8]) -> IResult<&[u8], SocketAddrV4> {
    let digits = || take_while1::<_, _, Error<&[u8]>>(|byte: u8| byte.is_ascii_digit());
    let number = || map_opt(digits(), decimal::<u8>);
    let next = || preceded(char(','), number());
    let numbers = (number(), next(), next(), next(), next(), next());
    map_opt(numbers, |(a, b, c, d, high, low)| {
        let port = u16::from_be_bytes([high, low]);
        (port != 0).then(|| SocketAddrV4::new(Ipv4Addr::new(a, b, c, d), port))
    })
    .parse(input)
}

/// The fields of `|protocol|address|port|`.
struct Fields<'a> {
    family: &'a [u8],
    address: &'a [u8],
    port: u16,
}

/// Splits at the delimiter, which is the first byte (RFC 2428 2).
fn fields(text: &[u8]) -> Option<Fields<'_>> {
    let (&delimiter, rest) = text.split_first()?;
    let mut fields = rest.split(|&byte| byte == delimiter);
    let (family, address) = (fields.next()?, fields.next()?);
    let port = decimal(fields.next()?).filter(|&port| port != 0)?;
    let is_closed = fields.next() == Some(b"") && fields.next().is_none();
    is_closed.then_some(Fields {
        family,
        address,
        port,
    })
}

fn socket_address(fields: &Fields<'_>) -> Result<SocketAddr, AddressError> {
    let address = std::str::from_utf8(fields.address).map_err(|_| AddressError::Syntax)?;
    let ip = match Family::parse(fields.family).ok_or(AddressError::Family)? {
        Family::Ipv4 => address.parse::<Ipv4Addr>().map(IpAddr::V4),
        Family::Ipv6 => address.parse::<Ipv6Addr>().map(IpAddr::V6),
    };
    let ip = ip.map_err(|_| AddressError::Syntax)?;
    Ok(SocketAddr::new(ip, fields.port))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn six_numbers_are_an_address() {
        assert_eq!(
            parse_host_port(b"127,0,0,1,202,79"),
            Ok("127.0.0.1:51791".parse().unwrap())
        );
        for wrong in [
            "127,0,0,1,4",
            "127,0,0,1,4,5,6",
            "256,0,0,1,4,5",
            "abc",
            "",
            "1,2,3,4,0,0",
        ] {
            assert_eq!(
                parse_host_port(wrong.as_bytes()),
                Err(AddressError::Syntax),
                "{wrong}"
            );
        }
    }

    #[test]
    fn extended_addresses_have_any_delimiter() {
        let address = "[::1]:44747".parse().unwrap();
        assert_eq!(parse_extended(b"|2|::1|44747|"), Ok(address));
        assert_eq!(parse_extended(b"!2!::1!44747!"), Ok(address));
        assert_eq!(parse_extended(b"|3|x|5|"), Err(AddressError::Family));
        for wrong in [
            "foo",
            "",
            "|1|::1|5|",
            "|1|127.0.0.1|0|",
            "|1|127.0.0.1|65536|",
            "|1||5|",
        ] {
            assert_eq!(
                parse_extended(wrong.as_bytes()),
                Err(AddressError::Syntax),
                "{wrong}"
            );
        }
    }

    proptest! {
        #[test]
        fn addresses_survive(ip: IpAddr, port in 1u16..) {
            let address = SocketAddr::new(ip, port);
            prop_assert_eq!(parse_extended(format_extended(address).as_bytes()), Ok(address));
            prop_assert_eq!(parse_stripe(format_stripe(address).as_bytes()), Ok(address));
        }

        #[test]
        fn no_text_makes_the_parser_panic(text: Vec<u8>) {
            let _ = parse_extended(&text);
            let _ = parse_stripe(&text);
        }
    }
}
