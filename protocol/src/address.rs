//! Addresses of data channels, in commands and in replies.
//!
//! There are two ways to write one: six numbers (`PORT`, `227`; RFC 959 4.1.2), for IPv4 only, and
//! `|protocol|address|port|` (`EPRT`; RFC 2428 2). Whether an address may be connected to is not asked
//! here.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV4};

use nom::bytes::complete::take_while1;
use nom::character::complete::char;
use nom::combinator::map_opt;
use nom::error::Error;
use nom::sequence::preceded;
use nom::{IResult, Parser};

use crate::number::decimal;
use crate::reply::Reply;

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
    /// The most stripes that are dealt with.
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

/// Why an address of a command cannot be used.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum AddressError {
    /// The text is no address, or its port is 0.
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
/// When it is anything else, or the port is 0.
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
/// When it is anything else, or the port is 0.
pub fn parse_extended(text: &[u8]) -> Result<SocketAddr, AddressError> {
    socket_address(&fields(text).ok_or(AddressError::Syntax)?)
}

/// Writes `|protocol|address|port|`.
pub fn format_extended(address: SocketAddr) -> String {
    let family = Family::of(address.ip()).number();
    format!("|{family}|{}|{}|", address.ip(), address.port())
}

/// Reads an address of `SPOR` or of a `SPAS` reply, which may be written in either way.
pub(crate) fn parse_stripe(text: &[u8]) -> Result<SocketAddr, AddressError> {
    if text.first().is_some_and(u8::is_ascii_digit) {
        parse_host_port(text).map(SocketAddr::V4)
    } else {
        parse_extended(text)
    }
}

/// Writes an address for `SPOR` in the way that most servers know.
pub(crate) fn format_stripe(address: SocketAddr) -> String {
    match address {
        SocketAddr::V4(address) => format_host_port(address),
        SocketAddr::V6(_) => format_extended(address),
    }
}

/// What a server answers to `PASV`, `EPSV` or `SPAS`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PassiveAddress {
    /// To `PASV`.
    HostPort(SocketAddrV4),
    /// To `EPSV`: the port, at the host of the control channel.
    Port(u16),
    /// To `EPSV`, with the address where it is another host's. RFC 2428 knows no such reply;
    /// globus-gridftp-server 13.24 gives it when told to, and its clients understand it.
    Extended(SocketAddr),
    /// To `SPAS` without a protocol: six numbers each, but for IPv6 addresses.
    Striped(StripeAddresses),
    /// To `SPAS` with a protocol.
    ExtendedStriped(StripeAddresses),
}

/// Why a reply does not say where to connect to. The server is to blame.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum PassiveReplyError {
    /// It is not a 227, 229, 127 or 129.
    #[error("the reply has code {0}, which carries no address")]
    Code(u16),
    /// There is no address in it, or a wrong one.
    #[error("the reply carries no usable address")]
    Address,
    /// There are more than [`StripeAddresses::MAX`].
    #[error("the reply carries more than {} addresses", StripeAddresses::MAX)]
    TooMany,
}

impl PassiveAddress {
    /// The reply to the command itself: 227 or 229.
    pub fn reply(&self) -> Reply {
        self.reply_with(200)
    }

    /// The reply that comes with the transfer when the address was delayed: 127 or 129, as observed
    /// from globus-gridftp-server 13.24.
    pub fn delayed_reply(&self) -> Reply {
        self.reply_with(100)
    }

    fn reply_with(&self, class: u16) -> Reply {
        match self {
            Self::HostPort(address) => Reply::new(
                class + 27,
                format!("Entering Passive Mode ({})", format_host_port(*address)),
            ),
            Self::Port(port) => Reply::new(
                class + 29,
                format!("Entering Extended Passive Mode (|||{port}|)"),
            ),
            Self::Extended(address) => Reply::new(
                class + 29,
                format!(
                    "Entering Extended Passive Mode ({})",
                    format_extended(*address)
                ),
            ),
            Self::Striped(addresses) => striped_reply(class + 29, addresses, format_stripe),
            Self::ExtendedStriped(addresses) => {
                striped_reply(class + 29, addresses, format_extended)
            }
        }
    }

