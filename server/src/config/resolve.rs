//! From settings to a configuration: defaults, and settings that do not fit together.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::PathBuf;

use gridhaul_transfer::Handling;

use super::configuration::{Anonymous, Config, Log};
use super::error::ConfigError;
use super::ranges::not_empty;
use super::settings::Settings;
use super::values::ArrivalChecksums;
use super::{accounts, data, group_limits, limits, security};

/// The address of a server without `--listen`.
const DEFAULT_LISTEN: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 2811);

impl Config {
    /// The configuration of these settings, with defaults.
    pub(super) fn resolve(mut settings: Settings) -> Result<Self, ConfigError> {
        let anonymous = match (
            settings.anonymous,
            settings.anonymous_write.unwrap_or(false),
        ) {
            (Some(true), write) => Some(Anonymous {
                names: not_empty("anonymous-names", settings.anonymous_names.take())?
                    .unwrap_or_else(|| vec!["anonymous".to_owned(), "ftp".to_owned()]),
                write,
            }),
            (_, true) => return Err(ConfigError::WriteWithoutAnonymous),
            (_, false) => None,
        };
        let security = security::resolve(&mut settings)?;
        let accounts = accounts::resolve(&settings)?;
        let fits = |text: &String| text.len() <= 1000 && !text.chars().any(char::is_control);
        if !settings.banner.as_ref().is_none_or(fits) {
            return Err(ConfigError::Banner);
        }
        let limits = limits::resolve(&settings)?;
        let data = data::resolve(&settings)?;
        let arrival = settings.arrival_checksums.unwrap_or_default();
        Ok(Self {
            root: settings.root.unwrap_or_else(|| PathBuf::from(".")),
            listen: not_empty("listen", settings.listen)?.unwrap_or_else(|| vec![DEFAULT_LISTEN]),
            anonymous,
            passwords: settings.passwords,
            security,
            accounts,
            user: settings.user.unwrap_or_else(|| "nobody".to_owned()),
            perms: settings.perms.map_or(0o644, |mode| mode.0),
            banner: settings.banner,
            limits,
            data,
            handling: Handling {
                sync: settings.sync_files.unwrap_or_default().0,
                ordered: settings.ordered_writes.unwrap_or(false),
                sparse: settings.sparse_files.unwrap_or(false),
                requested_checksums: arrival == ArrivalChecksums::Asked,
                checksums: match arrival {
                    ArrivalChecksums::Asked => Vec::new(),
                    ArrivalChecksums::Named(algorithms) => algorithms,
                },
                ..Handling::default()
            },
            group_limits: group_limits::resolve(settings.limit)?,
            atomic_uploads: settings.atomic_uploads.unwrap_or_default(),
            checksum_key: settings.checksum_key,
            metrics_listen: settings.metrics_listen,
            transfer_log: settings.transfer_log,
            log: Log {
                file: settings.log_file,
                format: settings.log_format.unwrap_or_default(),
                level: settings.log_level.unwrap_or_else(|| "info".to_owned()),
            },
        })
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::config::ServeArguments;

    fn anonymous() -> Settings {
        Settings {
            anonymous: Some(true),
            ..Settings::default()
        }
    }

    #[test]
    fn no_argument_at_all_is_read_only_access_for_anonymous_users_of_this_machine() {
        let config = Config::load(&ServeArguments::default()).expect("valid");
        assert_eq!(config.root, PathBuf::from("."));
        assert_eq!(config.listen, [DEFAULT_LISTEN]);
        assert!(config.anonymous.is_some_and(|anonymous| !anonymous.write));
    }

    #[test]
    fn anybody_else_must_be_let_in_by_a_word() {
        let arguments = ServeArguments {
            settings: Settings {
                root: Some("/srv".into()),
                ..Settings::default()
            },
            ..ServeArguments::default()
        };
        let error = Config::load(&arguments).expect_err("nobody");
        assert!(matches!(error, ConfigError::NobodyCanLogIn));
        let settings = Settings {
            anonymous_write: Some(true),
            passwords: Some("/etc/passwords".into()),
            ..Settings::default()
        };
        assert!(matches!(
            Config::resolve(settings),
            Err(ConfigError::WriteWithoutAnonymous)
        ));
    }

    #[test]
    fn flags_win_over_the_file() {
        let flags = Settings {
            idle_timeout: Some(5),
            ..anonymous()
        };
        let file = Settings {
            idle_timeout: Some(7),
            login_timeout: Some(9),
            ..Settings::default()
        };
        let config = Config::resolve(flags.or(file)).expect("valid");
        assert_eq!(config.limits.idle_timeout, Duration::from_secs(5));
        assert_eq!(config.limits.login_timeout, Duration::from_secs(9));
    }

    #[test]
    fn numbers_out_of_range_are_named() {
        let error = Config::resolve(Settings {
            stripes: Some(65),
            ..anonymous()
        })
        .expect_err("65");
        assert_eq!(
            error.to_string(),
            "stripes must be between 1 and 64, not 65"
        );
        let error = Config::resolve(Settings {
            idle_timeout: Some(0),
            ..anonymous()
        })
        .expect_err("0");
        assert!(
            error
                .to_string()
                .starts_with("idle-timeout must be between 1"),
            "{error}"
        );
        let error = Config::resolve(Settings {
            listen: Some(Vec::new()),
            ..anonymous()
        })
        .expect_err("[]");
        assert!(error.to_string().starts_with("listen is empty"), "{error}");
    }

    #[test]
    fn a_greeting_is_one_line() {
        let settings = Settings {
            banner: Some("two\r\n500 lines".into()),
            ..anonymous()
        };
        assert!(matches!(
            Config::resolve(settings),
            Err(ConfigError::Banner)
        ));
    }
}
