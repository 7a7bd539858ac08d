//! The keys of the configuration in force, as administrators see them.

/// When a change of a setting takes effect.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reload {
    /// With SIGHUP, for new sessions.
    Live,
    /// With a restart.
    Restart,
}

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
    pub(super) fn new(keys: impl IntoIterator<Item = KeyInForce>) -> Self {
        Self(keys.into_iter().collect())
    }

    /// The keys.
    pub fn all(&self) -> &[KeyInForce] {
        &self.0
    }

    /// Whether the command line or the file has a key.
    pub(crate) fn is_given(&self, key: &str) -> bool {
        let mut all = self.0.iter();
        all.any(|entry| entry.key == key && entry.source != Source::Default)
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
            ..ServeArguments::default()
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
             data-hosts = ['any', '192.0.2.0/24']\nclient-options = ['rdma:qps<=8']\nsync-files = 'data'\n",
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
            ("login-timeout", "2m", Source::Default),
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
        assert_eq!(new.changed_since(&running), ["movers", "grace"]);
        new.keep(&["movers".to_owned()], &running);
        assert_eq!(new.changed_since(&running), ["grace"]);
    }
}
