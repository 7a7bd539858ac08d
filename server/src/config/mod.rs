//! What the server is told to do: settings from flags and a file, with defaults filled in.
//!
//! [`Settings`] is the one list of settings; a [`Config`] is what follows from it, complete and checked.

mod accounts;
mod authorization;
mod error;
mod file;
mod flags;
mod max_startups;
mod places;
mod resolve;
mod security;
mod settings;
mod tls_versions;
mod values;

use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use gridhaul_security::files::{OpenFiles, OwnRights};
use gridhaul_stack::OptionRules;
use gridhaul_transfer::{AddressBlock, Admission, Handling};

pub use accounts::LocalAccounts;
pub use authorization::{Claimant, MemberOf, Outcome, Rule};
pub use error::ConfigError;
pub use file::FileError;
pub use flags::{CheckArguments, Command, CommandLine, PasswdArguments, ServeArguments};
pub use max_startups::{MaxStartups, MaxStartupsError};
pub use security::{Gsi, HostFiles, Security};
pub use settings::Settings;
pub use tls_versions::TlsRange;
pub use values::{
    ArrivalChecksums, Bytes, ClientOptions, DataHosts, ExemptBlock, FileMode, KeyKind, LogFormat,
    PortRange, SyncFiles, ValueError,
};

/// A complete configuration.
#[derive(Debug, Clone, PartialEq)]
pub struct Config {
    /// The directory that is served.
    pub root: PathBuf,
    /// Where control connections are accepted: at least one address, unless ssh has brought the one.
    pub listen: Vec<SocketAddr>,
    /// Whether, and how, anonymous users are let in.
    pub anonymous: Option<Anonymous>,
    /// The file of users with passwords.
    pub passwords: Option<PathBuf>,
    /// How identities are proved.
    pub security: Security,
    /// How local accounts are used.
    pub accounts: LocalAccounts,
    /// The account to run as when started as root.
    pub user: String,
    /// The permission bits of new files.
    pub perms: u32,
    /// What the greeting says.
    pub banner: Option<String>,
    /// How much of everything there may be.
    pub limits: Limits,
    /// How data connections are made.
    pub data: DataConnections,
    /// Where metrics can be had.
    pub metrics_listen: Option<SocketAddr>,
    /// The file that gets a line for each transfer.
    pub transfer_log: Option<PathBuf>,
    /// How transfers treat files.
    pub handling: Handling,
    /// The file with the key of the checksums that files carry, if they do.
    pub checksum_key: Option<PathBuf>,
    /// The log.
    pub log: Log,
}

/// How anonymous users are let in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Anonymous {
    /// The names that they may use; `*` is any.
    pub names: Vec<String>,
    /// They may change things.
    pub write: bool,
}

/// How much of everything there may be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Limits {
    /// Control connections in all.
    pub connections: usize,
    /// Control connections from one address, or one IPv6 network of 64 bits.
    pub connections_per_address: usize,
    /// Connections that have not logged in.
    pub startups: MaxStartups,
    /// Where clients come from that get no penalties.
    pub penalty_exempt: Vec<AddressBlock>,
    /// Wrong passwords in one connection.
    pub login_attempts: u32,
    /// How long a client may take to log in.
    pub login_timeout: Duration,
    /// How long a session may do nothing.
    pub idle_timeout: Duration,
    /// A transfer must move `stall_bytes` in this time.
    pub stall_timeout: Duration,
    /// Bytes that a transfer must move in `stall_timeout`.
    pub stall_bytes: u64,
    /// How long to wait for data connections and announced ends of data.
    pub data_timeout: Duration,
    /// How long transfers may go on after SIGTERM.
    pub grace: Duration,
    /// Transfers at a time.
    pub transfers: usize,
    /// Threads that move data.
    pub movers: usize,
    /// Threads for other work on files.
    pub file_threads: usize,
    /// Threads that compute checksums, beside one for each that is asked for.
    pub checksum_threads: usize,
    /// Files whose checksums are remembered.
    pub remembered_checksums: usize,
    /// Bytes of memory for data on its way; `None` is what the machine allows.
    pub buffer_memory: Option<u64>,
    /// Bytes of memory for the rings of the driver `rdma`; `None` is what the machine allows.
    pub rdma_memory: Option<u64>,
}

