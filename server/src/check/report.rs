//! The findings, in the order of the checks.

use std::borrow::Cow;
use std::fmt::Display;
use std::io::{self, Write};

use gridhaul_stack::Standing;

use crate::config::{Place, Problem};
use crate::harmful::is_harmful;

/// The severity of a finding.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// No problem.
    Ok,
    /// The machine does not tell, or not this user.
    Unknown,
    /// The server works, but not for all users, or not for long.
    Warning,
    /// The server does not start, or a part of it cannot be used.
    Error,
}

/// The findings.
#[derive(Debug, Default)]
pub(crate) struct Report {
    findings: Vec<Finding>,
}

/// One line of the report.
#[derive(Debug)]
struct Finding {
    verdict: Verdict,
    /// The subject.
    about: Cow<'static, str>,
    /// Of the setting, where it is known.
    place: Option<Place>,
    /// The text without the place.
    text: String,
}

impl Report {
    pub(crate) fn ok(&mut self, about: &'static str, text: impl Display) {
        self.add(Verdict::Ok, about, text);
    }

    pub(crate) fn warning(&mut self, about: &'static str, text: impl Display) {
        self.add(Verdict::Warning, about, text);
    }

    pub(crate) fn error(&mut self, about: &'static str, text: impl Display) {
        self.add(Verdict::Error, about, text);
    }

    /// A finding of a driver. If a driver does not work, others do.
    pub(crate) fn finding(&mut self, finding: gridhaul_stack::Finding) {
        let verdict = match finding.standing {
            Standing::Good => Verdict::Ok,
            Standing::Unknown => Verdict::Unknown,
            Standing::Bad => Verdict::Warning,
        };
        self.add(verdict, finding.about, finding.text);
    }

    pub(crate) fn add(&mut self, verdict: Verdict, about: &'static str, text: impl Display) {
        self.findings.push(Finding {
            verdict,
            about: Cow::Borrowed(about),
            place: None,
            text: text.to_string(),
        });
    }

    /// Problems of settings.
    pub(super) fn settings(&mut self, verdict: Verdict, problems: &[Problem]) {
        self.findings.extend(problems.iter().map(|problem| Finding {
            verdict,
            about: match &problem.key {
                Some(key) => Cow::Owned(key.clone()),
                None => Cow::Borrowed("configuration"),
            },
            place: problem.place.clone(),
            text: problem.without_place(),
        }));
    }

    /// Adds the places of the settings that errors and warnings are about.
    pub(super) fn find_places(&mut self, place: impl Fn(&str) -> Option<Place>) {
        for finding in &mut self.findings {
            let is_problem = matches!(finding.verdict, Verdict::Warning | Verdict::Error);
            if is_problem && finding.place.is_none() {
                finding.place = place(setting_of(&finding.about));
            }
        }
    }

    /// Adds problems of parts of a file that works otherwise.
    pub(crate) fn problems(
        &mut self,
        verdict: Verdict,
        about: &'static str,
        problems: impl IntoIterator<Item = impl Display>,
    ) {
        /// The next run shows the others, after these are fixed.
        const MOST: usize = 20;

        let mut problems = problems.into_iter();
        for problem in problems.by_ref().take(MOST) {
            self.add(verdict, about, problem);
        }
        match problems.count() {
            0 => {}
            more => self.add(verdict, about, format!("{more} more like these")),
        }
    }

    /// The errors, each with its subject and place.
    pub(super) fn errors(&self) -> impl Iterator<Item = Problem> {
        let errors = self.findings.iter();
        let errors = errors.filter(|finding| finding.verdict == Verdict::Error);
        errors.map(|finding| Problem {
            key: Some(finding.about.to_string()),
            place: finding.place.clone(),
            // The name of a table begins with that of the setting.
            text: match finding.text.starts_with("[[") {
                true => finding.text.clone(),
                false => format!("{}: {}", finding.about, finding.text),
            },
        })
    }

    pub(crate) fn count(&self, verdict: Verdict) -> usize {
        let findings = self.findings.iter();
        findings
            .filter(|finding| finding.verdict == verdict)
            .count()
    }

    /// One line for each finding, and one that sums them up.
    pub(crate) fn write(&self, output: &mut impl Write) -> io::Result<()> {
        for Finding {
            verdict,
            about,
            place,
            text,
        } in &self.findings
        {
            let word = match verdict {
                Verdict::Ok => "ok",
                Verdict::Unknown => "unknown",
                Verdict::Warning => "warning",
                Verdict::Error => "error",
            };
            // File names may contain control characters, and a finding is one line.
            let text = text.replace(is_harmful, "?");
            match place {
                Some(place) => writeln!(output, "{word:<8} {about}: {place}: {text}")?,
                None => writeln!(output, "{word:<8} {about}: {text}")?,
            }
        }
        let errors = counted(self.count(Verdict::Error), "error");
        let warnings = counted(self.count(Verdict::Warning), "warning");
        writeln!(output, "{errors}, {warnings}")
    }
}

/// The setting that a subject of findings belongs to.
fn setting_of(about: &str) -> &str {
    match about {
        "certificate" => "cert",
        "revocation" => "trust",
        "proxies" => "allow-independent-proxies",
        "gsi-authz" => "gsi",
        _ => about,
    }
}

/// `1 error`, `2 errors`.
pub(crate) fn counted(count: usize, what: &str) -> String {
    let plural = if count == 1 { "" } else { "s" };
    format!("{count} {what}{plural}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_finding_is_a_line_and_the_last_line_sums_up() {
        let mut report = Report::default();
        report.ok("root", "/srv");
        report.warning("gridmap", "line 3: a\nb");
        report.problems(Verdict::Error, "trust", 0..23);
        let mut text = Vec::new();
        report.write(&mut text).expect("written");
        let text = String::from_utf8(text).expect("UTF-8");
        let lines: Vec<_> = text.lines().collect();
        assert_eq!(lines[0], "ok       root: /srv");
        assert_eq!(lines[1], "warning  gridmap: line 3: a?b");
        assert_eq!(lines[21], "error    trust: 19");
        assert_eq!(
            lines[22..],
            ["error    trust: 3 more like these", "21 errors, 1 warning"]
        );
    }
}
