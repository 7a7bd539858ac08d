//! The findings of `doctor`: each problem comes with its remedy.

use std::fmt::Display;

use crate::check::report::{Report, Verdict};

/// The lines of the report.
#[derive(Debug, Default)]
pub(super) struct Findings {
    pub(super) report: Report,
}

impl Findings {
    pub(super) fn ok(&mut self, about: &'static str, text: impl Display) {
        self.report.ok(about, text);
    }

    /// The server works, but not for all clients, or not as fast as it could.
    pub(super) fn warning(&mut self, about: &'static str, problem: impl Display, remedy: &str) {
        self.add(Verdict::Warning, about, problem, remedy);
    }

    /// Clients cannot use the server, or a part of it.
    pub(super) fn error(&mut self, about: &'static str, problem: impl Display, remedy: &str) {
        self.add(Verdict::Error, about, problem, remedy);
    }

    fn add(&mut self, verdict: Verdict, about: &'static str, problem: impl Display, remedy: &str) {
        debug_assert!(!remedy.is_empty(), "{problem}");
        self.report
            .add(verdict, about, format!("{problem}; {remedy}"));
    }
}
