//! A case: a name, a setup, and the steps to run.

use std::ffi::OsString;
use std::fmt;
use std::sync::Arc;

use super::context::Context;
use super::setup::{Partners, Role, Setup};
use crate::support::{Failure, UserKind};

/// One case of the table: an action of a user with one client program.
#[derive(Clone)]
pub struct Case {
    /// `client/area/action`, unique in the table.
    pub name: String,
    /// The servers, user and environment that it needs.
    pub setup: Setup,
    /// Why the real server is expected to fail, if it is. Ours must pass in any case.
    pub deviation: Option<&'static str>,
    /// The number of attempts when the client program crashes.
    pub(super) attempts: usize,
    run: Arc<Run>,
}

type Run = dyn Fn(&Context<'_>) -> Result<Observation, Failure> + Send + Sync;

impl Case {
    /// A case between the client and one server.
    pub fn new<F>(name: impl Into<String>, run: F) -> Self
    where
        F: Fn(&Context<'_>) -> Result<Observation, Failure> + Send + Sync + 'static,
    {
        Self {
            name: name.into(),
            setup: Setup::default(),
            deviation: None,
            attempts: 1,
            run: Arc::new(run),
        }
    }

    /// The case once for each pair of servers in a third-party copy.
    pub fn third_party<F>(name: impl fmt::Display, run: F) -> Vec<Self>
    where
        F: Fn(&Context<'_>) -> Result<Observation, Failure> + Send + Sync + Clone + 'static,
    {
        [Partners::Alike, Partners::ToGlobus, Partners::FromGlobus]
            .into_iter()
            .map(|partners| {
                let mut case = Self::new(format!("{name} ({})", partners.name()), run.clone());
                case.setup.partners = partners;
                case
            })
            .collect()
    }

    /// Documents that the real server fails, and why.
    #[must_use]
    pub fn deviation(mut self, reason: &'static str) -> Self {
        self.deviation = Some(reason);
        self
    }

    /// Uses servers for users with certificates, and runs clients for `user`.
    #[must_use]
    pub fn gsi(mut self, user: UserKind) -> Self {
        self.setup.roles = [Role::Gsi, Role::SecondGsi];
        self.setup.user = Some(user);
        self
    }

    /// Uses these servers.
    #[must_use]
    pub fn roles(mut self, roles: [Role; 2]) -> Self {
        self.setup.roles = roles;
        self
    }

    /// Uses servers that make RSA keys for delegated credentials.
    #[must_use]
    pub fn rsa_delegations(mut self) -> Self {
        self.setup.roles = [Role::GsiRsa, Role::SecondGsiRsa];
        self
    }

    /// Sets a variable of the environment of client programs.
    #[must_use]
    pub fn env(mut self, name: impl Into<OsString>, value: impl Into<OsString>) -> Self {
        self.setup.environment.push((name.into(), value.into()));
        self
    }

    /// Allows this number of attempts, for client programs that sometimes crash with any server.
    #[must_use]
    pub fn crashing(mut self, attempts: usize) -> Self {
        self.attempts = attempts;
        self
    }

    /// Runs the case once.
    pub(super) fn run(&self, context: &Context<'_>) -> Result<Observation, Failure> {
        (self.run)(context)
    }
}

impl fmt::Debug for Case {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Case")
            .field("name", &self.name)
            .field("partners", &self.setup.partners)
            .field("deviation", &self.deviation)
            .finish_non_exhaustive()
    }
}

/// Output that must be the same with both servers. It is empty when content and exit status,
/// which the case checks itself, are sufficient.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Observation(pub String);

impl Observation {
    /// No output to compare.
    pub fn none() -> Self {
        Self::default()
    }

    /// Output whose lines may come in any order.
    pub fn unordered(text: &str) -> Self {
        let mut lines: Vec<_> = text.lines().collect();
        lines.sort_unstable();
        Self(lines.join("\n"))
    }
}
