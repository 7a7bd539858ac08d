//! Where settings come from, and the errors of a configuration.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::path::PathBuf;

use super::error::ConfigError;
use super::keys::Source;
use super::problem::{Place, Problem};

/// The places of all settings that are given.
#[derive(Debug, Clone, Default)]
pub(crate) struct Sources {
    /// The settings that are given as flags. These win.
    pub(super) flags: BTreeSet<String>,
    pub(super) file: Option<PathBuf>,
    /// The lines of keys in the file.
    pub(super) lines: BTreeMap<String, usize>,
    /// The lines of tables in the file.
    pub(super) tables: BTreeMap<String, Vec<usize>>,
}

/// The errors in a configuration.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub struct ConfigErrors(Vec<Problem>);

impl Sources {
    /// The place of a setting, if it is given.
    pub(crate) fn place(&self, key: &str) -> Option<Place> {
        if self.flags.contains(key) {
            return Some(Place::Flag(key.to_owned()));
        }
        let line = *self.lines.get(key)?;
        Some(Place::Line(self.file.clone()?, line))
    }

    /// The place of a table of a setting, counted from 0.
    fn place_of_table(&self, key: &str, index: usize) -> Option<Place> {
        let line = *self.tables.get(key)?.get(index)?;
        Some(Place::Line(self.file.clone()?, line))
    }

    /// Whether a setting is given, and is not a default.
    pub(crate) fn is_given(&self, key: &str) -> bool {
        self.source(key) != Source::Default
    }

    /// Where the value of a setting is from.
    pub(super) fn source(&self, key: &str) -> Source {
        match self.place(key) {
            Some(Place::Flag(_)) => Source::Flag,
            Some(Place::Line(..)) => Source::File,
            None => Source::Default,
        }
    }

    /// A problem of a setting. The text must name it.
    pub(crate) fn problem(&self, key: &str, text: impl ToString) -> Problem {
        Problem {
            key: Some(key.to_owned()),
            place: self.place(key),
            text: text.to_string(),
        }
    }

    /// A problem of a table of a setting, counted from 0. The text must name both.
    pub(crate) fn problem_of_table(&self, key: &str, index: usize, text: impl ToString) -> Problem {
        Problem {
            place: self.place_of_table(key, index),
            ..self.problem(key, text)
        }
    }

    pub(super) fn problem_of(&self, error: &ConfigError) -> Problem {
        let key = error.key();
        if let (Some(key), Some(index)) = (key, error.table()) {
            return self.problem_of_table(key, index, error);
        }
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
