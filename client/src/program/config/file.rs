//! A configuration file: `[defaults]`, and `[[host]]` with a pattern each.

use std::path::Path;
use std::sync::Arc;

use clap::{Arg, Command};
use globset::{Glob, GlobSet, GlobSetBuilder};
use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::places::Found;
use super::{ConfigError, FILES, OF_HOSTS, copy, keys};
use crate::program::profile::{Origin, Section, Setting, Value, long, takes_value};

/// More sections than a person writes.
const MOST_SECTIONS: usize = 1000;

type Entry<'a, 'b> = (
    &'a Spanned<std::borrow::Cow<'b, str>>,
    &'a Spanned<DeValue<'b>>,
);

/// Parses a file. The defaults come first, because those of hosts win.
pub(super) fn parse(found: &Found) -> Result<Vec<Section>, ConfigError> {
    let parser = Parser {
        found,
        path: Arc::from(found.path.as_path()),
        copy: copy(),
    };
    parser.parse()
}

struct Parser<'a> {
    found: &'a Found,
    path: Arc<Path>,
    copy: Command,
}

impl Parser<'_> {
    fn parse(&self) -> Result<Vec<Section>, ConfigError> {
        let table = DeTable::parse(&self.found.text).map_err(|error| {
            let at = error.span().map_or(0, |span| span.start);
            self.error(at, error.message().to_owned())
        })?;
        let (mut defaults, mut hosts) = (Vec::new(), Vec::new());
        for entry in table.get_ref() {
            let (name, value) = entry;
            let at = name.span().start;
            match (name.get_ref().as_ref(), value.get_ref()) {
                ("defaults", DeValue::Table(table)) => defaults.push(self.defaults(table)?),
                ("host", DeValue::Array(tables)) if tables.len() <= MOST_SECTIONS => {
                    for table in tables {
                        hosts.push(self.host(table)?);
                    }
                }
                ("defaults" | "host", _) => {
                    let words = "there are [defaults], and up to 1000 tables [[host]]";
                    return Err(self.error(at, words.to_owned()));
                }
                (name, _) => {
                    let near = similar(name, ["defaults", "host"]);
                    let words =
                        format!("unknown table '{name}'{near}; there are [defaults] and [[host]]");
                    return Err(self.error(at, words));
                }
            }
        }
        Ok(defaults.into_iter().chain(hosts).collect())
    }

    fn defaults(&self, table: &DeTable<'_>) -> Result<Section, ConfigError> {
        for (name, _) in table.iter() {
            let key = name.get_ref().as_ref();
            if let Some((_, reason)) = OF_HOSTS.iter().find(|(known, _)| *known == key) {
                let words = format!("{key}: {reason} in a [[host]]");
                return Err(self.error(name.span().start, words));
            }
        }
        Ok(Section {
            hosts: None,
            settings: self.settings(table)?,
        })
    }

    fn host(&self, table: &Spanned<DeValue<'_>>) -> Result<Section, ConfigError> {
        let at = table.span().start;
        let DeValue::Table(table) = table.get_ref() else {
            return Err(self.error(at, "a host is a table: [[host]]".to_owned()));
        };
        let pattern = table.get("match").ok_or_else(|| {
            self.error(
                at,
                "the host has no 'match', like match = \"*.example.org\"".to_owned(),
            )
        })?;
        Ok(Section {
            hosts: Some(self.pattern(pattern)?),
            settings: self.settings(table)?,
        })
    }

    /// A pattern, or a list of them.
    fn pattern(&self, value: &Spanned<DeValue<'_>>) -> Result<GlobSet, ConfigError> {
        let at = value.span().start;
        let error = |reason: String| self.error(at, format!("match: {reason}"));
        let texts: Option<Vec<&str>> = match value.get_ref() {
            DeValue::String(text) => Some(vec![text]),
            DeValue::Array(all) => all.iter().map(|one| one.get_ref().as_str()).collect(),
            _ => None,
        };
        let texts =
            texts.ok_or_else(|| error("it is a pattern, or a list of patterns".to_owned()))?;
        let mut patterns = GlobSetBuilder::new();
        for text in texts {
            let glob = Glob::new(&text.to_ascii_lowercase());
            patterns.add(glob.map_err(|reason| error(reason.to_string()))?);
        }
        patterns.build().map_err(|reason| error(reason.to_string()))
    }

    fn settings(&self, table: &DeTable<'_>) -> Result<Vec<Setting>, ConfigError> {
        let entries = table.iter().filter(|(name, _)| name.get_ref() != "match");
        entries.map(|entry| self.setting(entry)).collect()
    }

    fn setting(&self, (name, value): Entry<'_, '_>) -> Result<Setting, ConfigError> {
        let key = name.get_ref().as_ref();
        let at = name.span().start;
        let option = long(&self.copy, key).filter(|_| keys().any(|known| known == key));
        let Some(option) = option else {
            let reason = match key {
                "password" | "passphrase" => {
                    "; secrets do not belong here: name a file with 'password-file'".to_owned()
                }
                _ => similar(key, keys()),
            };
            return Err(self.error(at, format!("unknown key '{key}'{reason}")));
        };
        let value = self.value(option, key, value.get_ref());
        // The error of the option would show it.
        if let ("user", Ok(Value::Text(text))) = (key, &value)
            && text.contains(':')
        {
            let words = "user: a password does not belong here: name a file with 'password-file'";
            return Err(self.error(at, words.to_owned()));
        }
        let setting = Setting {
            key: key.to_owned(),
            value: value.map_err(|reason| self.error(at, format!("{key}: {reason}")))?,
            origin: Origin {
                file: Arc::clone(&self.path),
                line: self.line(at),
            },
        };
        // The parser of the option knows its values.
        let words = ["copy".into(), setting.word(), "a".into(), "b".into()];
        if setting.value != Value::Flag(false)
            && let Err(error) = self.copy.clone().try_get_matches_from(words)
        {
            let text = error.to_string();
            let reason = text.lines().next().unwrap_or_default();
            let reason = reason.strip_prefix("error: ").unwrap_or(reason);
            return Err(self.error(at, reason.to_owned()));
        }
        Ok(setting)
    }

    fn value(&self, option: &Arg, key: &str, value: &DeValue<'_>) -> Result<Value, String> {
        let text = match (takes_value(option), value) {
            (false, DeValue::Boolean(value)) => return Ok(Value::Flag(*value)),
            (false, _) => return Err("it is true or false".to_owned()),
            (true, DeValue::String(text)) => text.to_string(),
            (true, DeValue::Integer(number)) => number.to_string(),
            (true, _) => return Err("it is a text or a number".to_owned()),
        };
        if !FILES.contains(&key) {
            return Ok(Value::Text(text));
        }
        let path = match (text.strip_prefix("~/"), &self.found.home) {
            (Some(rest), Some(home)) => home.join(rest).to_str().map(ToOwned::to_owned),
            _ => Some(text),
        };
        let path = path.filter(|path| path.starts_with('/'));
        path.map(Value::Text)
            .ok_or_else(|| "it is a path that begins with / or ~/".to_owned())
    }

    fn error(&self, at: usize, reason: String) -> ConfigError {
        ConfigError::Content {
            file: self.found.path.display().to_string(),
            line: self.line(at),
            reason,
        }
    }

    fn line(&self, at: usize) -> usize {
        let before = self.found.text.bytes().take(at);
        1 + before.filter(|byte| *byte == b'\n').count()
    }
}

/// ` (did you mean 'NAME'?)`, if one of these names is near to what was written.
fn similar(written: &str, names: impl IntoIterator<Item = &'static str>) -> String {
    /// The time grows with both lengths.
    const LONGEST: usize = 64;

    if written.len() > LONGEST {
        return String::new();
    }
    let near = names.into_iter().filter_map(|name| {
        let distance = strsim::damerau_levenshtein(&written.replace('_', "-"), name);
        (distance <= 1 + written.len() / 5).then_some((distance, name))
    });
    match near.min() {
        Some((_, name)) => format!(" (did you mean '{name}'?)"),
        None => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_key_is_an_option_of_copy() {
        let copy = copy();
        for key in keys() {
            assert!(long(&copy, key).is_some(), "{key}");
        }
    }
}
