//! The options of a driver in a stack string.
//!
//! All options are checked before any socket or file is opened: the name against the driver's documented options, the value by
//! a parser in this module or by the driver.

mod values;

use crate::StackError;

pub use values::{bytes, duration, number, positive, rate, switch};

/// An option of a driver, with its documentation for users.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OptionDoc {
    /// The name before the `=`.
    pub name: &'static str,
    /// Its effect, in one sentence.
    pub meaning: &'static str,
    /// A value that is valid on every machine.
    pub example: &'static str,
    /// The kind of its values.
    pub kind: OptionKind,
    /// Who may set it.
    pub audience: Audience,
}

impl OptionDoc {
    /// An option. The arguments are in the order of the columns of a table.
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
/// There is no default: the author of a driver decides for each option. An option is for clients if it affects only the
/// channels of the client that sets it, and its use of memory and CPU time is bounded elsewhere. It is for the administrator if
/// it determines the addresses, advertised addresses, devices or files of the server's channels, or costs other users
/// resources.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Audience {
    /// Clients may set any valid value.
    Client,
    /// Clients may set values up to a bound.
    ClientUpTo {
        /// The largest value, in the syntax of the option.
        most: &'static str,
        /// Words that are allowed besides numbers, such as `auto`.
        or: &'static [&'static str],
    },
    /// Only the administrator may set it. The text is the reason in the error for clients.
    Administrator(&'static str),
}

impl Audience {
    /// Clients may set numbers up to `most`, and no words.
    pub const fn client_up_to(most: &'static str) -> Self {
        Self::ClientUpTo { most, or: &[] }
    }
}

/// The kind of an option's values, which also defines their order.
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
    /// Any other text.
    Word,
}

impl OptionKind {
    /// The number that a value stands for, in the unit of its kind. `None` if it is not a number.
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

/// The options of one driver in one stack: all documented, none repeated.
#[derive(Debug, Clone, Copy)]
pub struct Options<'a> {
    driver: &'static str,
    known: &'static [OptionDoc],
    given: &'a [(String, String)],
    hidden: Option<&'static str>,
}

impl<'a> Options<'a> {
    /// Checks the names in `given` against the `known` ones of `driver`.
    pub(crate) fn new(
        driver: &'static str,
        known: &'static [OptionDoc],
        given: &'a [(String, String)],
    ) -> Result<Self, StackError> {
        for (index, (name, _)) in given.iter().enumerate() {
            let Some(option) = known.iter().find(|option| option.name == name) else {
                return Err(unknown(driver, known, name));
            };
            if given[..index].iter().any(|(earlier, _)| earlier == name) {
                return Err(StackError::RepeatedOption {
                    driver,
                    option: option.name,
                });
            }
        }
        Ok(Self {
            driver,
            known,
            given,
            hidden: None,
        })
    }

    /// The same options without this one, for a lower driver to which it would mean something else.
    pub fn without(self, name: &'static str) -> Self {
        Self {
            hidden: Some(name),
            ..self
        }
    }

    /// The value of an option, or `None` if it is not given. The parser's error becomes the reason in the message for users:
    /// "the value "x" of the option ... is wrong: *reason*".
    ///
    /// # Errors
    ///
    /// [`StackError::BadValue`].
    ///
    /// # Panics
    ///
    /// If the driver does not document the option.
    pub fn value<T>(
        &self,
        name: &str,
        parse: impl FnOnce(&str) -> Result<T, String>,
    ) -> Result<Option<T>, StackError> {
        let option = self.known.iter().find(|option| option.name == name);
        let option = option.expect("a documented option");
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
pub(crate) fn unknown(
    driver: &'static str,
    known: &'static [OptionDoc],
    option: &str,
) -> StackError {
    StackError::UnknownOption {
        driver,
        option: option.to_owned(),
        known: phrase(known),
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
