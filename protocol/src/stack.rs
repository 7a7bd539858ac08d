//! Driver-stack strings: `tcp`, `tcp:port=50000-51000;cc=bbr,gsi`.
//!
//! Drivers are listed from the bottom: first the transport, then the transforms. A driver's options follow a colon, separated
//! by `;`, as in Globus XIO. This module does not interpret drivers and options.

use std::fmt;
use std::str::FromStr;

use nom::branch::alt;
use nom::bytes::complete::{tag, take_while, take_while1};
use nom::character::complete::char;
use nom::combinator::{all_consuming, map, opt, value};
use nom::multi::separated_list1;
use nom::sequence::{preceded, separated_pair};
use nom::{IResult, Parser};

use crate::excerpt::Excerpt;

/// A parsed stack string, from the bottom up.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct StackSpec {
    /// The drivers, at least one.
    pub drivers: Vec<DriverSpec>,
}

/// One driver of a stack.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct DriverSpec {
    /// The driver's name, in lower case.
    pub name: String,
    /// Its options, in the given order. An option without `=` has an empty value.
    pub options: Vec<(String, String)>,
}

/// Text that is not a valid stack.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum StackSyntaxError {
    /// Longer than the limit.
    #[error("a stack of {0} bytes; at most {MAX_BYTES} are accepted")]
    TooLong(usize),
    /// This part is not a driver.
    #[error("'{0}' is no driver; a stack is written like tcp or tcp:port=50000-51000;cc=bbr,gsi")]
    Syntax(Excerpt),
    /// More drivers than the limit.
    #[error("{0} drivers; at most {MAX_DRIVERS} are accepted")]
    TooManyDrivers(usize),
    /// More options than the limit.
    #[error("{count} options for the driver '{driver}'; at most {MAX_OPTIONS} are accepted")]
    TooManyOptions {
        /// The driver.
        driver: Excerpt,
        /// The number of its options.
        count: usize,
    },
}

const MAX_BYTES: usize = 4096;
const MAX_DRIVERS: usize = 16;
const MAX_OPTIONS: usize = 32;

impl DriverSpec {
    /// A driver without options. Its name is in lower case.
    pub fn plain(name: &str) -> Self {
        Self {
            name: name.to_owned(),
            options: Vec::new(),
        }
    }
}

impl StackSpec {
    /// A stack of one driver without options. Its name is in lower case.
    pub fn only(name: &str) -> Self {
        Self {
            drivers: vec![DriverSpec::plain(name)],
        }
    }

    /// Reads a stack.
    ///
    /// # Errors
    ///
    /// When the text is not a valid stack; the error names the part.
    pub fn parse(text: &str) -> Result<Self, StackSyntaxError> {
        if text.len() > MAX_BYTES {
            return Err(StackSyntaxError::TooLong(text.len()));
        }
        let (_, drivers) = all_consuming(separated_list1(char(','), driver))
            .parse(text)
            .map_err(|_| StackSyntaxError::Syntax(first_bad_piece(text)))?;
        if drivers.len() > MAX_DRIVERS {
            return Err(StackSyntaxError::TooManyDrivers(drivers.len()));
        }
        if let Some(driver) = drivers
            .iter()
            .find(|driver| driver.options.len() > MAX_OPTIONS)
        {
            return Err(StackSyntaxError::TooManyOptions {
                driver: Excerpt::new(driver.name.as_bytes()),
                count: driver.options.len(),
            });
        }
        Ok(Self { drivers })
    }
}

impl FromStr for StackSpec {
    type Err = StackSyntaxError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Self::parse(text)
    }
}

/// The first part between commas that is not a valid driver.
fn first_bad_piece(text: &str) -> Excerpt {
    let bad = |piece: &&str| all_consuming(driver).parse(*piece).is_err();
    Excerpt::new(text.split(',').find(bad).unwrap_or(text).as_bytes())
}

fn driver(text: &str) -> IResult<&str, DriverSpec> {
    let options = alt((
        separated_list1(char(';'), option),
        // `tcp:` without options is accepted.
        value(Vec::new(), tag("")),
    ));
    map(
        (name, opt(preceded(char(':'), options))),
        |(name, options)| DriverSpec {
            name: name.to_ascii_lowercase(),
            options: options.unwrap_or_default(),
        },
    )
    .parse(text)
}

