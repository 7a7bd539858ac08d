//! Reads the options that a stack string gives to a driver.
//!
//! Every option is checked before anything is opened: its name against the list that the driver
//! documents, its value by one of the parsers here or by the driver's own.

use std::time::Duration;

use crate::{Driver, StackError};

/// One option of a driver, as it is documented to users.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OptionDoc {
    /// The name before the `=`.
    pub name: &'static str,
    /// What it does, in one sentence.
    pub meaning: &'static str,
    /// A value that the driver takes on every machine.
    pub example: &'static str,
    /// What its values say.
    pub kind: OptionKind,
    /// Who may set it.
    pub audience: Audience,
}

impl OptionDoc {
    /// An option, in the order in which a table of them is read.
    pub const fn new(
        name: &'static str,
        kind: OptionKind,
        audience: Audience,
        meaning: &'static str,
        example: &'static str,
    ) -> Self {
        Self {
            name,
            meaning,
            example,
            kind,
            audience,
        }
    }
}

/// Who may set an option, unless an administrator's [`crate::OptionRules`] say otherwise.
///
/// There is no default: the author of a driver decides for each option. An option is for clients if it concerns only the
/// channels of the client that sets it, and only memory and processor time that something else bounds. It is for the
/// administrator if it says where the sockets of the server are, what they claim to be, or which device or file they use, or
/// if other users pay for it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Audience {
    /// Clients may set any value that the driver takes.
    Client,
    /// Clients may set values up to a bound.
    ClientUpTo {
        /// The largest value, written as the option's values are.
        most: &'static str,
        /// Words that are allowed beside numbers, such as `auto`.
        or: &'static [&'static str],
    },
    /// Only the administrator may set it. The text says why, to clients that try: "it says ...".
    Administrator(&'static str),
}

impl Audience {
    /// Clients may set numbers up to `most`, and no words.
    pub const fn client_up_to(most: &'static str) -> Self {
        Self::ClientUpTo { most, or: &[] }
    }
}

/// What the values of an option say: of numbers, which one is larger.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OptionKind {
    /// See [`bytes`].
    Bytes,
    /// See [`rate`].
    Rate,
    /// See [`duration`].
    Time,
    /// See [`number`].
    Number,
    /// Anything else.
    Word,
}

impl OptionKind {
    /// How much a value says, in the unit of its kind. `None` if it says no number.
    pub fn measure(self, value: &str) -> Option<u128> {
        match self {
            Self::Bytes => bytes(value).ok().map(u128::from),
            Self::Rate => rate(value).ok().map(u128::from),
            Self::Time => duration(value).ok().map(|time| time.as_nanos()),
            Self::Number => number(value).ok().map(u128::from),
            Self::Word => None,
        }
    }
}

/// The options of one driver in one stack, all of which the driver knows, none of them twice.
#[derive(Debug, Clone, Copy)]
pub struct Options<'a> {
    driver: &'static str,
    known: &'static [OptionDoc],
    given: &'a [(String, String)],
    hidden: Option<&'static str>,
}

impl<'a> Options<'a> {
    /// Checks the names in `given` against those that `driver` documents.
    ///
    /// # Errors
    ///
    /// [`StackError::UnknownOption`] and [`StackError::RepeatedOption`].
    pub fn new(
        driver: &(impl Driver + ?Sized),
        given: &'a [(String, String)],
    ) -> Result<Self, StackError> {
        let known = driver.options();
        for (index, (name, _)) in given.iter().enumerate() {
            let Some(option) = known.iter().find(|option| option.name == name) else {
                return Err(unknown(driver, name));
            };
            if given[..index].iter().any(|(earlier, _)| earlier == name) {
                return Err(StackError::RepeatedOption {
                    driver: driver.name(),
                    option: option.name,
                });
            }
        }
        Ok(Self {
            driver: driver.name(),
            known,
            given,
            hidden: None,
        })
    }

    /// The same, as if this one were not given: for a driver beneath, to which it would mean something else.
    pub fn without(self, name: &'static str) -> Self {
        Self {
            hidden: Some(name),
            ..self
        }
    }

    /// The value of an option, or `None` if it is not given. The parser's error is the reason that
    /// users see: "the value "x" of the option ... is wrong: *reason*".
    ///
    /// # Errors
    ///
    /// [`StackError::BadValue`].
    ///
    /// # Panics
    ///
    /// If the driver asks for an option that it does not document.
    pub fn value<T>(
        &self,
        name: &str,
        parse: impl FnOnce(&str) -> Result<T, String>,
    ) -> Result<Option<T>, StackError> {
        let option = self.known.iter().find(|option| option.name == name);
        let option = option.expect("a driver asks for options that it documents");
        let given = self.given.iter().find(|(given, _)| given == name);
        let Some((_, value)) = given.filter(|_| self.hidden != Some(name)) else {
            return Ok(None);
        };
        parse(value)
            .map(Some)
            .map_err(|reason| StackError::BadValue {
                driver: self.driver,
                option: option.name,
                value: value.clone(),
                reason,
                example: option.example,
            })
    }
}

/// The error for an option that the driver does not document.
pub(crate) fn unknown(driver: &(impl Driver + ?Sized), option: &str) -> StackError {
    StackError::UnknownOption {
        driver: driver.name(),
        option: option.to_owned(),
        known: phrase(driver.options()),
    }
}

