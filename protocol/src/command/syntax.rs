//! The syntax of arguments that only one command has.

use std::net::{SocketAddr, SocketAddrV4};

use nom::Parser;
use nom::bytes::complete::tag_no_case;
use nom::combinator::{cut, opt};
use nom::sequence::preceded;

use super::arguments::{
    DataChannelAuthentication, DataChannelContext, EpsvRequest, MarkerEvent, Password,
    ProtectionLevel, Representation, Restart, TransferMode,
};
use super::commands::Command;
use super::error::{ArgumentFault, CommandError};
use super::grammar::{Argument, algorithm, base64, last_path, number, spaces, text, valid, word};
use crate::address::{self, Family, StripeAddresses};
use crate::excerpt::Excerpt;
use crate::number::decimal;
use crate::ranges::RangeSet;

pub(super) fn password(argument: Argument<'_>) -> Result<Password, CommandError> {
    Password::new(argument.bytes.unwrap_or_default()).ok_or_else(|| {
        argument.fault(ArgumentFault::Invalid {
            what: "the password",
            given: Excerpt::secret(),
            expected: "without NUL and line ends",
        })
    })
}

/// `P offset length path`. Other modules (`foo="a=1" path`) are not supported.
pub(super) fn retrieve_part(argument: Argument<'_>) -> Result<Command, CommandError> {
    let part = (number("the offset"), number("the length"), last_path);
    let (offset, length, path) = module(argument, b"P", "P for a part of a file")?.read(part)?;
    Ok(Command::Eret {
        offset,
        length,
        path,
    })
}

/// `A offset path`.
pub(super) fn store_part(argument: Argument<'_>) -> Result<Command, CommandError> {
    let part = (number("the offset"), last_path);
    let (offset, path) = module(argument, b"A", "A for an adjusted offset")?.read(part)?;
    Ok(Command::Esto { offset, path })
}

fn module<'a>(
    argument: Argument<'a>,
    known: &[u8],
    expected: &'static str,
) -> Result<Argument<'a>, CommandError> {
    let (module, rest) = argument.split_word("the module")?;
    if module.eq_ignore_ascii_case(known) {
        return Ok(rest);
    }
    Err(argument.fault(ArgumentFault::Unsupported {
        what: "module",
        given: Excerpt::new(module),
        expected,
    }))
}

pub(super) fn checksum(argument: Argument<'_>) -> Result<Command, CommandError> {
    let length = valid("the length", "a decimal number, or -1", |word| match word {
        b"-1" => Some(None),
        digits => decimal(digits).map(Some),
    });
    let (algorithm, offset, length, path) =
        argument.read((algorithm(), number("the offset"), length, last_path))?;
    Ok(Command::Cksm {
        algorithm,
        offset,
        length,
        path,
    })
}

pub(super) fn protection_level(argument: Argument<'_>) -> Result<ProtectionLevel, CommandError> {
    let level = argument.read(word("the level"))?;
    match level.to_ascii_uppercase().as_slice() {
        b"C" => Ok(ProtectionLevel::Clear),
        b"S" => Ok(ProtectionLevel::Safe),
        b"P" => Ok(ProtectionLevel::Private),
        _ => Err(argument.fault(ArgumentFault::ProtectionLevel(Excerpt::new(level)))),
    }
}

pub(super) fn data_channel_authentication(
    argument: Argument<'_>,
) -> Result<DataChannelAuthentication, CommandError> {
    let (mode, rest) = argument.split_word("the mode")?;
    match mode.to_ascii_uppercase().as_slice() {
        b"N" => rest.none().map(|()| DataChannelAuthentication::None),
        b"A" => rest.none().map(|()| DataChannelAuthentication::User),
        b"S" => rest
            .read(text("the subject"))
            .map(DataChannelAuthentication::Subject),
        _ => Err(argument.fault(ArgumentFault::Invalid {
            what: "the mode",
            given: Excerpt::new(mode),
            expected: "N, A or S",
        })),
    }
}

pub(super) fn data_channel_context(
    argument: Argument<'_>,
) -> Result<DataChannelContext, CommandError> {
    let (kind, rest) = argument.split_word("the type")?;
    match kind.to_ascii_uppercase().as_slice() {
        b"D" => rest.none().map(|()| DataChannelContext::Default),
        b"P" => rest.read(base64()).map(DataChannelContext::Credential),
        _ => Err(argument.fault(ArgumentFault::Unsupported {
            what: "type",
            given: Excerpt::new(kind),
            expected: "D or P",
        })),
    }
}

/// RFC 959 3.1.1. `L 8` is the same as `I` (RFC 959 3.1.1.4). EBCDIC and forms other than non-print are not supported.
pub(super) fn representation(argument: Argument<'_>) -> Result<Representation, CommandError> {
    let (kind, form) = argument.read((word("the type"), opt(word("the form"))))?;
    let form = form.map(<[u8]>::to_ascii_uppercase);
    match (kind.to_ascii_uppercase().as_slice(), form.as_deref()) {
        (b"A", None | Some(b"N")) => Ok(Representation::Ascii),
        (b"I", None) | (b"L", Some(b"8")) => Ok(Representation::Image),
        (b"A" | b"E" | b"L", _) => Err(argument.unsupported("type", "A or I")),
        _ => Err(argument.invalid("the type", "A or I")),
    }
}

