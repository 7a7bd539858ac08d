//! Options of logins that differ between the servers of a command.

use std::ffi::OsString;
use std::sync::Arc;

use clap::{ArgMatches, CommandFactory as _, Parser};

use super::{Command, LoginArguments, PasswordOf};
use crate::program::profile::{Profile, given_words, long};

/// What configuration files and the command line say about logins.
#[derive(Debug, Clone)]
pub(in crate::program) struct HostOptions {
    profile: Arc<Profile>,
    /// The options of logins on the command line, which win.
    given: Vec<OsString>,
}

/// The options of logins only.
#[derive(Debug, Parser)]
#[command(no_binary_name = true)]
struct LoginOnly {
    #[command(flatten)]
    login: LoginArguments,
}

impl HostOptions {
    /// `matches` are those of a command of the program.
    pub(in crate::program) fn new(
        profile: Arc<Profile>,
        command: &clap::Command,
        matches: &ArgMatches,
    ) -> Self {
        let is_of_login = |word: &OsString| {
            let word = word.to_string_lossy();
            let name = word.trim_start_matches('-').split('=').next();
            name.is_some_and(is_login)
        };
        let given = given_words(command, matches).into_iter();
        Self {
            profile,
            given: given.filter(is_of_login).collect(),
        }
    }

    /// Whether the command line has this option.
    fn gives(&self, name: &str) -> bool {
        let mut given = self.given.iter();
        given.any(|word| word.to_string_lossy().split('=').next() == Some(name))
    }
}

/// Whether an option is about logins.
pub(in crate::program) fn is_login(key: &str) -> bool {
    long(&LoginOnly::command(), key).is_some()
}

impl LoginArguments {
    /// The options for a server: those of the command line, then those of configuration files for its host.
    pub(in crate::program) fn for_host(&self, host: &str) -> Self {
        let merged = self.hosts.as_ref().and_then(|options| {
            let mut command = LoginOnly::command();
            let matches = command.try_get_matches_from_mut(&options.given).ok()?;
            let hosts = [host.to_owned()];
            let words = options.profile.words(&command, &matches, &hosts, is_login);
            let words = words.ok()?.into_iter().chain(options.given.iter().cloned());
            LoginOnly::try_parse_from(words).ok()
        });
        // Each of the words was parsed before, and a host does not disagree with itself.
        debug_assert_eq!(merged.is_some(), self.hosts.is_some());
        let Some(mut merged) = merged.map(|merged| merged.login) else {
            return self.clone();
        };
        let Some(options) = &self.hosts else {
            return merged;
        };
        merged.has_own_user = merged.user.is_some() && !options.gives("--user");
        if let Some(owner) = options.profile.owner_of_password(host)
            && !options.gives("--password-file")
        {
            merged.password_of = PasswordOf::Section(owner.map(ToOwned::to_owned));
        }
        merged
    }
}

impl Command {
    /// The options of its logins, if it has any.
    pub(in crate::program) fn login_mut(&mut self) -> Option<&mut LoginArguments> {
        match self {
            Self::Copy(arguments) => Some(&mut arguments.login),
            Self::Rput(arguments) | Self::Rget(arguments) => Some(&mut arguments.copy.login),
            Self::Cat(arguments) => Some(&mut arguments.login),
            Self::Sum(arguments) => Some(&mut arguments.login),
            Self::Bench(arguments) => Some(&mut arguments.login),
            Self::Ping(arguments) => Some(&mut arguments.login),
            Self::Ls(arguments) => Some(&mut arguments.login),
            Self::Stat(arguments) => Some(&mut arguments.login),
            Self::Mkdir(arguments) => Some(&mut arguments.login),
            Self::Rm(arguments) => Some(&mut arguments.login),
            Self::Mv(arguments) => Some(&mut arguments.login),
            Self::Chmod(arguments) => Some(&mut arguments.login),
            Self::Du(arguments) => Some(&mut arguments.login),
            Self::Tree(arguments) => Some(&mut arguments.login),
            Self::Proxy { .. } | Self::Config { .. } | Self::Guc { .. } => None,
        }
    }
}
