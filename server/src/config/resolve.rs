//! From settings to a configuration: defaults, and settings that do not fit together.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::PathBuf;

use gridhaul_transfer::Handling;

use super::configuration::{Anonymous, Config, Log};
use super::error::ConfigError;
use super::invite_command::CONTROL_FILE;
use super::keys::Keys;
use super::listen::{ListenAddress, has_ipv6};
use super::ranges::{not_empty, seconds};
use super::settings::Settings;
use super::values::ArrivalChecksums;
use super::{accounts, admin, data, group_limits, limits, nodes, security};

/// The address of a server without `--listen`.
pub(super) const DEFAULT_LISTEN: SocketAddr =
    SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 2811);

impl Config {
    /// The configuration of these settings, with defaults. A setting with an error has its default, so that all errors are
    /// found at once; with an error, the configuration must not be used.
    pub(super) fn resolve(mut settings: Settings) -> (Self, Vec<ConfigError>) {
        let mut found = Vec::new();
        let errors = &mut found;
        let anonymous = anonymous(errors, &mut settings);
        let nodes = nodes::resolve(errors, &mut settings);
        let security = security::resolve(errors, &mut settings);
        let accounts = accounts::resolve(errors, &settings);
        let fits = |text: &String| text.len() <= 1000 && !text.chars().any(char::is_control);
        if !settings.banner.as_ref().is_none_or(fits) {
            errors.push(ConfigError::Banner);
        }
        let limits = limits::resolve(errors, &settings);
        let admin = admin::resolve(errors, &mut settings);
        let data = data::resolve(errors, &settings, nodes.len());
        let arrival = settings.arrival_checksums.unwrap_or_default();
        let has_ipv6 = has_ipv6();
        let listen = not_empty(errors, "listen", settings.listen).map_or_else(
            || vec![DEFAULT_LISTEN],
            |listen| {
                let all = listen.into_iter();
                all.flat_map(|address| address.everywhere(has_ipv6))
                    .collect()
            },
        );
        let callout_timeout = settings.authz_callout_timeout;
        let config = Self {
            authz_callout: settings.authz_callout,
            authz_callout_timeout: seconds(errors, "authz-callout-timeout", callout_timeout, 10),
            root: settings.root.unwrap_or_else(|| PathBuf::from(".")),
            listen,
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
            group_limits: group_limits::resolve(errors, settings.limit),
            atomic_uploads: settings.atomic_uploads.unwrap_or_default(),
            checksum_key: settings.checksum_key,
            nodes,
            nodes_resolver: settings.nodes_resolver.unwrap_or_default(),
            node_authority: settings
                .node_authority
                .map(|directory| directory.join(CONTROL_FILE)),
            node: None,
            metrics_listen: settings.metrics_listen.map(ListenAddress::on_this_machine),
            admin,
            transfer_log: settings.transfer_log,
            log: Log {
                file: settings.log_file,
                format: settings.log_format.unwrap_or_default(),
                level: settings.log_level.unwrap_or_default().0,
                audit: settings.audit_log,
            },
            keys: Keys::default(),
        };
        (config, found)
    }
}

fn anonymous(errors: &mut Vec<ConfigError>, settings: &mut Settings) -> Option<Anonymous> {
    let names = not_empty(errors, "anonymous-names", settings.anonymous_names.take());
    if names.iter().flatten().any(|name| name.trim().is_empty()) {
        errors.push(ConfigError::AnonymousName);
    }
    let write = settings.anonymous_write.unwrap_or(false);
    if settings.anonymous == Some(true) {
        let names = names.unwrap_or_else(|| vec!["anonymous".to_owned(), "ftp".to_owned()]);
        return Some(Anonymous { names, write });
    }
    if write {
        errors.push(ConfigError::Needs("anonymous-write", "--anonymous"));
    }
    if names.is_some() {
        errors.push(ConfigError::Needs("anonymous-names", "--anonymous"));
    }
    None
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::config::{Seconds, ServeArguments};

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

    /// The errors of settings.
    fn errors(settings: Settings) -> Vec<String> {
        let (_, errors) = Config::resolve(settings);
        errors.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn no_user_is_admitted_without_a_setting_that_says_so() {
        let arguments = ServeArguments {
            settings: Settings {
                root: Some("/srv".into()),
                ..Settings::default()
            },
            ..ServeArguments::default()
        };
        let error = Config::load(&arguments)
            .expect_err("no way to log in")
            .to_string();
        assert!(error.starts_with("no user could log in"), "{error}");
        let settings = Settings {
            anonymous_write: Some(true),
            anonymous_names: Some(vec!["guest".to_owned()]),
            passwords: Some("/etc/passwords".into()),
            ..Settings::default()
        };
        let words = [
            "anonymous-write needs --anonymous",
            "anonymous-names needs --anonymous",
        ];
        for (error, words) in errors(settings).iter().zip(words) {
            assert!(error.starts_with(words), "{error}");
        }
    }

    #[test]
    fn flags_win_over_the_file() {
        let flags = Settings {
            idle_timeout: Some(Seconds(5)),
            ..anonymous()
        };
        let file = Settings {
            idle_timeout: Some(Seconds(7)),
            login_timeout: Some(Seconds(9)),
            ..Settings::default()
        };
        let (config, _) = Config::resolve(flags.or(file));
        assert_eq!(config.limits.idle_timeout, Duration::from_secs(5));
        assert_eq!(config.limits.login_timeout, Duration::from_secs(9));
    }

    #[test]
    fn all_errors_are_named_at_once() {
        let errors = errors(Settings {
            stripes: Some(65),
            idle_timeout: Some(Seconds(0)),
            listen: Some(Vec::new()),
            banner: Some("two\r\n500 lines".into()),
            gridmap: Some("/map".into()),
            ..anonymous()
        });
        let expected = [
            "gridmap needs --gsi",
            "banner must be one line",
            "idle-timeout must be between 1",
            "stripes must be between 1 and 64, not 65",
            "listen is empty",
        ];
        assert_eq!(errors.len(), expected.len(), "{errors:?}");
        for (error, words) in errors.iter().zip(expected) {
            assert!(error.starts_with(words), "{error}");
        }
    }
}
