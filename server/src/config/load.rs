//! From the arguments of a command to a configuration.

use gridhaul_security::files::{OpenFiles, OwnRights};

use super::configuration::Config;
use super::error::ConfigError;
use super::file;
use super::flags::ServeArguments;
use super::settings::Settings;
use super::values::DataHosts;

impl Config {
    /// The configuration of the arguments of `serve`: the flags, then the file, then the defaults. Without arguments it is
    /// anonymous, read-only access to the current directory.
    ///
    /// # Errors
    ///
    /// When the file is wrong or the settings do not fit together.
    pub fn load(arguments: &ServeArguments) -> Result<Self, ConfigError> {
        Self::load_with(arguments, &OwnRights)
    }

    /// As [`Config::load`], from a file that `opener` opens.
    pub(crate) fn load_with(
        arguments: &ServeArguments,
        opener: &dyn OpenFiles,
    ) -> Result<Self, ConfigError> {
        if *arguments == ServeArguments::default() {
            let settings = Settings {
                anonymous: Some(true),
                ..Settings::default()
            };
            return Self::resolve(settings);
        }
        let config = Self::resolve(settings(arguments, opener)?)?;
        if !config.lets_anybody_in() {
            return Err(ConfigError::NobodyCanLogIn);
        }
        Ok(config)
    }

    /// The configuration of the arguments of `ssh`, which has a single user: settings about logins are ignored. As with
    /// globus-gridftp-server, the user sees the whole machine and may copy from and to any host. The log would appear on the
    /// user's terminal, so it is written only to a configured file.
    ///
    /// # Errors
    ///
    /// When the file is wrong or the settings do not fit together.
    pub fn load_for_ssh(arguments: &ServeArguments) -> Result<Self, ConfigError> {
        let settings = settings(arguments, &OwnRights)?;
        if settings.encrypt_data == Some(true) {
            return Err(ConfigError::SshIsClear);
        }
        let config = Self::resolve(Settings {
            root: settings.root.or_else(|| Some("/".into())),
            data_hosts: settings.data_hosts.or_else(|| Some(vec![DataHosts::Any])),
            log_file: settings.log_file.or_else(|| Some("/dev/null".into())),
            anonymous: None,
            anonymous_write: None,
            passwords: None,
            gsi: None,
            cert: None,
            key: None,
            trust: None,
            gridmap: None,
            vomsdir: None,
            authorize: None,
            allow_independent_proxies: None,
            tls: None,
            tls_versions: None,
            encrypt_data: None,
            require_dcau: None,
            delegation_keys: None,
            // Each session has a process of its own.
            limit: None,
            ..settings
        })?;
        Ok(Self {
            listen: Vec::new(),
            metrics_listen: None,
            ..config
        })
    }

    fn lets_anybody_in(&self) -> bool {
        self.anonymous.is_some() || self.passwords.is_some() || self.security.gsi.is_some()
    }
}

/// The settings of the flags, and of the file that they name.
fn settings(arguments: &ServeArguments, opener: &dyn OpenFiles) -> Result<Settings, ConfigError> {
    let from_file = match &arguments.config {
        Some(path) => file::read(path, opener)?,
        None => Settings::default(),
    };
    Ok(arguments.settings.clone().or(from_file))
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_session_of_ssh_has_its_user_and_no_other_way_in() {
        let load = |settings: Settings| {
            Config::load_for_ssh(&ServeArguments {
                config: None,
                settings,
            })
        };
        let config = load(Settings {
            passwords: Some("/nonexistent".into()),
            gsi: Some(true),
            idle_timeout: Some(5),
            anonymous: Some(true),
            ..Settings::default()
        })
        .expect("valid");
        assert!(!config.lets_anybody_in());
        assert_eq!(config.root, PathBuf::from("/"));
        assert_eq!(config.data.hosts, [DataHosts::Any]);
        assert_eq!(config.log.file, Some("/dev/null".into()));
        assert_eq!(config.limits.idle_timeout, Duration::from_secs(5));
        let named = Settings {
            root: Some("/srv".into()),
            ..Settings::default()
        };
        assert_eq!(load(named).expect("valid").root, PathBuf::from("/srv"));
        let encrypted = Settings {
            encrypt_data: Some(true),
            ..Settings::default()
        };
        assert!(matches!(load(encrypted), Err(ConfigError::SshIsClear)));
    }
}
