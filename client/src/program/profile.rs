//! Options that configuration files set, for all servers or for some.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::path::Path;
use std::sync::Arc;

use clap::parser::ValueSource;
use clap::{Arg, ArgAction, ArgMatches, Command};
use globset::GlobSet;

/// All configuration files.
#[derive(Debug, Clone, Default)]
pub(super) struct Profile {
    /// A later one wins.
    pub(super) sections: Vec<Section>,
}

/// The settings of a table.
#[derive(Debug, Clone)]
pub(super) struct Section {
    /// The hosts that it is for; `None` is for all.
    pub(super) hosts: Option<GlobSet>,
    pub(super) settings: Vec<Setting>,
}

/// The value of an option.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Setting {
    /// The long name of the option.
    pub(super) key: String,
    pub(super) value: Value,
    pub(super) origin: Origin,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Value {
    /// Of an option without a value.
    Flag(bool),
    Text(String),
}

/// Where a setting is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Origin {
    pub(super) file: Arc<Path>,
    pub(super) line: usize,
}

/// Servers of one command for which an option has different values.
#[derive(Debug, thiserror::Error)]
#[error("{one} and {other} set '{key}' for different servers of this command: give --{key}")]
pub(super) struct Disagreement {
    key: String,
    one: String,
    other: String,
}

impl std::fmt::Display for Origin {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}:{}", self.file.display(), self.line)
    }
}

impl Profile {
    /// What holds for a host; without one, for all. `command` knows which options exclude each other: the one that wins more
    /// often is kept.
    pub(super) fn of(&self, host: Option<&str>, command: &Command) -> BTreeMap<String, Setting> {
        let mut chosen: BTreeMap<String, Setting> = BTreeMap::new();
        for section in &self.sections {
            let is_for = match (&section.hosts, host) {
                (None, _) => true,
                (Some(hosts), Some(host)) => hosts.is_match(host.to_ascii_lowercase()),
                (Some(_), None) => false,
            };
            for setting in section.settings.iter().filter(|_| is_for) {
                if setting.value != Value::Flag(false) {
                    chosen.retain(|key, _| !conflict(command, key, &setting.key));
                }
                chosen.insert(setting.key.clone(), setting.clone());
            }
        }
        chosen
    }

    /// The user of the section that sets `password-file` for a host; the inner `None`: that section names no user.
    pub(super) fn owner_of_password(&self, host: &str) -> Option<Option<&str>> {
        let host = host.to_ascii_lowercase();
        let mut sections = self.sections.iter().rev();
        sections.find_map(|section| {
            let is_for = section
                .hosts
                .as_ref()
                .is_some_and(|all| all.is_match(&host));
            let text = |key: &str| {
                let mut settings = section.settings.iter();
                settings.find_map(|one| match &one.value {
                    Value::Text(text) if one.key == key => Some(text.as_str()),
                    _ => None,
                })
            };
            (is_for && text("password-file").is_some()).then(|| text("user"))
        })
    }

    /// The words that stand for the settings of these hosts in the command line of `command`, of which `matches` is what the
    /// user has written, and wins. `is_wanted` chooses the options.
    ///
    /// # Errors
    ///
    /// When an option has different values for them.
    pub(super) fn words(
        &self,
        command: &Command,
        matches: &ArgMatches,
        hosts: &[String],
        is_wanted: impl Fn(&str) -> bool,
    ) -> Result<Vec<OsString>, Disagreement> {
        let given: BTreeSet<&str> = given(command, matches).filter_map(Arg::get_long).collect();
        let is_free = |key: &str| {
            long(command, key).is_some()
                && is_wanted(key)
                && !given.contains(key)
                && !given.iter().any(|one| conflict(command, one, key))
        };
        let mut all: Vec<BTreeMap<String, Setting>> = match hosts {
            [] => vec![self.of(None, command)],
            hosts => hosts
                .iter()
                .map(|host| self.of(Some(host), command))
                .collect(),
        };
        for settings in &mut all {
            settings.retain(|key, setting| is_free(key) && setting.value != Value::Flag(false));
        }
        let keys: BTreeSet<&String> = all.iter().flat_map(BTreeMap::keys).collect();
        for key in keys {
            let first = all[0].get(key);
            let differs = |settings: &&BTreeMap<String, Setting>| {
                settings.get(key).map(|one| &one.value) != first.map(|one| &one.value)
            };
            if let Some(other) = all.iter().find(differs) {
                let named = |one: Option<&Setting>| match one {
                    Some(setting) => setting.origin.to_string(),
                    None => "the default".to_owned(),
                };
                return Err(Disagreement {
                    key: key.clone(),
                    one: named(first),
                    other: named(other.get(key)),
                });
            }
        }
        Ok(all[0].values().map(Setting::word).collect())
    }
}

impl Setting {
    /// As on a command line.
    pub(super) fn word(&self) -> OsString {
        match &self.value {
            Value::Flag(_) => format!("--{}", self.key).into(),
            Value::Text(text) => format!("--{}={text}", self.key).into(),
        }
    }
}

/// The words of the options that the user has written.
pub(super) fn given_words(command: &Command, matches: &ArgMatches) -> Vec<OsString> {
    let options = given(command, matches).filter_map(|arg| Some((arg, arg.get_long()?)));
    options
        .flat_map(|(arg, long)| {
            let values = matches.get_raw(arg.get_id().as_str()).into_iter().flatten();
            let word = move |value: &std::ffi::OsStr| {
                let mut word = OsString::from(format!("--{long}"));
                if takes_value(arg) {
                    word.push("=");
                    word.push(value);
                }
                word
            };
            values.map(word).collect::<Vec<_>>()
        })
        .collect()
}

/// The option with this long name.
pub(super) fn long<'a>(command: &'a Command, name: &str) -> Option<&'a Arg> {
    let mut options = command.get_arguments();
    options.find(|arg| arg.get_long() == Some(name))
}

pub(super) fn takes_value(arg: &Arg) -> bool {
    !matches!(arg.get_action(), ArgAction::SetTrue)
}

/// What is on the command line.
fn given<'a>(command: &'a Command, matches: &'a ArgMatches) -> impl Iterator<Item = &'a Arg> {
    command.get_arguments().filter(|arg| {
        let id = arg.get_id().as_str();
        let is_known = matches.try_contains_id(id).is_ok();
        is_known && matches.value_source(id) == Some(ValueSource::CommandLine)
    })
}

/// Whether two options exclude each other.
fn conflict(command: &Command, one: &str, other: &str) -> bool {
    let excludes = |one: &str, other: &str| {
        let excluded = long(command, one).map(|arg| command.get_arg_conflicts_with(arg));
        excluded.is_some_and(|all| all.iter().any(|arg| arg.get_long() == Some(other)))
    };
    one != other && (excludes(one, other) || excludes(other, one))
}