pub(super) fn transfer_mode(argument: Argument<'_>) -> Result<TransferMode, CommandError> {
    match argument
        .read(word("the mode"))?
        .to_ascii_uppercase()
        .as_slice()
    {
        b"S" => Ok(TransferMode::Stream),
        b"E" => Ok(TransferMode::Extended),
        b"B" | b"C" => Err(argument.unsupported("mode", "S or E")),
        _ => Err(argument.invalid("the mode", "S or E")),
    }
}

pub(super) fn structure(argument: Argument<'_>) -> Result<(), CommandError> {
    match argument
        .read(word("the structure"))?
        .to_ascii_uppercase()
        .as_slice()
    {
        b"F" => Ok(()),
        b"R" | b"P" => Err(argument.unsupported("structure", "F")),
        _ => Err(argument.invalid("the structure", "F")),
    }
}

pub(super) fn marker_event(argument: Argument<'_>) -> Result<Command, CommandError> {
    let (event, rest) = argument.split_word("the event")?;
    let event = match event.to_ascii_uppercase().as_slice() {
        b"PERF" => MarkerEvent::Performance,
        b"RESTART" => MarkerEvent::Restart,
        _ => {
            return Err(argument.fault(ArgumentFault::Unsupported {
                what: "event",
                given: Excerpt::new(event),
                expected: "PERF or RESTART",
            }));
        }
    };
    let seconds = rest.read(number("the number of seconds"))?;
    Ok(Command::Trev { event, seconds })
}

pub(super) fn epsv_request(argument: Argument<'_>) -> Result<EpsvRequest, CommandError> {
    let request = argument.read_optional(|input| {
        let (rest, word) = word("the protocol").parse(input)?;
        if word.eq_ignore_ascii_case(b"ALL") {
            return Ok((rest, EpsvRequest::All));
        }
        family.map(EpsvRequest::Family).parse(input)
    })?;
    Ok(request.unwrap_or(EpsvRequest::Same))
}

pub(super) fn family(input: &[u8]) -> nom::IResult<&[u8], Family, ArgumentFault> {
    let (rest, word) = word("the protocol").parse(input)?;
    match Family::parse(word) {
        Some(family) => Ok((rest, family)),
        None => Err(nom::Err::Error(ArgumentFault::Family(Excerpt::new(word)))),
    }
}

pub(super) fn port(argument: Argument<'_>) -> Result<SocketAddrV4, CommandError> {
    let word = argument.read(word("the address"))?;
    let address = address::parse_host_port(word);
    address.map_err(|_| argument.invalid("the address", "six numbers with a port that is not 0"))
}

pub(super) fn extended_port(argument: Argument<'_>) -> Result<SocketAddr, CommandError> {
    let word = argument.read(word("the address"))?;
    address::parse_extended(word).map_err(|error| argument.address_fault(word, error))
}

pub(super) fn striped_port(argument: Argument<'_>) -> Result<StripeAddresses, CommandError> {
    let text = argument.bytes.unwrap_or_default();
    let words = text
        .split(|&byte| byte == b' ')
        .filter(|word| !word.is_empty());
    let mut addresses = Vec::new();
    for word in words.take(StripeAddresses::MAX + 1) {
        let address = address::parse_stripe(word);
        addresses.push(address.map_err(|error| argument.address_fault(word, error))?);
    }
    if addresses.is_empty() {
        return Err(argument.fault(ArgumentFault::Missing {
            what: "the address",
        }));
    }
    StripeAddresses::new(addresses)
        .ok_or_else(|| argument.invalid("the list of addresses", "at most 64 addresses long"))
}

/// `bytes`, or `bytes R record` (RFC 959 4.1.3).
pub(super) fn allocation(argument: Argument<'_>) -> Result<Command, CommandError> {
    let record = preceded((spaces, tag_no_case("R ")), cut(number("the record size")));
    let (bytes, record_bytes) = argument.read((number("the size"), opt(record)))?;
    Ok(Command::Allo {
        bytes,
        record_bytes,
    })
}

/// An offset to start at (RFC 3659 5), or the ranges that were received (GFD.20, restart).
pub(super) fn restart(argument: Argument<'_>) -> Result<Restart, CommandError> {
    let text = argument.bytes.unwrap_or_default().trim_ascii();
    if text.is_empty() {
        return Err(argument.fault(ArgumentFault::Missing {
            what: "the restart marker",
        }));
    }
    let ranges = RangeSet::parse_rest(text)
        .map_err(|error| argument.fault(ArgumentFault::Restart(error)))?;
    Ok(if text.contains(&b'-') {
        Restart::Ranges(ranges)
    } else {
        Restart::At(ranges.end())
    })
}