fn phrase(known: &[OptionDoc]) -> String {
    if known.is_empty() {
        return "it has no options".to_owned();
    }
    let list: Vec<String> = known
        .iter()
        .map(|option| match option.audience {
            Audience::Client | Audience::ClientUpTo { .. } => {
                format!("{}={}", option.name, option.example)
            }
            Audience::Administrator(_) => {
                format!("{}={} (administrator only)", option.name, option.example)
            }
        })
        .collect();
    format!("its options are, with examples: {}", list.join(", "))
}

/// A size in bytes: `65536`, `64K`, `16M`, `1G`; the units are powers of 1024.
///
/// # Errors
///
/// A reason for [`Options::value`].
pub fn bytes(text: &str) -> Result<u64, String> {
    scaled(text, 1024).ok_or_else(|| "it is not a number of bytes".to_owned())
}

/// A data rate, in bytes per second. A plain number is bytes per second; with `k`, `m` or `g` it is
/// the nominal rate of a circuit in bits per second, in powers of 1000: `5g` is 625,000,000 bytes
/// per second.
///
/// # Errors
///
/// A reason for [`Options::value`].
pub fn rate(text: &str) -> Result<u64, String> {
    let is_plain = text.bytes().all(|byte| byte.is_ascii_digit());
    scaled(text, 1000)
        .map(|rate| if is_plain { rate } else { rate / 8 })
        .filter(|rate| *rate > 0)
        .ok_or_else(|| {
            "it is neither a number of bytes per second nor of bits per second with k, m or g"
                .to_owned()
        })
}

/// A time: `250us`, `20ms`, `30s`, `2m`; a plain number is seconds.
///
/// # Errors
///
/// A reason for [`Options::value`].
pub fn duration(text: &str) -> Result<Duration, String> {
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let (number, unit) = text.split_at(digits);
    let microseconds = match unit {
        "us" => 1,
        "ms" => 1_000,
        "" | "s" => 1_000_000,
        "m" => 60_000_000,
        _ => return Err("the units of time are us, ms, s and m".to_owned()),
    };
    number
        .parse::<u64>()
        .ok()
        .and_then(|number| number.checked_mul(microseconds))
        .map(Duration::from_micros)
        .ok_or_else(|| "it is not a time".to_owned())
}

/// A switch: `on` or `off`.
///
/// # Errors
///
/// A reason for [`Options::value`].
pub fn switch(text: &str) -> Result<bool, String> {
    match text {
        "on" => Ok(true),
        "off" => Ok(false),
        _ => Err("it is neither on nor off".to_owned()),
    }
}

/// A plain number greater than zero.
///
/// # Errors
///
/// A reason for [`Options::value`].
pub fn positive(text: &str) -> Result<u64, String> {
    number(text)
        .ok()
        .filter(|number| *number > 0)
        .ok_or_else(|| "it is not a number greater than 0".to_owned())
}

/// A plain number.
///
/// # Errors
///
/// A reason for [`Options::value`].
pub fn number(text: &str) -> Result<u64, String> {
    scaled(text, 0).ok_or_else(|| "it is not a number".to_owned())
}

/// A number with an optional unit, one of the powers of `thousand`; 0 allows no unit.
fn scaled(text: &str, thousand: u64) -> Option<u64> {
    let (number, exponent) = match text.as_bytes().last()? {
        b'k' | b'K' => (&text[..text.len() - 1], 1),
        b'm' | b'M' => (&text[..text.len() - 1], 2),
        b'g' | b'G' => (&text[..text.len() - 1], 3),
        _ => (text, 0),
    };
    // `parse` alone would take a sign.
    if (exponent > 0 && thousand == 0) || !number.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    number
        .parse::<u64>()
        .ok()?
        .checked_mul(thousand.pow(exponent))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_binary_and_bounded() {
        assert_eq!(bytes("0"), Ok(0));
        assert_eq!(bytes("65536"), Ok(65536));
        assert_eq!(bytes("64K"), Ok(65536));
        assert_eq!(bytes("64k"), Ok(65536));
        assert_eq!(bytes("16M"), Ok(16 << 20));
        assert_eq!(bytes("1g"), Ok(1 << 30));
        for wrong in [
            "",
            "K",
            "-1",
            "+1",
            "1 M",
            "1T",
            "1.5M",
            "99999999999G",
            "\u{661}",
        ] {
            assert!(bytes(wrong).is_err(), "{wrong:?}");
        }
    }

    #[test]
    fn rates_with_a_unit_are_bits() {
        assert_eq!(rate("5g"), Ok(625_000_000));
        assert_eq!(rate("800K"), Ok(100_000));
        assert_eq!(rate("1000000"), Ok(1_000_000));
        for wrong in ["", "0", "0g", "g", "-5g", "5gbit"] {
            assert!(rate(wrong).is_err(), "{wrong:?}");
        }
    }

    #[test]
    fn times_have_units() {
        assert_eq!(duration("250us"), Ok(Duration::from_micros(250)));
        assert_eq!(duration("20ms"), Ok(Duration::from_millis(20)));
        assert_eq!(duration("30"), Ok(Duration::from_secs(30)));
        assert_eq!(duration("2m"), Ok(Duration::from_secs(120)));
        for wrong in ["", "ms", "1h", "-1s", "1.5s", "999999999999999999m"] {
            assert!(duration(wrong).is_err(), "{wrong:?}");
        }
    }

    #[test]
    fn plain_numbers_have_no_unit() {
        assert_eq!(number("0"), Ok(0));
        assert_eq!(positive("7"), Ok(7));
        assert!(number("1k").is_err());
        assert!(positive("0").is_err());
        assert_eq!(switch("off"), Ok(false));
        assert!(switch("no").is_err());
    }
}
