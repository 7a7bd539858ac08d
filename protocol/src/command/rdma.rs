//! The commands of RFTP, another protocol for transfers over RDMA.
//!
//! No document defines them. The syntax here is that of the server rftpd 0.15 and its client. `RPSV`, which rftpd lists but does not
//! implement, is defined as the counterpart of `RADR`:
//!
//! | command | like | meaning |
//! | --- | --- | --- |
//! | `RADR h1,h2,h3,h4,p1,p2 [buffer]` | `PORT` | the address where the client listens for RDMA; also in the form of `EPRT` |
//! | `RPSV [buffer]` | `PASV` | the server listens for RDMA, and replies with its address |
//! | `RSTR path` | `STOR` | stores a file by RDMA |
//! | `RRTR path` | `RETR` | retrieves a file by RDMA |
//!
//! The buffer size is 32 bits in network byte order, written as the decimal number that these bytes are on a little-endian machine:
//! 1 MiB is `4096`. The protocol on the connection is that of the driver `rdma`, not that of rftpd.

use std::net::SocketAddr;

use nom::Parser;
use nom::combinator::opt;

use super::error::{ArgumentFault, CommandError};
use super::grammar::{Argument, number, path, word};
use crate::address::{format_stripe, parse_stripe};
use crate::path::PathArgument;

/// A command of RFTP.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RdmaCommand {
    /// `RADR`.
    Address {
        /// The address to connect to.
        peer: SocketAddr,
        /// The buffer size that the client requests.
        buffer: Option<BufferBytes>,
    },
    /// `RPSV`.
    Passive {
        /// The buffer size that the client requests.
        buffer: Option<BufferBytes>,
    },
    /// `RSTR`.
    Store(PathArgument),
    /// `RRTR`.
    Retrieve(PathArgument),
}

/// The size of a buffer, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BufferBytes(pub u32);

impl RdmaCommand {
    pub(super) fn parse(argument: Argument<'_>) -> Option<Result<Self, CommandError>> {
        Some(match argument.verb {
            "RADR" => address(argument),
            "RPSV" => argument
                .read_optional(buffer)
                .map(|buffer| Self::Passive { buffer }),
            "RSTR" => argument.read(path).map(Self::Store),
            "RRTR" => argument.read(path).map(Self::Retrieve),
            _ => return None,
        })
    }

    /// The command's name.
    pub fn verb(&self) -> &'static str {
        match self {
            Self::Address { .. } => "RADR",
            Self::Passive { .. } => "RPSV",
            Self::Store(_) => "RSTR",
            Self::Retrieve(_) => "RRTR",
        }
    }

    pub(super) fn argument(&self) -> Option<Vec<u8>> {
        let number = |BufferBytes(bytes): BufferBytes| bytes.swap_bytes();
        Some(match self {
            Self::Address { peer, buffer: None } => format_stripe(*peer).into(),
            Self::Address {
                peer,
                buffer: Some(buffer),
            } => format!("{} {}", format_stripe(*peer), number(*buffer)).into(),
            Self::Passive { buffer } => number((*buffer)?).to_string().into(),
            Self::Store(path) | Self::Retrieve(path) => path.as_bytes().to_vec(),
        })
    }
}

fn address(argument: Argument<'_>) -> Result<RdmaCommand, CommandError> {
    let (text, buffer) = argument.read((word("the address"), opt(buffer)))?;
    let peer = parse_stripe(text).map_err(|error| argument.address_fault(text, error))?;
    Ok(RdmaCommand::Address { peer, buffer })
}

fn buffer(input: &[u8]) -> nom::IResult<&[u8], BufferBytes, ArgumentFault> {
    number("the size of a buffer")
        .map(|number: u32| BufferBytes(number.swap_bytes()))
        .parse(input)
}

#[cfg(test)]
mod tests {
    use super::super::Command;
    use super::*;

    fn parse(line: &str) -> Result<RdmaCommand, CommandError> {
        match Command::parse(line.as_bytes())? {
            Command::Rdma(command) => Ok(command),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn lines_of_the_rftp_client_are_read() {
        // Its default: buffers of 1 MiB.
        assert_eq!(
            parse("RADR 127,0,0,1,202,79 4096"),
            Ok(RdmaCommand::Address {
                peer: "127.0.0.1:51791".parse().unwrap(),
                buffer: Some(BufferBytes(1 << 20)),
            })
        );
        assert_eq!(
            parse("RSTR a file"),
            Ok(RdmaCommand::Store(PathArgument::new("a file").unwrap()))
        );
    }

    #[test]
    fn addresses_have_both_forms_and_buffers_are_optional() {
        assert_eq!(
            parse("radr |2|::1|5000|"),
            Ok(RdmaCommand::Address {
                peer: "[::1]:5000".parse().unwrap(),
                buffer: None,
            })
        );
        assert_eq!(parse("RPSV"), Ok(RdmaCommand::Passive { buffer: None }));
        for wrong in [
            "RADR",
            "RADR 1,2,3,4,0,0",
            "RADR 127,0,0,1,4,5 x",
            "RADR 127,0,0,1,4,5 1 2",
            "RADR 127,0,0,1,4,5 4294967296",
            "RADR |3|x|5|",
            "RPSV -1",
            "RRTR",
        ] {
            assert!(parse(wrong).is_err(), "{wrong}");
        }
    }
}
