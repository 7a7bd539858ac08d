//! Whether a configuration can take effect: one judgement for `serve`, `check` and reloads.
//!
//! [`crate::config`] reads settings, and finds those that are no values or do not fit together. This module finds those that
//! the drivers, the machine or the files do not bear out. All problems are collected, so that one run names all of them.

mod addresses;
mod apart;
mod files;
mod settings;

use std::net::SocketAddr;

use gridhaul_security::files::{OpenFiles, OwnRights};

use crate::config::{Config, ConfigErrors, Loaded, Problem, ServeArguments, Sources};
use crate::drivers;
use crate::server::is_at;

/// A configuration, and what is wrong with it.
#[derive(Debug)]
pub(crate) struct Validated {
    /// Where settings are wrong, their defaults stand in. It must not be used then.
    pub(crate) config: Config,
    /// The errors.
    pub(crate) problems: Vec<Problem>,
    /// The settings without effect, and those that may surprise.
    pub(crate) warnings: Vec<Problem>,
    /// The addresses of sockets that the program was started with.
    passed: Vec<SocketAddr>,
    sources: Sources,
}

impl Validated {
    /// For the start of a server, which has the rights of the administrator, and sockets at the addresses `passed`.
    pub(crate) fn for_start(arguments: &ServeArguments, passed: &[SocketAddr]) -> Self {
        let mut validated = Self::settings(arguments, &OwnRights);
        validated.passed = passed.to_vec();
        addresses::check_listeners(&mut validated);
        apart::check_files(&mut validated);
        validated.problems.sort_by_key(Problem::line);
        validated
    }

    /// For a reload: the files were opened with more rights than the server has now, and are read by those who need them.
    pub(crate) fn for_reload(arguments: &ServeArguments, opener: &dyn OpenFiles) -> Self {
        Self::settings(arguments, opener)
    }

    fn settings(arguments: &ServeArguments, opener: &dyn OpenFiles) -> Self {
        let Loaded {
            config,
            problems,
            sources,
        } = Loaded::new(arguments, opener);
        let mut validated = Self {
            config,
            problems,
            warnings: Vec::new(),
            passed: Vec::new(),
            sources,
        };
        settings::check(&mut validated, &drivers::registry());
        addresses::check_data_address(&mut validated);
        addresses::check_port_range(&mut validated);
        addresses::check_repeated(&mut validated);
        validated
    }

    /// The configuration and its warnings, if there is no error.
    pub(crate) fn checked(self) -> Result<(Config, Vec<Problem>), ConfigErrors> {
        ConfigErrors::of(self.problems)?;
        Ok((self.config, self.warnings))
    }

    /// Whether one of the errors belongs to this setting.
    pub(crate) fn is_wrong(&self, key: &str) -> bool {
        let mut keys = self.problems.iter().map(|problem| problem.key.as_deref());
        keys.any(|wrong| wrong == Some(key))
    }

    /// Whether the program was started with a socket at a configured address.
    pub(crate) fn is_passed(&self, address: SocketAddr) -> bool {
        self.passed.iter().any(|passed| is_at(address, *passed))
    }

    /// Whether there is an error of the whole: the file cannot be read, or there is no way to log in.
    pub(crate) fn is_unusable(&self) -> bool {
        let mut problems = self.problems.iter();
        problems.any(|problem| problem.key.is_none() && problem.place.is_none())
    }

    /// The text must name the setting and the remedy.
    fn error(&mut self, key: &str, text: impl ToString) {
        let problem = self.sources.problem(key, text);
        self.problems.push(problem);
    }

    fn warning(&mut self, key: &str, text: impl ToString) {
        let problem = self.sources.problem(key, text);
        self.warnings.push(problem);
    }
}
