//! Why a check failed, and checks of client programs.

use std::io;
use std::os::unix::process::ExitStatusExt;

use super::client::{ClientError, Finished};
use super::copier::Words;
use super::launch::LaunchError;

/// Why a case did not pass.
#[derive(Debug, thiserror::Error)]
pub enum Failure {
    /// The server or the client did something wrong.
    #[error("{0}")]
    Wrong(String),
    /// The client program was ended by a signal.
    #[error("the client crashed\n{0}")]
    Crashed(String),
    /// This machine lacks something that no package can install (root, IPv6).
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
    /// Returns the program if it exited with status 0.
    ///
    /// # Errors
    ///
    /// When it exited with another status or was killed.
    pub fn succeeded(self) -> Result<Self, Failure> {
        self.not_crashed()?;
        check(self.status.success(), || {
            format!("the client failed\n{self}")
        })?;
        Ok(self)
    }

    /// Returns the program if it exited with `code` and its output contains all `words`.
    ///
    /// # Errors
    ///
    /// When the status is another or a word is missing.
    pub fn failed_with(self, code: i32, words: &[&str]) -> Result<Self, Failure> {
        self.not_crashed()?;
        check(self.has_status(code), || {
            format!("exit status {code} expected\n{self}")
        })?;
        self.prints(words)
    }

    fn has_status(&self, code: i32) -> bool {
        match self.status.code() {
            // `gridhaul copy` has a status of its own for command lines, also for stacks that it does not know.
            Some(2) if self.words == Words::Copy => self.output().contains("--stack"),
            status => status == Some(code),
        }
    }

    /// What our commands say in place of words that globus-url-copy and `gridhaul guc` have in front of the words of servers.
    fn own_word<'a>(&self, word: &'a str) -> &'a str {
        match (self.words, word) {
            (Words::Globus, word) => word,
            (_, "the server responded with an error") => "the server refused",
            (_, "error: ") => "gridhaul: ",
            // It lists a directory only after it has asked for its facts, so these are not the words of the server.
            (Words::Listing, "550") => "gridhaul: ",
            (Words::Listing, "No such file or directory") => "no such file or directory",
            (_, word) => word,
        }
    }

    fn not_crashed(&self) -> Result<(), Failure> {
        match self.status.signal() {
            None => Ok(()),
            Some(_) => Err(Failure::Crashed(self.to_string())),
        }
    }

    /// Returns the program if its output contains all `words`.
    ///
    /// # Errors
    ///
    /// When a word is missing.
    pub fn prints(self, words: &[&str]) -> Result<Self, Failure> {
        let output = self.output();
        let mut words = words.iter();
        match words.find(|word| !output.contains(self.own_word(word))) {
            None => Ok(self),
            Some(word) => Err(Failure::Wrong(format!(
                "the client did not print `{word}`\n{self}"
            ))),
        }
    }
}
