//! What an administrator gave globus-gridftp-server: values of options and variables, each with its place.

use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;

use super::option::{GlobusOption, Kind};

/// Where a value was given.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Place {
    /// A line of a file, from 1.
    Line(PathBuf, usize),
    /// The command line.
    Argument,
    /// The environment of this process.
    Environment,
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Line(path, line) => write!(f, "{}:{line}", path.display()),
            Self::Argument => f.write_str("command line"),
            Self::Environment => f.write_str("environment"),
        }
    }
}

/// A value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Value {
    /// Of a switch.
    Switch(bool),
    /// A number.
    Number(i64),
    /// A text.
    Text(String),
}

/// A value that is not of the kind of its option.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NotAValue {
    /// Of a switch.
    #[error("must be 0 or 1, not {0:?}")]
    Switch(String),
    /// Of a number.
    #[error("must be a number, perhaps with K, M or G after it, not {0:?}")]
    Number(String),
}

impl Value {
    /// Parses what a file or an argument has.
    ///
    /// # Errors
    ///
    /// When globus-gridftp-server would not take it either.
    pub(crate) fn parse(kind: Kind, text: &str) -> Result<Self, NotAValue> {
        match kind {
            Kind::Switch(_) => match text {
                "0" => Ok(Self::Switch(false)),
                "1" => Ok(Self::Switch(true)),
                _ => Err(NotAValue::Switch(text.to_owned())),
            },
            Kind::Number => number(text)
                .map(Self::Number)
                .ok_or_else(|| NotAValue::Number(text.to_owned())),
            Kind::Text => Ok(Self::Text(text.to_owned())),
        }
    }
}

impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Switch(on) => write!(f, "{}", u8::from(*on)),
            Self::Number(number) => write!(f, "{number}"),
            Self::Text(text) => f.write_str(text),
        }
    }
}

/// A number with a unit, as `globus_args_bytestr_to_num`.
fn number(text: &str) -> Option<i64> {
    let digits = text.trim_end_matches(|letter: char| !letter.is_ascii_digit());
    let shift = match text.get(digits.len()..)? {
        "" | "b" | "B" => 0,
        "k" | "K" => 10,
        "m" | "M" => 20,
        "g" | "G" => 30,
        _ => return None,
    };
    digits.parse::<i64>().ok()?.checked_mul(1 << shift)
}

/// A value with its place.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Placed<T> {
    /// The value.
    pub(crate) value: T,
    /// Where it was given.
    pub(crate) place: Place,
    /// The line, or the argument, as it was written.
    pub(crate) written: String,
}

/// A line or value that counts no more, or that is no option.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Aside {
    /// Where it was.
    pub(crate) place: Place,
    /// What was written.
    pub(crate) written: String,
    /// Why it has no effect.
    pub(crate) reason: String,
}

/// Everything that was given. Of several values the last counts.
#[derive(Debug, Clone, Default)]
pub(crate) struct Given {
    options: BTreeMap<&'static str, Placed<Value>>,
    variables: BTreeMap<String, Placed<String>>,
    /// What has no effect.
    pub(crate) asides: Vec<Aside>,
}

impl Given {
    /// Notes a value of an option.
    pub(crate) fn set(&mut self, option: &'static GlobusOption, placed: Placed<Value>) {
        let by = placed.place.clone();
        if let Some(old) = self.options.insert(option.name(), placed) {
            self.overridden(old.place, old.written, &by);
        }
    }

    /// Notes a value of a variable.
    pub(crate) fn set_variable(&mut self, name: &str, placed: Placed<String>) {
        let by = placed.place.clone();
        if let Some(old) = self.variables.insert(name.to_owned(), placed) {
            self.overridden(old.place, old.written, &by);
        }
    }

    fn overridden(&mut self, place: Place, written: String, by: &Place) {
        self.asides.push(Aside {
            place,
            written,
            reason: format!("replaced by {by}"),
        });
    }

    /// The value of an option.
    pub(crate) fn get(&self, name: &str) -> Option<&Placed<Value>> {
        self.options.get(name)
    }

    /// The text of an option.
    pub(crate) fn text(&self, name: &str) -> Option<&str> {
        match &self.get(name)?.value {
            Value::Text(text) => Some(text),
            _ => None,
        }
    }

    /// The number of an option.
    pub(crate) fn number(&self, name: &str) -> Option<i64> {
        match self.get(name)?.value {
            Value::Number(number) => Some(number),
            _ => None,
        }
    }

    /// Whether a switch is on. `false` if it is not given: use it for switches that are off by default.
    pub(crate) fn is_on(&self, name: &str) -> bool {
        self.get(name)
            .is_some_and(|placed| placed.value == Value::Switch(true))
    }

    /// Whether a switch is given and off.
    pub(crate) fn is_off(&self, name: &str) -> bool {
        self.get(name)
            .is_some_and(|placed| placed.value == Value::Switch(false))
    }

    /// The value of a variable that is not empty.
    pub(crate) fn variable(&self, name: &str) -> Option<&str> {
        let value = self.variables.get(name)?.value.as_str();
        (!value.is_empty()).then_some(value)
    }

    /// All variables.
    pub(crate) fn variables(&self) -> impl Iterator<Item = (&str, &Placed<String>)> {
        self.variables
            .iter()
            .map(|(name, placed)| (name.as_str(), placed))
    }
}

/// The words of a list.
pub(crate) fn words(list: &str) -> Vec<&str> {
    let words = list.split(',').map(str::trim);
    words.filter(|word| !word.is_empty()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_units() {
        for (text, number) in [
            ("0", Some(0)),
            ("-1", Some(-1)),
            ("64k", Some(65536)),
            ("1M", Some(1 << 20)),
            ("2G", Some(2 << 30)),
            ("10B", Some(10)),
            ("9999999999G", None),
            ("1kk", None),
            ("1\u{e9}", None),
            ("k", None),
            ("", None),
        ] {
            let parsed = Value::parse(Kind::Number, text).ok();
            assert_eq!(parsed, number.map(Value::Number), "{text}");
        }
    }
}
