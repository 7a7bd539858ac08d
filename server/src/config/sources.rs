//! Where settings come from, and errors with their place.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use super::error::ConfigError;

/// The places of all settings that are given.
#[derive(Debug, Clone, Default)]
pub(crate) struct Sources {
    /// The settings that are given as flags. These win.
    pub(super) flags: BTreeSet<String>,
    pub(super) file: Option<PathBuf>,
    /// The lines of keys in the file.
    pub(super) lines: BTreeMap<String, usize>,
}

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

/// The errors in a configuration.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub struct ConfigErrors(Vec<Problem>);

impl Sources {
    /// The place of a setting, if it is given.
    fn place(&self, key: &str) -> Option<Place> {
        if self.flags.contains(key) {
            return Some(Place::Flag(key.to_owned()));
        }
        let line = *self.lines.get(key)?;
        Some(Place::Line(self.file.clone()?, line))
    }

    /// Whether a setting is given, and is not a default.
    pub(crate) fn is_given(&self, key: &str) -> bool {
        self.place(key).is_some()
    }

    /// A problem of a setting. The text must name it.
    pub(crate) fn problem(&self, key: &str, text: impl ToString) -> Problem {
        Problem {
            key: Some(key.to_owned()),
            place: self.place(key),
            text: text.to_string(),
        }
    }

    pub(super) fn problem_of(&self, error: &ConfigError) -> Problem {
        let key = error.key();
        Problem {
            key: key.map(str::to_owned),
            place: key.and_then(|key| self.place(key)),
            text: error.to_string(),
        }
    }
}

impl ConfigErrors {
    /// The errors, if there are any.
    pub(crate) fn of(problems: Vec<Problem>) -> Result<(), Self> {
        match problems.is_empty() {
            true => Ok(()),
            false => Err(Self(problems)),
        }
    }

    pub(crate) fn problems(&self) -> &[Problem] {
        &self.0
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Flag(key) => write!(f, "--{key}"),
            Self::Line(file, line) => write!(f, "{}, line {line}", file.display()),
        }
    }
}

impl Problem {
    /// For output that names the setting already.
    pub(crate) fn without_key(&self) -> String {
        let text = self.text.replace(char::is_control, "?");
        let key = self.key.as_deref().unwrap_or_default();
        let text = text.strip_prefix(&format!("{key}: ")).unwrap_or(&text);
        match &self.place {
            Some(place) => format!("{place}: {text}"),
            None => text.to_owned(),
        }
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
        let text = self.text.replace(char::is_control, "?");
        match &self.place {
            // The flag names the setting already.
            Some(Place::Flag(_)) => f.write_str(&self.without_key()),
            Some(place) => write!(f, "{place}: {text}"),
            None => f.write_str(&text),
        }
    }
}

impl fmt::Display for ConfigErrors {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let [only] = &self.0[..] {
            return only.fmt(f);
        }
        write!(f, "the configuration has {} errors:", self.0.len())?;
        for problem in &self.0 {
            write!(f, "\n  {problem}")?;
        }
        Ok(())
    }
}
