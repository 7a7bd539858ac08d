//! A problem of the configuration, with its place.

use std::fmt;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use crate::harmful::is_harmful;

/// The place of a setting.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Place {
    /// The command line.
    Flag(String),
    /// A line of the configuration file.
    Line(PathBuf, usize),
}

/// Something in the configuration that is wrong or has no effect.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Problem {
    /// The setting, where the problem belongs to one.
    pub(crate) key: Option<String>,
    pub(crate) place: Option<Place>,
    /// Names the setting, what is wrong, and the remedy.
    pub(crate) text: String,
}

/// A flag that cannot be used.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WrongFlag {
    /// Without the two leading dashes; with a dash if it is written with one.
    pub(super) key: String,
    /// What is wrong, and the remedy.
    pub(super) text: String,
}

impl WrongFlag {
    pub(super) fn problem(&self) -> Problem {
        Problem {
            key: Some(self.key.clone()),
            place: Some(Place::Flag(self.key.clone())),
            text: format!("{}: {}", self.key, self.text),
        }
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Flag(key) if key.starts_with('-') => f.write_str(key),
            Self::Flag(key) => write!(f, "--{key}"),
            Self::Line(file, line) => write!(f, "{}, line {line}", file.display()),
        }
    }
}

impl Problem {
    /// For output that names the setting already.
    pub(crate) fn without_key(&self) -> String {
        let text = self.text.replace(is_harmful, "?");
        let key = self.key.as_deref().unwrap_or_default();
        let text = text.strip_prefix(&format!("{key}: ")).unwrap_or(&text);
        match &self.place {
            Some(place) => format!("{place}: {text}"),
            None => text.to_owned(),
        }
    }

    /// For output that names the setting and its place already, also where the text begins with the value: `data-address 192.0.2.1
    /// cannot be used`.
    pub(crate) fn without_place(&self) -> String {
        let text = self.text.replace(is_harmful, "?");
        let key = self.key.as_deref().filter(|key| !key.is_empty());
        let rest = key.and_then(|key| text.strip_prefix(key));
        let rest = rest.and_then(|rest| rest.strip_prefix(": ").or_else(|| rest.strip_prefix(' ')));
        rest.unwrap_or(&text).to_owned()
    }

    /// For the order of problems: the line in the file.
    pub(crate) fn line(&self) -> usize {
        match &self.place {
            Some(Place::Line(_, line)) => *line,
            _ => 0,
        }
    }
}

impl fmt::Display for Problem {
    /// On one line: texts of the file may contain control characters.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = self.text.replace(is_harmful, "?");
        match &self.place {
            // The flag names the setting already.
            Some(Place::Flag(_)) => f.write_str(&self.without_key()),
            Some(place) => write!(f, "{place}: {text}"),
            None => f.write_str(&text),
        }
    }
}
