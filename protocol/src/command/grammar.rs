//! The grammar of arguments: small parsers that [`super::parse`] combines.
//!
//! Words are separated by spaces. A path is the rest of the line after one space, including further spaces and quotes, so it is
//! always the last argument.

use std::str::FromStr;

use jiff::Timestamp;
use nom::branch::alt;
use nom::bytes::complete::{tag, take_while, take_while1};
use nom::character::complete::char;
use nom::combinator::{all_consuming, eof, opt};
use nom::error::{ErrorKind, ParseError};
use nom::multi::{many0_count, separated_list0};
use nom::sequence::{preceded, terminated};
use nom::{IResult, Parser};

use super::arguments::{AlgorithmName, Base64, ListPath, Text};
use super::error::{ArgumentFault, CommandError};
use crate::address::AddressError;
use crate::excerpt::Excerpt;
use crate::number::decimal;
use crate::path::PathArgument;
use crate::time::{TimeError, TimeValue};

/// The rest of a line after its verb.
#[derive(Debug, Clone, Copy)]
pub(super) struct Argument<'a> {
    pub(super) verb: &'static str,
    pub(super) syntax: &'static str,
    /// `None` if no space follows the verb.
    pub(super) bytes: Option<&'a [u8]>,
}

impl<'a> Argument<'a> {
    /// Reads the whole argument. Spaces may follow, unless they belong to it.
    pub(super) fn read<T>(
        self,
        parser: impl Parser<&'a [u8], Output = T, Error = ArgumentFault>,
    ) -> Result<T, CommandError> {
        let input = self.bytes.unwrap_or_default();
        let (_, value) = all_consuming(terminated(parser, spaces))
            .parse(input)
            .map_err(|error| self.nom_fault(error))?;
        Ok(value)
    }

    /// Reads the argument if there is one.
    pub(super) fn read_optional<T>(
        self,
        parser: impl Parser<&'a [u8], Output = T, Error = ArgumentFault>,
    ) -> Result<Option<T>, CommandError> {
        match self.bytes {
            None | Some([]) => Ok(None),
            Some(_) => self.read(parser).map(Some),
        }
    }

    /// Splits off the first word; the rest is the remaining argument.
    pub(super) fn split_word(self, what: &'static str) -> Result<(&'a [u8], Self), CommandError> {
        let input = self.bytes.unwrap_or_default();
        let split = (word(what), opt(char(' '))).parse(input);
        let (rest, (word, space)) = split.map_err(|error| self.nom_fault(error))?;
        let bytes = space.map(|_| rest);
        Ok((word, Self { bytes, ..self }))
    }

    /// Checks that there is no argument.
    pub(super) fn none(self) -> Result<(), CommandError> {
        self.read(spaces)
    }

    /// The error for an argument that is invalid as a whole.
    pub(super) fn invalid(self, what: &'static str, expected: &'static str) -> CommandError {
        self.fault(ArgumentFault::Invalid {
            what,
            given: Excerpt::new(self.bytes.unwrap_or_default()),
            expected,
        })
    }

    /// The error for an argument that is not supported.
    pub(super) fn unsupported(self, what: &'static str, expected: &'static str) -> CommandError {
        self.fault(ArgumentFault::Unsupported {
            what,
            given: Excerpt::new(self.bytes.unwrap_or_default()),
            expected,
        })
    }

    /// The error for an address in the argument.
    pub(super) fn address_fault(self, address: &[u8], error: AddressError) -> CommandError {
        let given = Excerpt::new(address);
        self.fault(match error {
            AddressError::Family => ArgumentFault::Family(given),
            AddressError::Syntax => ArgumentFault::Invalid {
                what: "the address",
                given,
                expected: "an IP address with a port that is not 0",
            },
        })
    }

    fn nom_fault(self, error: nom::Err<ArgumentFault>) -> CommandError {
        self.fault(match error {
            nom::Err::Error(fault) | nom::Err::Failure(fault) => fault,
            nom::Err::Incomplete(_) => ArgumentFault::Unexpected,
        })
    }

    pub(super) fn fault(self, fault: ArgumentFault) -> CommandError {
        CommandError::Argument {
            verb: self.verb,
            fault,
            syntax: self.syntax,
        }
    }
}

impl<'a> ParseError<&'a [u8]> for ArgumentFault {
    /// Errors of nom's own parsers: trailing input, or a missing space.
    fn from_error_kind(_: &'a [u8], _: ErrorKind) -> Self {
        Self::Unexpected
    }

    fn append(_: &'a [u8], _: ErrorKind, other: Self) -> Self {
        other
    }
}

const THE_PATH: &str = "the path";
const PATH_RULES: &str = "at most 4095 bytes long and without NUL and line ends";

type Read<'a, T> = IResult<&'a [u8], T, ArgumentFault>;

pub(super) fn spaces(input: &[u8]) -> Read<'_, ()> {
    take_while(|byte| byte == b' ').map(drop).parse(input)
}

/// A word and the spaces before it.
pub(super) fn word<'a>(
    what: &'static str,
) -> impl Parser<&'a [u8], Output = &'a [u8], Error = ArgumentFault> {
    move |input| {
        let (input, ()) = spaces(input)?;
        match take_while1::<_, _, ArgumentFault>(|byte| byte != b' ').parse(input) {
            Ok(read) => Ok(read),
            Err(_) => Err(nom::Err::Error(ArgumentFault::Missing { what })),
        }
    }
}

