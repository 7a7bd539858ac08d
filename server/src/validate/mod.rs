//! Whether a configuration can take effect: one judgement for `serve`, `check` and reloads.
//!
//! [`crate::config`] reads settings, and finds those that are no values or do not fit together. This module finds those that
//! the drivers, the machine or the files do not bear out. All problems are collected, so that one run names all of them.

mod addresses;
mod apart;
mod credential;
mod files;
mod identity;
mod nodes;
mod roots;
mod settings;

use std::net::SocketAddr;

use gridhaul_security::files::{OpenFiles, OwnRights};

use crate::config::{Config, ConfigErrors, Loaded, Place, Problem, ServeArguments, Sources};
use crate::drivers;
use crate::server::PassedPlaces;

pub(crate) use apart::in_child;
pub(crate) use identity::read as read_identity;

/// A configuration, and what is wrong with it.
#[derive(Debug)]
pub(crate) struct Validated {
    /// Where settings are wrong, their defaults stand in. It must not be used then.
    pub(crate) config: Config,
    /// The errors.
    pub(crate) problems: Vec<Problem>,
    /// The settings without effect, and those that may surprise.
    pub(crate) warnings: Vec<Problem>,
    /// What another program has: an error for a server that starts. For `check`, a server with this configuration may run.
    pub(crate) in_use: Vec<InUse>,
    /// The places of sockets that the program was started with.
    passed: PassedPlaces,
    sources: Sources,
}

/// An address, or the administration socket, that another program has.
#[derive(Debug)]
pub(crate) struct InUse {
    pub(crate) key: &'static str,
    /// `None` for the socket.
    pub(crate) address: Option<SocketAddr>,
    pub(crate) problem: Problem,
}

impl Validated {
    /// For the start of a server, which has the rights of the administrator, and sockets at the places `passed`.
    pub(crate) fn for_start(arguments: &ServeArguments, passed: &PassedPlaces) -> Self {
        Self::of(Loaded::new(arguments, &OwnRights)).at(passed)
    }

    /// For the start of a data node, likewise.
    pub(crate) fn for_node(arguments: &ServeArguments, passed: &PassedPlaces) -> Self {
        Self::of(Loaded::of_node(arguments, &OwnRights)).at(passed)
    }

    /// For a reload: the files were opened with more rights than the server has now, and are read by those who need them.
    pub(crate) fn for_reload(arguments: &ServeArguments, opener: &dyn OpenFiles) -> Self {
        Self::of(Loaded::new(arguments, opener))
    }

    /// Examines what needs other rights after the start, too.
    fn at(mut self, passed: &PassedPlaces) -> Self {
        self.passed = passed.clone();
        addresses::check_listeners(&mut self);
        addresses::check_admin_socket(&mut self);
        apart::check_files(&mut self);
        self.problems.sort_by_key(Problem::line);
        self
    }

    fn of(loaded: Loaded) -> Self {
        let Loaded {
            config,
            problems,
            sources,
        } = loaded;
        let mut validated = Self {
            config,
            problems,
            warnings: Vec::new(),
            in_use: Vec::new(),
            passed: PassedPlaces::default(),
            sources,
        };
        settings::check(&mut validated, &drivers::registry());
        nodes::check(&mut validated);
        addresses::check_data_addresses(&mut validated);
        addresses::check_port_range(&mut validated);
        addresses::check_repeated(&mut validated);
        validated
    }

    /// The configuration and its warnings, if there is no error.
    pub(crate) fn checked(mut self) -> Result<(Config, Vec<Problem>), ConfigErrors> {
        let in_use = self.in_use.into_iter().map(|one| one.problem);
        self.problems.extend(in_use);
        self.problems.sort_by_key(Problem::line);
        ConfigErrors::of(self.problems)?;
        Ok((self.config, self.warnings))
    }

    /// Whether one of the errors belongs to this setting.
    pub(crate) fn is_wrong(&self, key: &str) -> bool {
        let mut keys = self.problems.iter().map(|problem| problem.key.as_deref());
        keys.any(|wrong| wrong == Some(key))
    }

    /// All addresses to listen at, with their settings.
    pub(crate) fn listeners(&self) -> impl Iterator<Item = (&'static str, SocketAddr)> {
        addresses::listeners(&self.config)
    }

    /// Whether the program was started with a socket in place of this address.
    pub(crate) fn is_passed(&self, key: &str, address: SocketAddr) -> bool {
        self.passed.replace(key, address)
    }

    /// Whether there is an error of the whole: the file cannot be read, or there is no way to log in.
    pub(crate) fn is_unusable(&self) -> bool {
        let mut problems = self.problems.iter();
        problems.any(|problem| problem.key.is_none() && problem.place.is_none())
    }

    /// Whether the address of a setting may be the default in place of one that was not understood: the setting is wrong, or the
    /// file is no configuration file or not TOML.
    fn may_stand_in(&self, key: &str) -> bool {
        let mut problems = self.problems.iter();
        self.is_wrong(key)
            || !self.sources.is_given(key) && problems.any(|problem| problem.key.is_none())
    }

    /// Whether a server could start.
    pub(crate) fn is_right(&self) -> bool {
        self.problems.is_empty() && self.in_use.is_empty()
    }

    /// A problem of a setting or of a part of the server, with its place if it is a setting that is given.
    pub(crate) fn problem(&self, about: &str, text: impl ToString) -> Problem {
        self.sources.problem(about, text)
    }

    /// The place of a setting, if it is given.
    pub(crate) fn place(&self, key: &str) -> Option<Place> {
        self.sources.place(key)
    }

    /// A problem of a table of a setting, counted from 0. The text must name both.
    pub(crate) fn problem_of_table(&self, key: &str, index: usize, text: impl ToString) -> Problem {
        self.sources.problem_of_table(key, index, text)
    }

    /// The text must name the setting and the remedy.
    fn error(&mut self, key: &str, text: impl ToString) {
        let problem = self.sources.problem(key, text);
        self.problems.push(problem);
    }

    fn error_of_table(&mut self, key: &str, index: usize, text: impl ToString) {
        let problem = self.problem_of_table(key, index, text);
        self.problems.push(problem);
    }

    fn in_use(&mut self, key: &'static str, address: Option<SocketAddr>, text: impl ToString) {
        let problem = self.sources.problem(key, text);
        self.in_use.push(InUse {
            key,
            address,
            problem,
        });
    }

    fn warning(&mut self, key: &str, text: impl ToString) {
        let problem = self.sources.problem(key, text);
        self.warnings.push(problem);
    }
}
