//! Reads the options that a stack string gives to a driver.
//!
//! Every option is checked before anything is opened: its name against the list that the driver
//! documents, its value by one of the parsers here or by the driver's own.

mod values;

use crate::StackError;

pub use values::{bytes, duration, number, positive, rate, switch};

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
