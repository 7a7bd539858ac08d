//! From the arguments of a command to a configuration.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use clap::CommandFactory as _;
use gridhaul_security::files::{OpenFiles, OwnRights};

use super::admin::{AdminSocket, Administration};
use super::as_node;
use super::configuration::Config;
use super::error::ConfigError;
use super::file::{self, FromFile};
use super::flags::{CommandLine, ServeArguments, default};
use super::keys::Keys;
use super::places::NODE_IDENTITY;
use super::problem::{Problem, WrongFlag};
use super::resolve::DEFAULT_LISTEN;
use super::settings::Settings;
use super::sources::{ConfigErrors, Sources};
use super::values::DataHosts;

/// A configuration with all that is wrong with it.
#[derive(Debug)]
pub(crate) struct Loaded {
    /// Where settings are wrong, their defaults stand in. It must not be used then.
    pub(crate) config: Config,
    pub(crate) problems: Vec<Problem>,
    pub(crate) sources: Sources,
}

impl Loaded {
    /// The configuration of the arguments of `serve`: the flags, then the file, then the defaults. Without arguments it is
    /// anonymous, read-only access to the current directory. `opener` opens the file.
    pub(crate) fn new(arguments: &ServeArguments, opener: &dyn OpenFiles) -> Self {
        let mut given = Given::new(arguments, opener);
        if *arguments == ServeArguments::default() {
            given.settings.anonymous = Some(true);
        }
        let of_node = [
            (
                "control-servers",
                given.settings.control_servers.take().is_some(),
            ),
            (
                "node-identity",
                given.settings.node_identity.take().is_some(),
            ),
        ];
        for (key, _) in of_node.into_iter().filter(|(_, is_given)| *is_given) {
            let problem = given.sources.problem_of(&ConfigError::OfNode(key));
            given.problems.push(problem);
        }
        let mut loaded = given.resolve();
        // With other errors, a way in may only be misspelt.
        if loaded.problems.is_empty() && !loaded.config.admits_users() {
            let problem = loaded.sources.problem_of(&ConfigError::NoWayToLogIn);
            loaded.problems.push(problem);
        }
        loaded
    }

    /// The configuration of the arguments of `node`, which has no users of its own. Settings of a server are problems.
    pub(crate) fn of_node(arguments: &ServeArguments, opener: &dyn OpenFiles) -> Self {
        let mut given = Given::new(arguments, opener);
        let wrong = given.settings.given();
        let wrong = wrong.into_iter().filter(|key| !as_node::has(key));
        let wrong = wrong.map(|key| given.sources.problem_of(&ConfigError::OfServer(key)));
        given.problems.extend(wrong);
        given.settings = given.settings.only(as_node::has);
        given.resolve_with(Config::resolve_node)
    }

    fn checked(self) -> Result<Config, ConfigErrors> {
        ConfigErrors::of(self.problems).map(|()| self.config)
    }
}

impl Config {
    /// The configuration of the arguments of `serve`: the flags, then the file, then the defaults. Without arguments it is
    /// anonymous, read-only access to the current directory.
    ///
    /// # Errors
    ///
    /// When the file is wrong or the settings do not fit together.
    pub fn load(arguments: &ServeArguments) -> Result<Self, ConfigErrors> {
        Self::load_with(arguments, &OwnRights)
    }

    /// As [`Config::load`], from a file that `opener` opens.
    pub(crate) fn load_with(
        arguments: &ServeArguments,
        opener: &dyn OpenFiles,
    ) -> Result<Self, ConfigErrors> {
        Loaded::new(arguments, opener).checked()
    }

    /// The socket of the administration interface in a configuration file, and the port of the first listener: what a
    /// program needs that talks to the server of the file. Other keys may be wrong.
    ///
    /// # Errors
    ///
    /// When the file cannot be read.
    pub(crate) fn admin_socket_of(path: &Path) -> Result<(AdminSocket, u16), ConfigErrors> {
        let arguments = ServeArguments {
            config: Some(path.to_owned()),
            ..ServeArguments::default()
        };
        let mut given = Given::new(&arguments, &OwnRights);
        if given.sources.lines.is_empty() {
            ConfigErrors::of(std::mem::take(&mut given.problems))?;
        }
        let config = given.resolve().config;
        let listen = config.listen.first();
        let port = listen.map_or(DEFAULT_LISTEN.port(), SocketAddr::port);
        Ok((config.admin.socket, port))
    }