/// A word that `value` accepts.
pub(super) fn valid<'a, T>(
    what: &'static str,
    expected: &'static str,
    value: impl Fn(&'a [u8]) -> Option<T>,
) -> impl Parser<&'a [u8], Output = T, Error = ArgumentFault> {
    let mut word = word(what);
    move |input| {
        let (input, word) = word.parse(input)?;
        match value(word) {
            Some(value) => Ok((input, value)),
            None => Err(invalid(what, word, expected)),
        }
    }
}

/// A decimal number of the type's range, digits only.
pub(super) fn number<'a, T: FromStr>(
    what: &'static str,
) -> impl Parser<&'a [u8], Output = T, Error = ArgumentFault> {
    valid(what, "a decimal number", decimal)
}

/// A number in an option.
pub(super) fn decimal_value<T: FromStr>(
    what: &'static str,
    value: &[u8],
) -> Result<T, ArgumentFault> {
    decimal(value).ok_or_else(|| ArgumentFault::Invalid {
        what,
        given: Excerpt::new(value),
        expected: "a decimal number",
    })
}

/// An option. Its value is empty if there is no `=`.
#[derive(Debug, Clone, Copy)]
pub(super) struct Pair<'a> {
    pub(super) key: &'a [u8],
    pub(super) value: &'a [u8],
}

/// `key=value;key=value;`. The last semicolon may be missing, though globus-gridftp-server 13.24 requires it for `RETR`.
pub(super) fn pairs(input: &[u8]) -> Read<'_, Vec<Pair<'_>>> {
    let key = take_while1(|byte: u8| !b"=; ".contains(&byte));
    let value = take_while(|byte: u8| !b"; ".contains(&byte));
    let pair = (key, opt(preceded(char('='), value)));
    let pair = pair.map(|(key, value)| Pair {
        key,
        value: value.unwrap_or_default(),
    });
    let list = terminated(separated_list0(char(';'), pair), opt(char(';')));
    preceded(spaces, list).parse(input)
}

pub(super) fn algorithm<'a>() -> impl Parser<&'a [u8], Output = AlgorithmName, Error = ArgumentFault>
{
    valid(
        "the algorithm",
        "the name of a checksum algorithm",
        |word| AlgorithmName::new(std::str::from_utf8(word).ok()?),
    )
}

/// A word that is a time.
pub(super) fn timestamp(input: &[u8]) -> Read<'_, Timestamp> {
    let (input, word) = word("the time").parse(input)?;
    match whole_seconds(word) {
        Ok(time) => Ok((input, time)),
        Err(error) => Err(nom::Err::Error(ArgumentFault::Time(error))),
    }
}

/// Reads a time, without its fraction, as globus-gridftp-server 13.24 does.
pub(super) fn whole_seconds(text: &[u8]) -> Result<Timestamp, TimeError> {
    let whole = text.split(|&byte| byte == b'.').next().unwrap_or_default();
    TimeValue::parse(text)?;
    TimeValue::parse(whole).map(|TimeValue(time)| time)
}

pub(super) fn base64<'a>() -> impl Parser<&'a [u8], Output = Base64, Error = ArgumentFault> {
    move |input| {
        let (input, word) = word("the base64 text").parse(input)?;
        match std::str::from_utf8(word).ok().and_then(Base64::new) {
            Some(base64) => Ok((input, base64)),
            None => Err(nom::Err::Error(ArgumentFault::Invalid {
                what: "the argument",
                given: Excerpt::secret(),
                expected: "base64",
            })),
        }
    }
}

/// A path that follows other arguments, after exactly one space.
pub(super) fn last_path(input: &[u8]) -> Read<'_, PathArgument> {
    preceded(opt(char(' ')), path).parse(input)
}

/// The rest of the line, as a path.
pub(super) fn path(input: &[u8]) -> Read<'_, PathArgument> {
    match PathArgument::new(input) {
        Some(path) => Ok((&[], path)),
        None if input.is_empty() => Err(nom::Err::Error(ArgumentFault::Missing { what: THE_PATH })),
        None => Err(invalid(THE_PATH, input, PATH_RULES)),
    }
}

/// The rest of the line, as text.
pub(super) fn text<'a>(
    what: &'static str,
) -> impl Parser<&'a [u8], Output = Text, Error = ArgumentFault> {
    move |input: &'a [u8]| match std::str::from_utf8(input).ok().and_then(Text::new) {
        Some(text) => Ok((&input[input.len()..], text)),
        None if input.is_empty() => Err(nom::Err::Error(ArgumentFault::Missing { what })),
        None => Err(invalid(what, input, "UTF-8 without NUL and line ends")),
    }
}

pub(super) fn invalid(
    what: &'static str,
    given: &[u8],
    expected: &'static str,
) -> nom::Err<ArgumentFault> {
    nom::Err::Error(ArgumentFault::Invalid {
        what,
        given: Excerpt::new(given),
        expected,
    })
}

/// The path of a listing command after flags of ls(1), if there is one.
pub(super) fn list_path(input: &[u8]) -> Read<'_, Option<ListPath>> {
    let flag = (
        char('-'),
        take_while1(|byte: u8| byte.is_ascii_alphanumeric()),
    );
    let (path_bytes, _) = many0_count(terminated(flag, alt((tag(" "), eof)))).parse(input)?;
    if path_bytes.is_empty() {
        return Ok((path_bytes, None));
    }
    let (rest, path) = path(path_bytes)?;
    match ListPath::new(path) {
        Some(path) => Ok((rest, Some(path))),
        None => Err(invalid(THE_PATH, path_bytes, PATH_RULES)),
    }
}