/// How data connections are made.
#[derive(Debug, Clone, PartialEq)]
pub struct DataConnections {
    /// The ports of passive connections.
    pub port_range: Option<PortRange>,
    /// The local address of passive connections.
    pub address: Option<IpAddr>,
    /// The address that clients are told.
    pub advertise: Option<IpAddr>,
    /// Who may open data connections besides the control connection's peer.
    pub hosts: Vec<DataHosts>,
    /// Addresses in the answer to `SPAS`.
    pub stripes: usize,
    /// The driver stack.
    pub stack: String,
    /// The drivers that users who have logged in may ask for.
    pub allowed_drivers: Vec<String>,
    /// The drivers that anonymous users may ask for.
    pub anonymous_drivers: Vec<String>,
    /// What clients may set of the options of some drivers; of the others, what these document to be for clients.
    pub client_options: Vec<OptionRules>,
}

/// What is logged, where and how.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Log {
    /// The file; `None` is standard error.
    pub file: Option<PathBuf>,
    /// Text or JSON.
    pub format: LogFormat,
    /// Level, or rules.
    pub level: String,
}

impl Config {
    /// What follows from the arguments of `serve`: the flags, then the file, then the defaults. With
    /// no argument at all it is anonymous, read-only access to the current directory.
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

    /// What follows from the arguments of `ssh`, which has its one user already: settings about
    /// logging in mean nothing. As globus-gridftp-server has it, the user sees the whole machine and
    /// may copy from and to any host; and the log, which would end up at the user's terminal, is not
    /// written unless a file is named.
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

    /// This configuration for a server that runs already with `running`: what only a restart can
    /// change stays as it is. Also names what that was.
    #[must_use]
    pub fn reloaded(mut self, running: &Self) -> (Self, Vec<&'static str>) {
        let mut kept = Vec::new();
        let mut keep = |name, changed| {
            if changed {
                kept.push(name);
            }
        };
        // Started without it, the server has nothing that could act for other accounts.
        let switched = self.security.gsi.is_some() != running.security.gsi.is_some();
        keep("gsi", switched);
        if switched {
            self.security.clone_from(&running.security);
        }
        keep("listen", self.listen != running.listen);
        let monitor = (&self.accounts.monitor, &running.accounts.monitor);
        keep(
            "allow-root",
            monitor.0.policy.allow_root != monitor.1.policy.allow_root,
        );
        keep(
            "allow-disabled-login",
            monitor.0.policy.allow_disabled_login != monitor.1.policy.allow_disabled_login,
        );
        keep(
            "least-uid",
            monitor.0.policy.least_uid != monitor.1.policy.least_uid,
        );
        keep(
            "pam-service",
            monitor.0.pam_service != monitor.1.pam_service,
        );
        keep("umask", monitor.0.umask != monitor.1.umask);
        let brokers = (&self.accounts.brokers, &running.accounts.brokers);
        keep("max-brokers", brokers.0.brokers != brokers.1.brokers);
        keep("broker-idle-timeout", brokers.0.idle != brokers.1.idle);
        keep("user", self.user != running.user);
        keep("perms", self.perms != running.perms);
        keep(
            "data-timeout",
            self.limits.data_timeout != running.limits.data_timeout,
        );
        keep("movers", self.limits.movers != running.limits.movers);
        keep(
            "file-threads",
            self.limits.file_threads != running.limits.file_threads,
        );
        keep(
            "checksum-threads",
            self.limits.checksum_threads != running.limits.checksum_threads,
        );
        keep(
            "remembered-checksums",
            self.limits.remembered_checksums != running.limits.remembered_checksums,
        );
        keep("checksum-key", self.checksum_key != running.checksum_key);
        keep(
            "buffer-memory",
            self.limits.buffer_memory != running.limits.buffer_memory,
        );
        keep(
            "metrics-listen",
            self.metrics_listen != running.metrics_listen,
        );
        keep("transfer-log", self.transfer_log != running.transfer_log);
        keep("log-file", self.log.file != running.log.file);
        keep("log-format", self.log.format != running.log.format);
        self.listen.clone_from(&running.listen);
        self.accounts.clone_from(&running.accounts);
        self.user.clone_from(&running.user);
        self.perms = running.perms;
        self.limits.data_timeout = running.limits.data_timeout;
        self.limits.movers = running.limits.movers;
        self.limits.file_threads = running.limits.file_threads;
        self.limits.checksum_threads = running.limits.checksum_threads;
        self.limits.remembered_checksums = running.limits.remembered_checksums;
        self.checksum_key.clone_from(&running.checksum_key);
        self.limits.buffer_memory = running.limits.buffer_memory;
        self.metrics_listen = running.metrics_listen;
        self.transfer_log.clone_from(&running.transfer_log);
        self.log.file.clone_from(&running.log.file);
        self.log.format = running.log.format;
        (self, kept)
    }
}

