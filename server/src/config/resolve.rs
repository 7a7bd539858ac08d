//! Defaults, and what does not fit together.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use gridhaul_transfer::Handling;

use super::{
    Anonymous, ArrivalChecksums, ClientOptions, Config, ConfigError, DataConnections, ExemptBlock,
    Limits, Log, PortRange, Settings,
};
use super::{accounts, security};

/// Where a server listens that was not told where.
const DEFAULT_LISTEN: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 2811);

/// The variable that tells Globus programs which ports to use.
pub(super) const PORT_RANGE_VARIABLE: &str = "GLOBUS_TCP_PORT_RANGE";

impl Config {
    /// What follows from settings.
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
        let port_range = match settings.port_range {
            Some(range) => Some(range),
            None => port_range_of_environment()?,
        };
        let allowed_drivers = settings.allowed_drivers.unwrap_or_else(|| {
            ALLOWED_DRIVERS
                .iter()
                .map(|name| (*name).to_owned())
                .collect()
        });
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
            limits: Limits {
                connections: count("max-connections", settings.max_connections, 2000)?,
                connections_per_address: count(
                    "max-connections-per-address",
                    settings.max_connections_per_address,
                    1000,
                )?,
                startups: settings.max_startups.unwrap_or_default(),
                penalty_exempt: settings
                    .penalty_exempt
                    .unwrap_or_default()
                    .into_iter()
                    .map(|ExemptBlock(block)| block)
                    .collect(),
                login_attempts: between(
                    "max-login-attempts",
                    settings.max_login_attempts,
                    3,
                    1,
                    1000,
                )?,
                login_timeout: seconds("login-timeout", settings.login_timeout, 120)?,
                idle_timeout: seconds("idle-timeout", settings.idle_timeout, 600)?,
                stall_timeout: seconds("stall-timeout", settings.stall_timeout, 600)?,
                stall_bytes: settings.stall_bytes.map_or(64 << 10, |bytes| bytes.0),
                data_timeout: seconds("data-timeout", settings.data_timeout, 30)?,
                grace: Duration::from_secs(between("grace", settings.grace, 60, 0, MOST_SECONDS)?),
                transfers: count("max-transfers", settings.max_transfers, 500)?,
                movers: count("movers", settings.movers, 1024)?,
                file_threads: between("file-threads", settings.file_threads, 64, 2, 4096)?,
                checksum_threads: between(
                    "checksum-threads",
                    settings.checksum_threads,
                    processors(),
                    0,
                    4096,
                )?,
                remembered_checksums: between(
                    "remembered-checksums",
                    settings.remembered_checksums,
                    100_000,
                    0,
                    100_000_000,
                )?,
                buffer_memory: match settings.buffer_memory {
                    Some(bytes) => Some(between(
                        "buffer-memory",
                        Some(bytes.0),
                        0,
                        8 << 20,
                        1 << 50,
                    )?),
                    None => None,
                },
                rdma_memory: match settings.rdma_memory {
                    Some(bytes) => {
                        Some(between("rdma-memory", Some(bytes.0), 0, 1 << 20, 1 << 50)?)
                    }
                    None => None,
                },
            },
            data: DataConnections {
                port_range,
                address: settings.data_address,
                advertise: settings.advertise_address,
                hosts: settings.data_hosts.unwrap_or_default(),
                stripes: between("stripes", settings.stripes, 1, 1, 64)?,
                stack: settings.stack.unwrap_or_else(|| STACK.to_owned()),
                anonymous_drivers: settings
                    .anonymous_drivers
                    .unwrap_or_else(|| for_anonymous_users(&allowed_drivers)),
                allowed_drivers,
                client_options: settings
                    .client_options
                    .unwrap_or_default()
                    .into_iter()
                    .map(|ClientOptions(rules)| rules)
                    .collect(),
            },
            handling: Handling {
                sync: settings.sync_files.unwrap_or_default().0,
                ordered: settings.ordered_writes.unwrap_or(false),
                sparse: settings.sparse_files.unwrap_or(false),
                requested_checksums: arrival == ArrivalChecksums::Asked,
                checksums: match arrival {
                    ArrivalChecksums::Asked => Vec::new(),
                    ArrivalChecksums::Named(algorithms) => algorithms,
                },
            },
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

/// The stack, where the configuration does not say.
const STACK: &str = if cfg!(feature = "splice") {
    "auto"
} else {
    "tcp"
};

/// The drivers that users who have logged in may name, where the configuration does not say: those that the program has, and
/// that need no configuration.
const ALLOWED_DRIVERS: &[&str] = match (cfg!(feature = "splice"), cfg!(feature = "rdma")) {
    (true, true) => &["auto", "tcp", "splice", "rdma"],
    (true, false) => &["auto", "tcp", "splice"],
    (false, true) => &["tcp", "rdma"],
    (false, false) => &["tcp"],
};

/// What anonymous users may name of the drivers that others may, where the configuration does not say. Channels of other
/// drivers hold memory for as long as they are open, and processors or adapters that an administrator may want to keep.
fn for_anonymous_users(allowed: &[String]) -> Vec<String> {
    const PLAIN: [&str; 3] = ["auto", "tcp", "splice"];
    let plain = allowed.iter().filter(|name| PLAIN.contains(&name.as_str()));
    plain.cloned().collect()
}

fn processors() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

/// A year: what is longer was meant otherwise.
const MOST_SECONDS: u64 = 366 * 24 * 3600;

pub(super) fn seconds(
    name: &'static str,
    value: Option<u64>,
    default: u64,
) -> Result<Duration, ConfigError> {
    between(name, value, default, 1, MOST_SECONDS).map(Duration::from_secs)
}

pub(super) fn count(
    name: &'static str,
    value: Option<usize>,
    default: usize,
) -> Result<usize, ConfigError> {
    between(name, value, default, 1, 1_000_000)
}

pub(super) fn between<N: Copy + PartialOrd + TryInto<u64>>(
    name: &'static str,
    value: Option<N>,
    default: N,
    least: N,
    most: N,
) -> Result<N, ConfigError> {
    let wide = |number: N| number.try_into().unwrap_or(u64::MAX);
    match value {
        Some(value) if value < least || value > most => Err(ConfigError::OutOfRange {
            name,
            value: wide(value),
            least: wide(least),
            most: wide(most),
        }),
        Some(value) => Ok(value),
        None => Ok(default),
    }
}

fn not_empty<T>(name: &'static str, list: Option<Vec<T>>) -> Result<Option<Vec<T>>, ConfigError> {
    match list {
        Some(list) if list.is_empty() => Err(ConfigError::Empty(name)),
        list => Ok(list),
    }
}

fn port_range_of_environment() -> Result<Option<PortRange>, ConfigError> {
    match std::env::var(PORT_RANGE_VARIABLE) {
        Ok(text) => text
            .parse()
            .map(Some)
            .map_err(ConfigError::PortRangeVariable),
        Err(_) => Ok(None),
    }
}

#[cfg(test)]
mod tests {
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
    fn anonymous_users_have_rdma_only_where_it_is_named_for_them() {
        let drivers = |allowed: Option<&[&str]>, anonymous_drivers: Option<&[&str]>| {
            let list = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
            let config = Config::resolve(Settings {
                allowed_drivers: allowed.map(list),
                anonymous_drivers: anonymous_drivers.map(list),
                ..anonymous()
            });
            let data = config.expect("valid").data;
            (data.allowed_drivers, data.anonymous_drivers)
        };
        let (allowed, of_anonymous) = drivers(None, None);
        assert_eq!(allowed, ALLOWED_DRIVERS);
        assert_eq!(allowed.contains(&"rdma".to_owned()), cfg!(feature = "rdma"));
        assert!(!of_anonymous.contains(&"rdma".to_owned()));
        let (_, of_anonymous) = drivers(Some(&["tcp", "rdma"]), None);
        assert_eq!(of_anonymous, ["tcp"]);
        let (allowed, of_anonymous) = drivers(Some(&["tcp"]), Some(&["rdma"]));
        assert_eq!(allowed, ["tcp"]);
        assert_eq!(of_anonymous, ["rdma"]);
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