    /// Reads a reply to `PASV`, `EPSV` or `SPAS`, also a delayed one.
    ///
    /// # Errors
    ///
    /// When it carries no address that can be connected to.
    pub fn parse(reply: &Reply) -> Result<Self, PassiveReplyError> {
        let text = reply.lines().next().unwrap_or_default();
        let parenthesis = text.iter().position(|&byte| byte == b'(');
        match (reply.code(), parenthesis) {
            (227 | 127, parenthesis) => parse_227(&text[parenthesis.unwrap_or(0)..]),
            (229 | 129, Some(parenthesis)) => parse_229(&text[parenthesis + 1..]),
            (229 | 129, None) => parse_striped(reply.inner()),
            (code, _) => Err(PassiveReplyError::Code(code)),
        }
    }

    /// Where to connect to, where the reply leaves it to the host of the control channel: `control`.
    pub fn addresses(&self, control: IpAddr) -> Vec<SocketAddr> {
        match self {
            Self::HostPort(address) => vec![SocketAddr::V4(*address)],
            Self::Port(port) => vec![SocketAddr::new(control, *port)],
            Self::Extended(address) => vec![*address],
            Self::Striped(addresses) | Self::ExtendedStriped(addresses) => {
                addresses.as_slice().to_vec()
            }
        }
    }
}

/// Clients count the lines of this reply, and take it for that of `EPSV` if there is a parenthesis in
/// it, so nothing may be added (observed from globus-url-copy 10.12).
fn striped_reply(
    code: u16,
    addresses: &StripeAddresses,
    format: impl Fn(SocketAddr) -> String,
) -> Reply {
    let lines = addresses.as_slice().iter().map(|&address| format(address));
    Reply::spaced(code, "Entering Striped Passive Mode.", lines, "End")
}

/// RFC 1123 4.1.2.6: the parentheses may be missing, so the first digit counts.
fn parse_227(text: &[u8]) -> Result<PassiveAddress, PassiveReplyError> {
    let start = text.iter().position(u8::is_ascii_digit);
    match host_port(&text[start.unwrap_or(text.len())..]) {
        Ok((_, address)) => Ok(PassiveAddress::HostPort(address)),
        Err(_) => Err(PassiveReplyError::Address),
    }
}

/// Reads what follows the parenthesis.
fn parse_229(text: &[u8]) -> Result<PassiveAddress, PassiveReplyError> {
    let end = text.iter().position(|&byte| byte == b')');
    let inside = &text[..end.unwrap_or(text.len())];
    let fields = fields(inside).ok_or(PassiveReplyError::Address)?;
    if fields.family.is_empty() && fields.address.is_empty() {
        return Ok(PassiveAddress::Port(fields.port));
    }
    socket_address(&fields)
        .map(PassiveAddress::Extended)
        .map_err(|_| PassiveReplyError::Address)
}

fn parse_striped(lines: &[Vec<u8>]) -> Result<PassiveAddress, PassiveReplyError> {
    if lines.len() > StripeAddresses::MAX {
        return Err(PassiveReplyError::TooMany);
    }
    let is_extended = !lines
        .iter()
        .any(|line| line.first().is_some_and(u8::is_ascii_digit));
    let addresses: Result<Vec<_>, _> = lines.iter().map(|line| parse_stripe(line)).collect();
    let addresses = addresses.ok().and_then(StripeAddresses::new);
    let addresses = addresses.ok_or(PassiveReplyError::Address)?;
    Ok(if is_extended {
        PassiveAddress::ExtendedStriped(addresses)
    } else {
        PassiveAddress::Striped(addresses)
    })
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

/// The pieces of `|protocol|address|port|`.
struct Fields<'a> {
    family: &'a [u8],
    address: &'a [u8],
    port: u16,
}