/// The settings of the flags, and those of the file that they name.
fn settings(arguments: &ServeArguments, opener: &dyn OpenFiles) -> Result<Settings, ConfigError> {
    let from_file = match &arguments.config {
        Some(path) => file::read(path, opener)?,
        None => Settings::default(),
    };
    Ok(arguments.settings.clone().or(from_file))
}

impl DataConnections {
    /// Whether data channels may run over this transport: by the configured stack, or as a client asks.
    pub(crate) fn may_use(&self, transport: &str) -> bool {
        let is_default = self.stack.split([':', ',']).next() == Some(transport);
        let mut asked_for = self.allowed_drivers.iter().chain(&self.anonymous_drivers);
        is_default || asked_for.any(|driver| driver == transport)
    }

    /// Who may open data connections to a session whose control connection comes from `peer`.
    pub fn admission(&self, peer: IpAddr) -> Admission {
        let mut blocks = vec![AddressBlock::host(peer)];
        for hosts in &self.hosts {
            match hosts {
                DataHosts::Any => return Admission::Anyone,
                DataHosts::Block(block) => blocks.push(*block),
            }
        }
        Admission::Hosts(blocks)
    }

    /// The blocks that `data-hosts` names. `any` names none.
    pub fn named_hosts(&self) -> Vec<AddressBlock> {
        let named = self.hosts.iter().filter_map(|hosts| match hosts {
            DataHosts::Any => None,
            DataHosts::Block(block) => Some(*block),
        });
        named.collect()
    }

    /// Whether some users may ask for a driver.
    pub fn may_be_asked_for(&self, driver: &str) -> bool {
        let mut drivers = self.allowed_drivers.iter().chain(&self.anonymous_drivers);
        drivers.any(|name| name == driver)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn anonymous() -> Settings {
        Settings {
            anonymous: Some(true),
            ..Settings::default()
        }
    }

    #[test]
    fn only_the_peer_may_open_data_connections_until_others_are_named() {
        let peer: IpAddr = "192.0.2.1".parse().expect("an address");
        let other: IpAddr = "192.0.2.2".parse().expect("an address");
        let admission = |hosts: &[&str]| {
            let hosts = hosts
                .iter()
                .map(|host| host.parse().expect("hosts"))
                .collect();
            let config = Config::resolve(Settings {
                data_hosts: Some(hosts),
                ..anonymous()
            });
            config.expect("valid").data.admission(peer)
        };
        assert!(admission(&[]).admits(peer));
        assert!(!admission(&[]).admits(other));
        assert!(admission(&["192.0.2.2"]).admits(other));
        assert!(admission(&["192.0.2.2"]).admits(peer));
        assert!(admission(&["any"]).admits(other));
    }

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
            ..anonymous()
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

    #[test]
    fn a_reload_changes_what_it_can_and_names_the_rest() {
        let running = Config::resolve(anonymous()).expect("valid");
        let changed = Settings {
            movers: Some(3),
            idle_timeout: Some(5),
            ..anonymous()
        };
        let (config, kept) = Config::resolve(changed).expect("valid").reloaded(&running);
        assert_eq!(kept, ["movers"]);
        assert_eq!(config.limits.movers, running.limits.movers);
        assert_eq!(config.limits.idle_timeout, Duration::from_secs(5));
    }
}