fn option(text: &str) -> IResult<&str, (String, String)> {
    let value_text = take_while(|c: char| c != ',' && c != ';');
    alt((
        map(
            separated_pair(name, char('='), value_text),
            |(key, value): (&str, &str)| (key.to_ascii_lowercase(), value.to_owned()),
        ),
        map(name, |key| (key.to_ascii_lowercase(), String::new())),
    ))
    .parse(text)
}

fn name(text: &str) -> IResult<&str, &str> {
    take_while1(|c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-').parse(text)
}

impl fmt::Display for StackSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, driver) in self.drivers.iter().enumerate() {
            let comma = if index == 0 { "" } else { "," };
            write!(f, "{comma}{}", driver.name)?;
            for (index, (key, value)) in driver.options.iter().enumerate() {
                let separator = if index == 0 { ":" } else { ";" };
                write!(f, "{separator}{key}")?;
                if !value.is_empty() {
                    write!(f, "={value}")?;
                }
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn stacks_are_read_from_the_bottom_up() {
        let stack = StackSpec::parse("TCP:port=50000-51000;cc=bbr,gsi").expect("a stack");
        assert_eq!(stack.drivers[0].name, "tcp");
        assert_eq!(
            stack.drivers[0].options[0],
            ("port".to_owned(), "50000-51000".to_owned())
        );
        assert_eq!(
            stack.drivers[0].options[1],
            ("cc".to_owned(), "bbr".to_owned())
        );
        assert_eq!(
            stack.drivers[1],
            DriverSpec {
                name: "gsi".to_owned(),
                options: Vec::new()
            }
        );
        assert_eq!(stack.to_string(), "tcp:port=50000-51000;cc=bbr,gsi");
    }

    #[test]
    fn options_need_no_value() {
        let stack = StackSpec::parse("tcp:nodelay;port=,gsi:").expect("a stack");
        let options = [
            ("nodelay".to_owned(), String::new()),
            ("port".to_owned(), String::new()),
        ];
        assert_eq!(stack.drivers[0].options, options);
        assert_eq!(stack.to_string(), "tcp:nodelay;port,gsi");
    }

    #[test]
    fn values_are_free_text() {
        let stack = StackSpec::parse("popen:argv=#cat#/etc/x,ordering").expect("a stack");
        assert_eq!(stack.drivers[0].options[0].1, "#cat#/etc/x");
    }

    #[test]
    fn the_bad_piece_is_named() {
        for (text, piece) in [
            ("", ""),
            ("tcp,,gsi", ""),
            ("tcp,g si", "g si"),
            ("tcp:=3", "tcp:=3"),
            (":a", ":a"),
            ("tcp:cc=bbr;", "tcp:cc=bbr;"),
            ("gsi, tcp", " tcp"),
        ] {
            assert_eq!(
                StackSpec::parse(text),
                Err(StackSyntaxError::Syntax(Excerpt::new(piece.as_bytes())))
            );
        }
    }

    #[test]
    fn stacks_are_bounded() {
        let drivers = |count| vec!["tcp"; count].join(",");
        assert!(StackSpec::parse(&drivers(MAX_DRIVERS)).is_ok());
        assert_eq!(
            StackSpec::parse(&drivers(MAX_DRIVERS + 1)),
            Err(StackSyntaxError::TooManyDrivers(17))
        );
        let options = |count| format!("tcp,gsi:{}", vec!["a=1"; count].join(";"));
        assert!(StackSpec::parse(&options(MAX_OPTIONS)).is_ok());
        let error = StackSpec::parse(&options(MAX_OPTIONS + 1)).expect_err("too many options");
        assert_eq!(
            error.to_string(),
            "33 options for the driver 'gsi'; at most 32 are accepted"
        );
        let long = |length| format!("tcp:a={}", "x".repeat(length - 6));
        assert!(StackSpec::parse(&long(MAX_BYTES)).is_ok());
        assert_eq!(
            StackSpec::parse(&long(MAX_BYTES + 1)),
            Err(StackSyntaxError::TooLong(4097))
        );
    }

    proptest! {
        #[test]
        fn a_written_stack_reads_the_same(
            transport in "[a-z]{1,8}(:[a-z]{1,5}=[^,;]{1,9}(;[a-z]{1,5})?)?",
            transforms in "(,[a-z]{1,8}){0,3}",
        ) {
            let text = transport + &transforms;
            let stack = StackSpec::parse(&text).expect("a stack");
            prop_assert_eq!(StackSpec::parse(&stack.to_string()), Ok(stack));
        }

        #[test]
        fn nothing_panics(text in ".*") {
            let _ = StackSpec::parse(&text);
        }
    }
}