/// Cuts at the delimiter, which is whatever comes first (RFC 2428 2).
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

    fn parse(reply: Reply) -> Result<PassiveAddress, PassiveReplyError> {
        PassiveAddress::parse(&reply)
    }

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

    #[test]
    fn recorded_passive_replies() {
        let address: SocketAddrV4 = "127.0.0.1:51791".parse().unwrap();
        let passive = PassiveAddress::HostPort(address);
        assert_eq!(
            passive.reply().encode(),
            b"227 Entering Passive Mode (127,0,0,1,202,79)\r\n"
        );
        assert_eq!(
            passive.delayed_reply().encode(),
            b"127 Entering Passive Mode (127,0,0,1,202,79)\r\n"
        );
        assert_eq!(
            PassiveAddress::Port(45191).reply().encode(),
            b"229 Entering Extended Passive Mode (|||45191|)\r\n"
        );
        assert_eq!(
            PassiveAddress::Extended("[::1]:43023".parse().unwrap())
                .reply()
                .encode(),
            b"229 Entering Extended Passive Mode (|2|::1|43023|)\r\n"
        );
        // Other servers leave out the parentheses, or say something else.
        assert_eq!(parse(Reply::new(227, "=127,0,0,1,202,79")), Ok(passive));
    }

    #[test]
    fn recorded_striped_replies() {
        let addresses = ["127.0.0.1:55875", "127.0.0.1:36389"].map(|text| text.parse().unwrap());
        let addresses = StripeAddresses::new(addresses.to_vec()).unwrap();
        assert_eq!(
            PassiveAddress::Striped(addresses.clone()).reply().encode(),
            b"229-Entering Striped Passive Mode.\r\n 127,0,0,1,218,67\r\n 127,0,0,1,142,37\r\n\
              229 End\r\n"
        );
        assert_eq!(
            PassiveAddress::ExtendedStriped(addresses).delayed_reply().encode(),
            b"129-Entering Striped Passive Mode.\r\n |1|127.0.0.1|55875|\r\n |1|127.0.0.1|36389|\r\n\
              129 End\r\n"
        );
    }

    #[test]
    fn replies_without_an_address_are_refused() {
        assert_eq!(
            parse(Reply::new(200, "Passive delayed.")),
            Err(PassiveReplyError::Code(200))
        );
        assert_eq!(
            parse(Reply::new(227, "Entering.")),
            Err(PassiveReplyError::Address)
        );
        assert_eq!(
            parse(Reply::new(229, "EPSV ALL Successful.")),
            Err(PassiveReplyError::Address)
        );
        assert_eq!(
            parse(Reply::new(229, "Entering (|||0|)")),
            Err(PassiveReplyError::Address)
        );
        let many = vec!["127,0,0,1,1,1"; StripeAddresses::MAX + 1];
        assert_eq!(
            parse(Reply::spaced(229, "x", many, "End")),
            Err(PassiveReplyError::TooMany)
        );
    }

    proptest! {
        #[test]
        fn addresses_survive(ip: IpAddr, port in 1u16.., other in 1u16..) {
            let address = SocketAddr::new(ip, port);
            prop_assert_eq!(parse_extended(format_extended(address).as_bytes()), Ok(address));
            prop_assert_eq!(parse_stripe(format_stripe(address).as_bytes()), Ok(address));

            let stripes = StripeAddresses::new(vec![address, SocketAddr::new(ip, other)]).unwrap();
            let mut replies = vec![
                PassiveAddress::Port(port),
                PassiveAddress::Extended(address),
                PassiveAddress::ExtendedStriped(stripes.clone()),
            ];
            if let SocketAddr::V4(address) = address {
                replies.push(PassiveAddress::HostPort(address));
                replies.push(PassiveAddress::Striped(stripes));
            }
            for passive in replies {
                prop_assert_eq!(parse(passive.reply()), Ok(passive.clone()));
                prop_assert_eq!(parse(passive.delayed_reply()), Ok(passive));
            }
        }

        #[test]
        fn no_text_makes_the_parser_panic(text: Vec<u8>, code in prop::sample::select(vec![227u16, 229])) {
            let _ = parse(Reply::new(code, &text));
            let _ = parse_extended(&text);
        }
    }
}
