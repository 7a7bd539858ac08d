//! What a case is, and what it says when it has run.

use std::ffi::OsString;
use std::fmt;
use std::io;
use std::os::unix::process::ExitStatusExt;
use std::sync::Arc;

use crate::arena::{Context, Role};
use crate::{ClientError, Finished, LaunchError, UserKind};

/// One case of the table: something that a user does with one client program.
#[derive(Clone)]
pub struct Case {
    /// `client/area/what`, unique in the table.
    pub name: String,
    /// Which servers take part.
    pub partners: Partners,
    /// Why the real server is not expected to pass, if it is not. Ours must pass all the same.
    pub oddity: Option<&'static str>,
    /// Which servers play the first and the second part.
    pub(crate) roles: [Role; 2],
    /// The user for whom client programs act; `None` is an anonymous user.
    pub(crate) user: Option<UserKind>,
    /// Variables of the environment of client programs.
    pub(crate) environment: Vec<(OsString, OsString)>,
    /// How often to try when the client program crashes.
    pub(crate) attempts: usize,
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
            partners: Partners::One,
            oddity: None,
            roles: [Role::Main, Role::Second],
            user: None,
            environment: Vec::new(),
            attempts: 1,
            run: Arc::new(run),
        }
    }

    /// The case once for each way in which two servers can take part in a third-party copy.
    pub fn third_party<F>(name: impl fmt::Display, run: F) -> Vec<Self>
    where
        F: Fn(&Context<'_>) -> Result<Observation, Failure> + Send + Sync + Clone + 'static,
    {
        [Partners::Alike, Partners::ToGlobus, Partners::FromGlobus]
            .into_iter()
            .map(|partners| Self {
                partners,
                ..Self::new(format!("{name} ({})", partners.name()), run.clone())
            })
            .collect()
    }

    /// Says that the real server is known not to pass, and why.
    #[must_use]
    pub fn oddity(mut self, reason: &'static str) -> Self {
        self.oddity = Some(reason);
        self
    }

    /// Takes servers for users with certificates, and has clients act for `user`.
    #[must_use]
    pub fn gsi(mut self, user: UserKind) -> Self {
        self.roles = [Role::Gsi, Role::SecondGsi];
        self.user = Some(user);
        self
    }

    /// Takes servers that make RSA keys for what users with certificates delegate.
    #[must_use]
    pub fn rsa_delegations(mut self) -> Self {
        self.roles = [Role::GsiRsa, Role::SecondGsiRsa];
        self
    }

    /// Sets a variable of the environment of client programs.
    #[must_use]
    pub fn env(mut self, name: impl Into<OsString>, value: impl Into<OsString>) -> Self {
        self.environment.push((name.into(), value.into()));
        self
    }

    /// Says that the client program itself crashes now and then, with any server: then the case
    /// begins anew, so often.
    #[must_use]
    pub fn crashing(mut self, attempts: usize) -> Self {
        self.attempts = attempts;
        self
    }

    /// Runs the case once.
    pub(crate) fn run(&self, context: &Context<'_>) -> Result<Observation, Failure> {
        (self.run)(context)
    }
}

impl fmt::Debug for Case {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Case")
            .field("name", &self.name)
            .field("partners", &self.partners)
            .field("oddity", &self.oddity)
            .finish_non_exhaustive()
    }
}

/// Which servers take part in a case.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Partners {
    /// The server under test alone.
    One,
    /// Source and destination are two servers of the kind under test.
    Alike,
    /// The source is under test, the destination is the real server.
    ToGlobus,
    /// The source is the real server, the destination is under test.
    FromGlobus,
}

impl Partners {
    /// Whether the case says anything new when the real server itself is under test.
    pub fn concern_globus(self) -> bool {
        matches!(self, Self::One | Self::Alike)
    }

    fn name(self) -> &'static str {
        match self {
            Self::One => "alone",
            Self::Alike => "to its like",
            Self::ToGlobus => "to the real server",
            Self::FromGlobus => "from the real server",
        }
    }
}

/// What a user saw that must be the same with both servers; empty when content and exit status,
/// which the case checks itself, say it all.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Observation(pub String);

impl Observation {
    /// Nothing that has to be compared.
    pub fn none() -> Self {
        Self::default()
    }

    /// Lines whose order does not matter.
    pub fn unordered(text: &str) -> Self {
        let mut lines: Vec<_> = text.lines().collect();
        lines.sort_unstable();
        Self(lines.join("\n"))
    }
}

/// Why a case did not pass.
#[derive(Debug, thiserror::Error)]
pub enum Failure {
    /// The server or the client did something wrong.
    #[error("{0}")]
    Wrong(String),
    /// The client program was ended by a signal.
    #[error("the client crashed\n{0}")]
    Crashed(String),
    /// This machine lacks an ability that no package brings (root, IPv6).
    #[error("not run: {0}")]
    Unable(String),
    /// The client program did not run to its end.
    #[error(transparent)]
    Client(#[from] ClientError),
    /// A server did not start.
    #[error(transparent)]
    Launch(#[from] LaunchError),
    /// Files of the test itself could not be made or read.
    #[error("cannot prepare or check the test: {0}")]
    Files(#[from] io::Error),
}

impl Failure {
    /// A failure with a reason.
    pub fn wrong(reason: impl Into<String>) -> Self {
        Self::Wrong(reason.into())
    }
}

/// Fails with `reason` unless `condition` holds.
///
/// # Errors
///
/// When it does not.
pub fn check(condition: bool, reason: impl FnOnce() -> String) -> Result<(), Failure> {
    if condition {
        Ok(())
    } else {
        Err(Failure::Wrong(reason()))
    }
}

impl Finished {
    /// The program, if it ended with status 0.
    ///
    /// # Errors
    ///
    /// When it ended otherwise.
    pub fn succeeded(self) -> Result<Self, Failure> {
        self.not_crashed()?;
        check(self.status.success(), || {
            format!("the client failed\n{self}")
        })?;
        Ok(self)
    }

    /// The program, if it ended with `code`, and all `words` occur in its output.
    ///
    /// # Errors
    ///
    /// When it ended otherwise, or printed other words.
    pub fn failed_with(self, code: i32, words: &[&str]) -> Result<Self, Failure> {
        self.not_crashed()?;
        check(self.status.code() == Some(code), || {
            format!("exit status {code} expected\n{self}")
        })?;
        self.says(words)
    }

    fn not_crashed(&self) -> Result<(), Failure> {
        match self.status.signal() {
            None => Ok(()),
            Some(_) => Err(Failure::Crashed(self.to_string())),
        }
    }

    /// The program, if all `words` occur in its output.
    ///
    /// # Errors
    ///
    /// When one does not.
    pub fn says(self, words: &[&str]) -> Result<Self, Failure> {
        let output = self.output();
        match words.iter().find(|word| !output.contains(**word)) {
            None => Ok(self),
            Some(word) => Err(Failure::Wrong(format!(
                "the client did not print `{word}`\n{self}"
            ))),
        }
    }
}
