//! A translated configuration, and how it is written as TOML.

use std::fmt::Write as _;

use super::given::Place;

/// How much of an option was carried over.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Weight {
    /// Our settings say the same, or nothing is lost.
    Carried,
    /// Clients miss something.
    Missing,
    /// Clients are kept from less.
    Guard,
}

/// What became of an option, or of several that belong together.
#[derive(Debug, Clone)]
pub(crate) struct Entry {
    /// Where it was given, and how it was written; empty for a default of globus-gridftp-server.
    pub(crate) origins: Vec<(Place, String)>,
    /// Our settings, with their values in TOML.
    pub(crate) keys: Vec<(&'static str, String)>,
    /// What an administrator should know.
    pub(crate) remark: String,
    /// How much of it was carried over.
    pub(crate) weight: Weight,
}

/// A translated configuration.
#[derive(Debug, Clone, Default)]
pub(crate) struct Translation {
    /// The entries, in the order of the table.
    pub(crate) entries: Vec<Entry>,
    /// The only rule for users with certificates.
    pub(crate) rule: Option<Entry>,
}

impl Translation {
    /// All entries.
    pub(crate) fn all(&self) -> impl Iterator<Item = &Entry> {
        self.entries.iter().chain(&self.rule)
    }

    /// Whether everything that limits access was carried over.
    pub(crate) fn keeps_guards(&self) -> bool {
        self.all().all(|entry| entry.weight < Weight::Guard)
    }

    /// Whether a setting has a value.
    pub(super) fn has(&self, key: &str) -> bool {
        self.all()
            .any(|entry| entry.keys.iter().any(|(known, _)| *known == key))
    }

    /// The settings alone, as a configuration file.
    pub(crate) fn settings(&self) -> String {
        let mut text = String::new();
        for entry in &self.entries {
            text.push_str(&keys(entry));
        }
        if let Some(rule) = &self.rule {
            text.push_str("[[authorize]]\n");
            text.push_str(&keys(rule));
        }
        text
    }

    /// The configuration file, with the origin of each line and remarks.
    pub(crate) fn annotated(&self, sources: &[String]) -> String {
        let mut text = String::from(
            "# Made by `gridhaul-server import` from the configuration of globus-gridftp-server:\n",
        );
        for source in sources {
            let _ = writeln!(text, "#   {}", shown(source));
        }
        let count = |weight| self.all().filter(|entry| entry.weight == weight).count();
        let _ = writeln!(
            text,
            "# ATTENTION: {} (limits of access that were not carried over)\n# MISSING: {} (what clients may miss)",
            count(Weight::Guard),
            count(Weight::Missing)
        );
        for entry in &self.entries {
            text.push('\n');
            text.push_str(&comments(entry));
            text.push_str(&keys(entry));
        }
        if let Some(rule) = &self.rule {
            text.push('\n');
            text.push_str(&comments(rule));
            text.push_str("[[authorize]]\n");
            text.push_str(&keys(rule));
        }
        text
    }
}

fn keys(entry: &Entry) -> String {
    let lines = entry.keys.iter();
    lines
        .map(|(key, value)| format!("{key} = {value}\n"))
        .collect()
}

fn comments(entry: &Entry) -> String {
    let mut text = String::new();
    if entry.origins.is_empty() {
        text.push_str("# default of globus-gridftp-server\n");
    }
    for (place, written) in &entry.origins {
        let _ = writeln!(text, "# {}: {}", shown(&place.to_string()), shown(written));
    }
    if !entry.remark.is_empty() {
        let head = match entry.weight {
            Weight::Carried => "remark",
            Weight::Missing => "MISSING",
            Weight::Guard => "ATTENTION",
        };
        let _ = writeln!(text, "#   {head}: {}", shown(&entry.remark));
    }
    text
}

/// A text for a comment, which has no control characters (TOML 1.0).
pub(super) fn shown(text: &str) -> String {
    let shown = |letter: char| match letter.is_control() {
        true => letter.escape_default().to_string(),
        false => letter.to_string(),
    };
    text.chars().map(shown).collect()
}

/// A text as a value of TOML.
pub(super) fn quoted(text: &str) -> String {
    let mut quoted = String::from('"');
    for letter in text.chars() {
        match letter {
            '"' | '\\' => quoted.extend(['\\', letter]),
            letter if letter.is_control() => {
                let _ = write!(quoted, "\\u{:04X}", u32::from(letter));
            }
            letter => quoted.push(letter),
        }
    }
    quoted.push('"');
    quoted
}

/// A list of texts as a value of TOML.
pub(super) fn list<T: AsRef<str>>(texts: &[T]) -> String {
    let texts: Vec<String> = texts.iter().map(|text| quoted(text.as_ref())).collect();
    format!("[{}]", texts.join(", "))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn texts_survive_toml(text in any::<String>()) {
            let table: toml::Table = toml::from_str(&format!(
                "# {}\nkey = {}\nlist = {}",
                shown(&text),
                quoted(&text),
                list(&[&text])
            ))
            .expect("TOML");
            prop_assert_eq!(table["key"].as_str(), Some(text.as_str()));
            prop_assert_eq!(table["list"][0].as_str(), Some(text.as_str()));
        }
    }
}
