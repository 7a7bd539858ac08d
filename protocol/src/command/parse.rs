//! From a line to a [`Command`].

use std::net::{SocketAddr, SocketAddrV4};

use nom::Parser;
use nom::bytes::complete::tag_no_case;
use nom::combinator::{cut, opt};
use nom::sequence::preceded;

use super::grammar::{
    Argument, algorithm, base64, last_path, list_path, number, path, spaces, text, timestamp,
    valid, word,
};
use super::{
    ArgumentFault, Checksum, Command, CommandError, DataChannelAuthentication, DataChannelContext,
    EpsvRequest, MarkerEvent, OptsCommand, Password, ProtectionLevel, RdmaCommand, Representation,
    Restart, Shown, SiteCommand, TransferMode,
};
use crate::address::{self, Family, StripeAddresses};
use crate::help;
use crate::number::decimal;
use crate::ranges::RangeSet;

/// Commands of standards and of other servers that are answered by name.
const UNSUPPORTED: &[&str] = &[
    "ABUF", "CLNT", "GET", "HOST", "LPRT", "LPSV", "MFCT", "MFF", "PUT", "SMNT",
];

impl Command {
    /// Reads a line, without its CRLF.
    ///
    /// The verb may be in any case. A path is all that follows the space after the fixed arguments,
    /// spaces and quotes included (RFC 3659 2.2).
    ///
    /// # Errors
    ///
    /// When the line is no command, with the reply that says so.
    pub fn parse(line: &[u8]) -> Result<Self, CommandError> {
        if line.is_empty() {
            return Err(CommandError::Empty);
        }
        let (verb, bytes) = match line.iter().position(|&byte| byte == b' ') {
            Some(space) => (&line[..space], Some(&line[space + 1..])),
            None => (line, None),
        };
        let name = verb.to_ascii_uppercase();
        let name = std::str::from_utf8(&name).unwrap_or_default();
        if let Some(name) = UNSUPPORTED.iter().find(|&&known| known == name) {
            return Err(CommandError::Unsupported(name));
        }
        let (verb, syntax) =
            help::entry(modern(name)).ok_or_else(|| CommandError::unknown(verb))?;
        let argument = Argument {
            verb,
            syntax,
            bytes,
        };
        Self::parse_simple(argument)
            .or_else(|| Self::parse_file_command(argument))
            .or_else(|| Self::parse_security(argument))
            .or_else(|| Some(RdmaCommand::parse(argument)?.map(Self::Rdma)))
            .unwrap_or_else(|| Self::parse_negotiation(argument))
    }

    /// Commands with no argument, or with a text.
    fn parse_simple(argument: Argument<'_>) -> Option<Result<Self, CommandError>> {
        let alone = |command| argument.none().map(|()| command);
        Some(match argument.verb {
            "USER" => argument.read(text("the name")).map(Self::User),
            "PASS" => password(argument).map(Self::Pass),
            "ACCT" => password(argument).map(Self::Acct),
            "REIN" => alone(Self::Rein),
            "QUIT" => alone(Self::Quit),
            "FEAT" => alone(Self::Feat),
            "HELP" => argument.read_optional(text("the command")).map(Self::Help),
            "OPTS" => OptsCommand::parse(argument).map(Self::Opts),
            "SITE" => SiteCommand::parse(argument).map(Self::Site),
            "SYST" => alone(Self::Syst),
            "NOOP" => alone(Self::Noop),
            "LANG" => argument.read_optional(text("the language")).map(Self::Lang),
            "PASV" => alone(Self::Pasv),
            "ABOR" => alone(Self::Abor),
            "PWD" => alone(Self::Pwd),
            "CDUP" => alone(Self::Cdup),
            _ => return None,
        })
    }

