//! The commands of RFTP: a second way to ask for data by RDMA.
//!
//! No document defines them. What follows is what the server rftpd 0.15 takes and its client sends, and, where its table
//! of commands names one that nothing carries out (`RPSV`), the same thing the other way round:
//!
//! | command | like | meaning |
//! | --- | --- | --- |
//! | `RADR h1,h2,h3,h4,p1,p2 [buffer]` | `PORT` | where the client listens for RDMA; an address as in `EPRT` will do |
//! | `RPSV [buffer]` | `PASV` | the server is to listen for RDMA, and says where |
//! | `RSTR path` | `STOR` | stores a file by RDMA |
//! | `RRTR path` | `RETR` | retrieves a file by RDMA |
//!
//! The size of a buffer is 32 bits in network order, written as the decimal number that a machine with little-endian
//! numbers takes them for: 1 MiB is `4096`. Of what goes over the connection rftpd has another idea; here it is
//! what the driver `rdma` speaks.

use std::net::SocketAddr;

use nom::Parser;
use nom::combinator::opt;

use super::error::{ArgumentFault, CommandError};
use super::grammar::{Argument, number, path, word};
use crate::address::{format_stripe, parse_stripe};
use crate::path::PathArgument;

/// One of these commands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RdmaCommand {
    /// `RADR`.
    Address {
        /// Where to connect to.
        peer: SocketAddr,
        /// What the client would like buffers to be.
        buffer: Option<BufferBytes>,
    },
    /// `RPSV`.
    Passive {
        /// What the client would like buffers to be.
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
    fn what_the_client_of_rftp_sends_is_understood() {
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
    fn addresses_are_of_either_kind_and_buffers_need_not_be_named() {
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
