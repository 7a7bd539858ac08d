//! The addresses in replies: 227, 229, and their delayed forms 127 and 129.

use std::net::{IpAddr, SocketAddr, SocketAddrV4};

use super::{
    StripeAddresses, fields, format_extended, format_host_port, format_stripe, host_port,
    parse_stripe, socket_address,
};
use crate::reply::Reply;

/// A server's answer to `PASV`, `EPSV` or `SPAS`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PassiveAddress {
    /// To `PASV`.
    HostPort(SocketAddrV4),
    /// To `EPSV`: the port, at the host of the control channel.
    Port(u16),
    /// To `EPSV`, with an address, if that is another host's. RFC 2428 has no such reply; globus-gridftp-server 13.24 can be
    /// configured to send it, and its clients support it.
    Extended(SocketAddr),
    /// To `SPAS` without a protocol: six numbers each, except for IPv6 addresses.
    Striped(StripeAddresses),
    /// To `SPAS` with a protocol.
    ExtendedStriped(StripeAddresses),
}

/// Why a reply has no usable address. The server is at fault.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum PassiveReplyError {
    /// It is not a 227, 229, 127 or 129.
    #[error("the reply has code {0}, which carries no address")]
    Code(u16),
    /// It has no address, or an invalid one.
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

    /// Reads a reply to `PASV`, `EPSV` or `SPAS`, including delayed ones.
    ///
    /// # Errors
    ///
    /// When it has no valid address.
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

    /// The addresses to connect to. `control` is the peer of the control channel, for replies with a port only.
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

/// Clients count the lines of this reply, and take it for a reply to `EPSV` if it has a parenthesis, so it must not have
/// further text (observed from globus-url-copy 10.12).
fn striped_reply(
    code: u16,
    addresses: &StripeAddresses,
    format: impl Fn(SocketAddr) -> String,
) -> Reply {
    let lines = addresses.as_slice().iter().map(|&address| format(address));
    Reply::spaced(code, "Entering Striped Passive Mode.", lines, "End")
}

/// RFC 1123 4.1.2.6: the parentheses may be missing, so the address starts at the first digit.
fn parse_227(text: &[u8]) -> Result<PassiveAddress, PassiveReplyError> {
    let start = text.iter().position(u8::is_ascii_digit);
    match host_port(&text[start.unwrap_or(text.len())..]) {
        Ok((_, address)) => Ok(PassiveAddress::HostPort(address)),
        Err(_) => Err(PassiveReplyError::Address),
    }
}

/// Reads the text after the parenthesis.
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

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn parse(reply: Reply) -> Result<PassiveAddress, PassiveReplyError> {
        PassiveAddress::parse(&reply)
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
        // Other servers leave out the parentheses, or have other text.
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
        fn replies_survive(ip: IpAddr, port in 1u16.., other in 1u16..) {
            let address = SocketAddr::new(ip, port);
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
        fn no_text_makes_the_parser_panic(
            text: Vec<u8>,
            code in prop::sample::select(vec![227u16, 229]),
        ) {
            let _ = parse(Reply::new(code, &text));
        }
    }
}