    /// Commands with a path.
    fn parse_file_command(argument: Argument<'_>) -> Option<Result<Self, CommandError>> {
        let listing = || argument.read_optional(list_path).map(Option::flatten);
        Some(match argument.verb {
            "RETR" => argument.read(path).map(Self::Retr),
            "STOR" => argument.read(path).map(Self::Stor),
            "STOU" => argument.read_optional(path).map(Self::Stou),
            "APPE" => argument.read(path).map(Self::Appe),
            "ERET" => retrieve_part(argument),
            "ESTO" => store_part(argument),
            "LIST" => listing().map(Self::List),
            "NLST" => listing().map(Self::Nlst),
            "MLSD" => argument.read_optional(path).map(Self::Mlsd),
            "MLSR" => argument.read_optional(path).map(Self::Mlsr),
            "MLSC" => argument.read_optional(path).map(Self::Mlsc),
            "MLST" => argument.read_optional(path).map(Self::Mlst),
            "STAT" => argument.read_optional(path).map(Self::Stat),
            "SIZE" => argument.read(path).map(Self::Size),
            "MDTM" => argument.read(path).map(Self::Mdtm),
            "MFMT" => argument
                .read((timestamp, last_path))
                .map(|(modified, path)| Self::Mfmt { modified, path }),
            "CKSM" => checksum(argument),
            "CWD" => argument.read(path).map(Self::Cwd),
            "MKD" => argument.read(path).map(Self::Mkd),
            "RMD" => argument.read(path).map(Self::Rmd),
            "DELE" => argument.read(path).map(Self::Dele),
            "RNFR" => argument.read(path).map(Self::Rnfr),
            "RNTO" => argument.read(path).map(Self::Rnto),
            _ => return None,
        })
    }

    /// Commands of RFC 2228 and what GridFTP adds to them.
    fn parse_security(argument: Argument<'_>) -> Option<Result<Self, CommandError>> {
        Some(match argument.verb {
            "AUTH" => argument.read(text("the mechanism")).map(Self::Auth),
            "ADAT" => argument.read(base64()).map(Self::Adat),
            "ENC" => argument.read(base64()).map(Self::Enc),
            "MIC" => argument.read(base64()).map(Self::Mic),
            "CONF" => argument.read(base64()).map(Self::Conf),
            "PBSZ" => argument.read(number("the size")).map(Self::Pbsz),
            "PROT" => protection_level(argument).map(Self::Prot),
            "DCAU" => data_channel_authentication(argument).map(Self::Dcau),
            "DCSC" => data_channel_context(argument).map(Self::Dcsc),
            "CCC" => argument.none().map(|()| Self::Ccc),
            _ => return None,
        })
    }

    /// Commands that settle how the next transfers go.
    fn parse_negotiation(argument: Argument<'_>) -> Result<Self, CommandError> {
        match argument.verb {
            "TYPE" => representation(argument).map(Self::Type),
            "MODE" => transfer_mode(argument).map(Self::Mode),
            "STRU" => structure(argument).map(|()| Self::Stru),
            "SBUF" => argument.read(number("the size")).map(Self::Sbuf),
            "TREV" => marker_event(argument),
            "EPSV" => epsv_request(argument).map(Self::Epsv),
            "SPAS" => argument.read_optional(family).map(Self::Spas),
            "PORT" => port(argument).map(Self::Port),
            "EPRT" => extended_port(argument).map(Self::Eprt),
            "SPOR" => striped_port(argument).map(Self::Spor),
            "ALLO" => allocation(argument),
            "REST" => restart(argument).map(Self::Rest),
            "SCKS" => argument
                .read((
                    algorithm(),
                    valid("the checksum", "hexadecimal", Checksum::parse),
                ))
                .map(|(algorithm, checksum)| Self::Scks {
                    algorithm,
                    checksum,
                }),
            verb => Err(CommandError::unknown(verb.as_bytes())),
        }
    }
}

/// The names that RFC 775 had for directory commands.
fn modern(name: &str) -> &str {
    match name {
        "XPWD" => "PWD",
        "XCWD" => "CWD",
        "XCUP" => "CDUP",
        "XMKD" => "MKD",
        "XRMD" => "RMD",
        name => name,
    }
}

fn password(argument: Argument<'_>) -> Result<Password, CommandError> {
    Password::new(argument.bytes.unwrap_or_default()).ok_or_else(|| {
        argument.fault(ArgumentFault::Invalid {
            what: "the password",
            given: Shown::secret(),
            expected: "without NUL and line ends",
        })
    })
}

/// `P offset length path`; `foo="a=1" path` asks for a module.
fn retrieve_part(argument: Argument<'_>) -> Result<Command, CommandError> {
    let part = (number("the offset"), number("the length"), last_path);
    let (offset, length, path) = module(argument, b"P", "P for a part of a file")?.read(part)?;
    Ok(Command::Eret {
        offset,
        length,
        path,
    })
}

/// `A offset path`.
fn store_part(argument: Argument<'_>) -> Result<Command, CommandError> {
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
        given: Shown::new(module),
        expected,
    }))
}

