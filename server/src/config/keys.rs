//! The keys of the configuration in force, as administrators see them.

use std::net::IpAddr;
use std::path::PathBuf;

use clap::CommandFactory;
use gridhaul_security::tls::TlsVersions;

use super::flags::CommandLine;
use super::listen::ListenAddress;
use super::log_level::LogLevel;
use super::max_startups::MaxStartups;
use super::reload::Reload;
use super::seconds::Seconds;
use super::tls_range::TlsRange;
use super::values::{
    ArrivalChecksums, AtomicRoot, Bytes, Callout, ClientOptions, DataHosts, ExemptBlock, FileMode,
    KeyKind, LogFormat, PortRange, SyncFiles,
};

/// All keys, in the order of the table of settings.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Keys(Vec<KeyInForce>);

/// A key and its value. Secrets are in files, so a value is at most the path of one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeyInForce {
    /// The name in the file.
    pub key: String,
    /// The value as in the file; for a default the words of the reference.
    pub value: String,
    /// Where the value is from.
    pub source: Source,
    /// When a change of it takes effect.
    pub reload: Reload,
}

/// Where a value is from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Source {
    /// Neither the command line nor the file has the key.
    Default,
    /// The configuration file.
    File,
    /// The command line.
    Flag,
}

impl Keys {
    /// The keys of settings, each with the text of its value on the command line and in the file.
    pub(super) fn new(
        settings: impl IntoIterator<Item = (&'static str, Reload, Option<String>, Option<String>)>,
    ) -> Self {
        let command = CommandLine::command();
        let entries = settings.into_iter().map(|(name, reload, flag, file)| {
            let (source, value) = match (flag, file) {
                (Some(value), _) => (Source::Flag, value),
                (None, Some(value)) => (Source::File, value),
                (None, None) => (Source::Default, default(&command, name)),
            };
            KeyInForce {
                key: name.replace('_', "-"),
                value,
                source,
                reload,
            }
        });
        Self(entries.collect())
    }

    /// The keys.
    pub fn all(&self) -> &[KeyInForce] {
        &self.0
    }

    /// The keys whose values differ, by name.
    pub(crate) fn changed_since(&self, before: &Self) -> Vec<String> {
        let same = |key: &KeyInForce| {
            let mut before = before.0.iter();
            before.any(|earlier| earlier.key == key.key && earlier.value == key.value)
        };
        let changed = self.0.iter().filter(|key| !same(key));
        changed.map(|key| key.key.clone()).collect()
    }

    /// Keeps the entries of these keys as they were.
    pub(super) fn keep(&mut self, names: &[String], running: &Self) {
        for entry in self.0.iter_mut().filter(|entry| names.contains(&entry.key)) {
            if let Some(kept) = running.0.iter().find(|kept| kept.key == entry.key) {
                entry.clone_from(kept);
            }
        }
    }

    /// Notes another value of a key.
    pub(crate) fn note(&mut self, key: &str, value: &str) {
        for entry in self.0.iter_mut().filter(|entry| entry.key == key) {
            value.clone_into(&mut entry.value);
        }
    }
}

/// What the help of an option says of its default.
fn default(command: &clap::Command, name: &str) -> String {
    let mut arguments = command.get_arguments();
    let argument = arguments.find(|argument| argument.get_id().as_str() == name);
    let help = argument
        .and_then(clap::Arg::get_help)
        .map(ToString::to_string);
    let default = help.and_then(|help| {
        let (_, default) = help.rsplit_once("Default: ")?;
        Some(default.trim_matches(['.', '`']).to_owned())
    });
    let is_switch = argument
        .and_then(clap::Arg::get_value_names)
        .is_some_and(|names| names.iter().any(|name| name == "BOOL"));
    default.unwrap_or_else(|| if is_switch { "false" } else { "none" }.to_owned())
}

/// The text of a value, as in the file.
pub(super) trait Shown {
    fn shown(&self) -> String;
}

macro_rules! shown_as_displayed {
    ($($kind:ty),*) => {$(
        impl Shown for $kind {
            fn shown(&self) -> String {
                self.to_string()
            }
        }
    )*};
}

shown_as_displayed!(
    String,
    IpAddr,
    ListenAddress,
    bool,
    u32,
    usize,
    FileMode,
    PortRange,
    Seconds
);

impl Shown for PathBuf {
    fn shown(&self) -> String {
        self.display().to_string()
    }
}

impl Shown for Bytes {
    fn shown(&self) -> String {
        self.0.to_string()
    }
}

impl<T: Shown> Shown for Vec<T> {
    fn shown(&self) -> String {
        let values: Vec<String> = self.iter().map(Shown::shown).collect();
        values.join(",")
    }
}

impl Shown for DataHosts {
    fn shown(&self) -> String {
        match self {
            Self::Any => "any".to_owned(),
            Self::Block(block) => block.to_string(),
        }
    }
}

impl Shown for ExemptBlock {
    fn shown(&self) -> String {
        self.0.to_string()
    }
}

impl Shown for ClientOptions {
    fn shown(&self) -> String {
        self.0.to_string()
    }
}

impl Shown for ArrivalChecksums {
    fn shown(&self) -> String {
        match self {
            Self::Asked => "asked".to_owned(),
            Self::Named(names) if names.is_empty() => "none".to_owned(),
            Self::Named(names) => {
                let names: Vec<String> = names.iter().map(ToString::to_string).collect();
                names.join(",")
            }
        }
    }
}

impl Shown for SyncFiles {
    fn shown(&self) -> String {
        format!("{:?}", self.0).to_ascii_lowercase()
    }
}

impl Shown for MaxStartups {
    fn shown(&self) -> String {
        format!("{}:{}:{}", self.start, self.rate, self.full)
    }
}

impl Shown for TlsRange {
    fn shown(&self) -> String {
        let versions = match self.0 {
            TlsVersions::Only12 => "1.2",
            TlsVersions::Only13 => "1.3",
            TlsVersions::From12To13 => "1.2-1.3",
        };
        versions.to_owned()
    }
}

impl Shown for LogFormat {
    fn shown(&self) -> String {
        format!("{self:?}").to_ascii_lowercase()
    }
}

impl Shown for LogLevel {
    fn shown(&self) -> String {
        self.0.clone()
    }
}

impl Shown for Callout {
    fn shown(&self) -> String {
        let path = self.path().display();
        match self {
            Self::Program(_) => path.to_string(),
            Self::Socket(_) => format!("unix:{path}"),
        }
    }
}

impl Shown for AtomicRoot {
    fn shown(&self) -> String {
        match self {
            Self::Any => "*".to_owned(),
            Self::Root(path) => path.shown(),
        }
    }
}

impl Shown for KeyKind {
    fn shown(&self) -> String {
        format!("{self:?}").to_ascii_lowercase()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{Config, Seconds, ServeArguments, Settings};

    fn keys(file: &str, settings: Settings) -> Keys {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("config.toml");
        std::fs::write(&path, file).expect("written");
        let arguments = ServeArguments {
            config: Some(path),
            settings,
        };
        Config::load(&arguments).expect("valid").keys
    }

    #[test]
    fn each_key_has_its_value_and_where_it_is_from() {
        let flags = Settings {
            idle_timeout: Some(Seconds(5)),
            ..Settings::default()
        };
        let keys = keys(
            "anonymous = true\nidle-timeout = 7\nport-range = '50000-51000'\nstall-bytes = '64K'\n\
             data-hosts = ['any', '192.0.2.0/24']\nclient-options = ['rdma:qps<=8']\nsync-files = 'data'\n\
             [[authorize]]\nidentity = '*'\nmap = true\n",
            flags,
        );
        assert_eq!(keys.all().len(), Settings::ALL.len());
        for (key, value, source) in [
            ("idle-timeout", "5s", Source::Flag),
            ("anonymous", "true", Source::File),
            ("port-range", "50000-51000", Source::File),
            ("stall-bytes", "65536", Source::File),
            ("data-hosts", "any,192.0.2.0/24", Source::File),
            ("sync-files", "data", Source::File),
            ("authorize", "map", Source::File),
            ("login-timeout", "120", Source::Default),
            ("gsi", "false", Source::Default),
            ("user", "nobody", Source::Default),
            ("max-startups", "500:30:1000", Source::Default),
        ] {
            let found = keys.all().iter().find(|entry| entry.key == key);
            let found = found.expect(key);
            assert_eq!(
                (found.value.as_str(), found.source),
                (value, source),
                "{key}"
            );
        }
    }

    #[test]
    fn a_reload_keeps_the_values_that_need_a_restart() {
        let running = keys("anonymous = true\nmovers = 5\n", Settings::default());
        let mut new = keys(
            "anonymous = true\nmovers = 6\ngrace = 1\n",
            Settings::default(),
        );
        assert_eq!(new.changed_since(&running), ["grace", "movers"]);
        new.keep(&["movers".to_owned()], &running);
        assert_eq!(new.changed_since(&running), ["grace"]);
    }
}