    /// The configuration of the arguments of `ssh`, which has a single user: settings about logins are ignored. As with
    /// globus-gridftp-server, the user sees the whole machine and may copy from and to any host. The log would appear on the
    /// user's terminal, so it is written only to a configured file.
    ///
    /// # Errors
    ///
    /// When the file is wrong or the settings do not fit together.
    pub fn load_for_ssh(arguments: &ServeArguments) -> Result<Self, ConfigErrors> {
        let mut given = Given::new(arguments, &OwnRights);
        if given.settings.encrypt_data == Some(true) {
            let problem = given.sources.problem_of(&ConfigError::SshIsClear);
            given.problems.push(problem);
        }
        if given.settings.nodes.is_some() {
            let problem = given.sources.problem_of(&ConfigError::SshHasNoNodes);
            given.problems.push(problem);
        }
        let settings = std::mem::take(&mut given.settings);
        given.settings = Settings {
            root: settings.root.or_else(|| Some("/".into())),
            data_hosts: settings.data_hosts.or_else(|| Some(vec![DataHosts::Any])),
            log_file: settings.log_file.or_else(|| Some("/dev/null".into())),
            anonymous: None,
            anonymous_write: None,
            anonymous_names: None,
            passwords: None,
            gsi: None,
            cert: None,
            key: None,
            key_passphrase: None,
            trust: None,
            gridmap: None,
            vomsdir: None,
            ban_list: None,
            gridmapdir: None,
            authz_callout: None,
            authz_callout_timeout: None,
            ignore_gsi_authz: None,
            authorize: None,
            allow_independent_proxies: None,
            tls: None,
            tls_versions: None,
            encrypt_data: None,
            require_dcau: None,
            delegation_keys: None,
            allow_root: None,
            allow_disabled_login: None,
            least_uid: None,
            pam_service: None,
            umask: None,
            max_brokers: None,
            broker_idle_timeout: None,
            admin_listen: None,
            admin_socket: None,
            admin_token: None,
            admin_cert: None,
            admin_key: None,
            admin_clients: None,
            admin_subjects: None,
            admin_names: None,
            nodes: None,
            control_servers: None,
            node_authority: None,
            node_identity: None,
            // Each session has a process of its own.
            limit: None,
            ..settings
        };
        let config = given.resolve().checked()?;
        Ok(Self {
            listen: Vec::new(),
            metrics_listen: None,
            admin: Administration::none(),
            ..config
        })
    }

    /// The file for the identity of an enrolled node, whether it is there or not. Other settings may be wrong.
    ///
    /// # Errors
    ///
    /// When the configuration file cannot be read.
    pub(crate) fn node_identity_of(arguments: &ServeArguments) -> Result<PathBuf, ConfigErrors> {
        let given = Given::new(arguments, &OwnRights);
        if arguments.config.is_some() && given.sources.lines.is_empty() {
            ConfigErrors::of(given.problems)?;
        }
        let named = given.settings.node_identity;
        Ok(named.unwrap_or_else(|| PathBuf::from(NODE_IDENTITY)))
    }

    fn admits_users(&self) -> bool {
        self.anonymous.is_some() || self.passwords.is_some() || self.security.gsi.is_some()
    }
}

/// The settings of the flags, and of the file that they name.
struct Given {
    settings: Settings,
    keys: Keys,
    sources: Sources,
    problems: Vec<Problem>,
}

impl Given {
    fn new(arguments: &ServeArguments, opener: &dyn OpenFiles) -> Self {
        let mut problems = Vec::new();
        let command = CommandLine::command();
        let read = match &arguments.config {
            Some(path) => file::read(path, opener),
            None => Ok(FromFile::default()),
        };
        let mut sources = Sources {
            flags: arguments.settings.given().into_iter().collect(),
            file: arguments.config.clone(),
            ..Sources::default()
        };
        let from_file = read.unwrap_or_else(|error| {
            problems.push(sources.problem_of(&error.into()));
            FromFile::default()
        });
        problems.extend(arguments.wrong.iter().map(WrongFlag::problem));
        problems.extend(from_file.problems);
        sources.lines = from_file.lines;
        sources.tables = from_file.tables;
        let settings = arguments.settings.clone().or(from_file.settings);
        let source = |key: &str| sources.source(key);
        let keys = settings.in_force(&source, &|name| default(&command, name));
        Self {
            settings,
            keys,
            sources,
            problems,
        }
    }

    fn resolve(self) -> Loaded {
        self.resolve_with(Config::resolve)
    }

    fn resolve_with(self, resolve: fn(Settings) -> (Config, Vec<ConfigError>)) -> Loaded {
        let (config, errors) = resolve(self.settings);
        let config = Config {
            keys: self.keys,
            ..config
        };
        let errors = errors.iter().map(|error| self.sources.problem_of(error));
        let mut problems = self.problems;
        problems.extend(errors);
        Loaded {
            config,
            problems,
            sources: self.sources,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::config::Seconds;

    #[test]
    fn a_session_of_ssh_has_its_user_and_no_other_way_in() {
        let load = |settings: Settings| {
            Config::load_for_ssh(&ServeArguments {
                settings,
                ..ServeArguments::default()
            })
        };
        let config = load(Settings {
            passwords: Some("/nonexistent".into()),
            gsi: Some(true),
            idle_timeout: Some(Seconds(5)),
            anonymous: Some(true),
            ..Settings::default()
        })
        .expect("valid");
        assert!(!config.admits_users());
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
        let error = load(encrypted).expect_err("clear").to_string();
        assert!(
            error.starts_with("--encrypt-data: the data channels"),
            "{error}"
        );
        let with_nodes = Settings {
            nodes: Some(vec!["dtn1.example.org".parse().expect("a node")]),
            ..Settings::default()
        };
        let error = load(with_nodes).expect_err("no key").to_string();
        assert!(error.starts_with("--nodes: sessions of ssh"), "{error}");
    }
}