fn checksum(argument: Argument<'_>) -> Result<Command, CommandError> {
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

fn protection_level(argument: Argument<'_>) -> Result<ProtectionLevel, CommandError> {
    let level = argument.read(word("the level"))?;
    match level.to_ascii_uppercase().as_slice() {
        b"C" => Ok(ProtectionLevel::Clear),
        b"S" => Ok(ProtectionLevel::Safe),
        b"P" => Ok(ProtectionLevel::Private),
        _ => Err(argument.fault(ArgumentFault::ProtectionLevel(Shown::new(level)))),
    }
}

fn data_channel_authentication(
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
            given: Shown::new(mode),
            expected: "N, A or S",
        })),
    }
}

fn data_channel_context(argument: Argument<'_>) -> Result<DataChannelContext, CommandError> {
    let (kind, rest) = argument.split_word("the type")?;
    match kind.to_ascii_uppercase().as_slice() {
        b"D" => rest.none().map(|()| DataChannelContext::Default),
        b"P" => rest.read(base64()).map(DataChannelContext::Credential),
        _ => Err(argument.fault(ArgumentFault::Unsupported {
            what: "type",
            given: Shown::new(kind),
            expected: "D or P",
        })),
    }
}

/// RFC 959 3.1.1. `L 8` is the same as `I` (there, 3.1.1.4); forms other than non-print and EBCDIC are
/// known and not had.
fn representation(argument: Argument<'_>) -> Result<Representation, CommandError> {
    let (kind, form) = argument.read((word("the type"), opt(word("the form"))))?;
    let form = form.map(<[u8]>::to_ascii_uppercase);
    match (kind.to_ascii_uppercase().as_slice(), form.as_deref()) {
        (b"A", None | Some(b"N")) => Ok(Representation::Ascii),
        (b"I", None) | (b"L", Some(b"8")) => Ok(Representation::Image),
        (b"A" | b"E" | b"L", _) => Err(argument.unsupported("type", "A or I")),
        _ => Err(argument.invalid("the type", "A or I")),
    }
}

fn transfer_mode(argument: Argument<'_>) -> Result<TransferMode, CommandError> {
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

fn structure(argument: Argument<'_>) -> Result<(), CommandError> {
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

fn marker_event(argument: Argument<'_>) -> Result<Command, CommandError> {
    let (event, rest) = argument.split_word("the event")?;
    let event = match event.to_ascii_uppercase().as_slice() {
        b"PERF" => MarkerEvent::Performance,
        b"RESTART" => MarkerEvent::Restart,
        _ => {
            return Err(argument.fault(ArgumentFault::Unsupported {
                what: "event",
                given: Shown::new(event),
                expected: "PERF or RESTART",
            }));
        }
    };
    let seconds = rest.read(number("the number of seconds"))?;
    Ok(Command::Trev { event, seconds })
}

fn epsv_request(argument: Argument<'_>) -> Result<EpsvRequest, CommandError> {
    let request = argument.read_optional(|input| {
        let (rest, word) = word("the protocol").parse(input)?;
        if word.eq_ignore_ascii_case(b"ALL") {
            return Ok((rest, EpsvRequest::All));
        }
        family.map(EpsvRequest::Family).parse(input)
    })?;
    Ok(request.unwrap_or(EpsvRequest::Same))
}

fn family(input: &[u8]) -> nom::IResult<&[u8], Family, ArgumentFault> {
    let (rest, word) = word("the protocol").parse(input)?;
    match Family::parse(word) {
        Some(family) => Ok((rest, family)),
        None => Err(nom::Err::Error(ArgumentFault::Family(Shown::new(word)))),
    }
}

fn port(argument: Argument<'_>) -> Result<SocketAddrV4, CommandError> {
    let word = argument.read(word("the address"))?;
    let address = address::parse_host_port(word);
    address.map_err(|_| argument.invalid("the address", "six numbers with a port that is not 0"))
}

fn extended_port(argument: Argument<'_>) -> Result<SocketAddr, CommandError> {
    let word = argument.read(word("the address"))?;
    address::parse_extended(word).map_err(|error| argument.address_fault(word, error))
}

fn striped_port(argument: Argument<'_>) -> Result<StripeAddresses, CommandError> {
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
fn allocation(argument: Argument<'_>) -> Result<Command, CommandError> {
    let record = preceded((spaces, tag_no_case("R ")), cut(number("the record size")));
    let (bytes, record_bytes) = argument.read((number("the size"), opt(record)))?;
    Ok(Command::Allo {
        bytes,
        record_bytes,
    })
}

/// A byte to begin at (RFC 3659 5), or the ranges that arrived (GFD.20, restart).
fn restart(argument: Argument<'_>) -> Result<Restart, CommandError> {
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
