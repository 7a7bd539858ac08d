//! What a copy prints: lines for people, or JSON for programs.

mod amount;
mod bars;
mod event;
mod part_bars;
mod watch;

use std::io::{self, Write as _};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

pub(super) use self::amount::amount;
use self::amount::rate;
use self::bars::Bars;
use self::event::{Event, Totals};
pub(super) use self::watch::{Record, Watch};
use super::output::{self, warn};
use crate::transfer::Transferred;

/// The form of the output.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::program) enum Form {
    /// A line for each file.
    Lines,
    /// An object for each event.
    Json,
    /// Errors only.
    Quiet,
}

/// The form of errors.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::program) enum Errors {
    /// Our own.
    Own,
    /// With the words that scripts look for in the output of globus-url-copy.
    Globus,
}

/// The output of a copy.
pub(in crate::program) struct Report {
    form: Form,
    errors: Errors,
    bars: Option<Bars>,
    /// Each data channel or stripe of a file is shown, too.
    has_parts: bool,
    is_verbose: bool,
    started: Instant,
    totals: Mutex<Totals>,
    /// The first files that were not copied.
    failures: Mutex<Vec<(String, String)>>,
    /// People were told that the rest is not tried.
    has_abandoned: AtomicBool,
}

/// More failures are only counted.
const FAILURES: usize = 100_000;

impl Report {
    /// Bars are for a terminal, and need lines as the form.
    pub(in crate::program) fn start(
        form: Form,
        errors: Errors,
        has_bars: bool,
        files: usize,
    ) -> Self {
        let report = Self {
            form,
            errors,
            bars: (has_bars && form == Form::Lines)
                .then(Bars::at_terminal)
                .flatten(),
            has_parts: false,
            is_verbose: false,
            started: Instant::now(),
            totals: Mutex::default(),
            failures: Mutex::default(),
            has_abandoned: AtomicBool::new(false),
        };
        report.json(&Event::Start { files });
        report
    }

    /// Shows each data channel or stripe of a file, too, if that is wanted.
    pub(in crate::program) fn with_parts(self, has_parts: bool) -> Self {
        Self { has_parts, ..self }
    }

    /// Says more about each file, if that is wanted.
    pub(in crate::program) fn with_more(self, is_verbose: bool) -> Self {
        Self { is_verbose, ..self }
    }

    /// A line on standard error, if the user wants more of them.
    fn says(&self, words: impl FnOnce() -> String) {
        if self.is_verbose {
            warn(words());
        }
    }

    /// A file was copied.
    pub(in crate::program) fn copied(&self, names: (&str, &str), done: &Transferred) {
        let (source, destination) = names;
        self.count(|totals| {
            totals.files += 1;
            totals.bytes = totals.bytes.saturating_add(done.bytes);
        });
        let seconds = done.took.as_secs_f64();
        self.json(&Event::File {
            source,
            destination,
            bytes: done.bytes,
            seconds,
            channels: done.channels,
            checksum: done.checksum.as_deref(),
        });
        self.says(|| format!("{source} -> {destination}: {}", moved(done)));
        // Bars show the files instead.
        if self.form == Form::Lines && self.bars.is_none() {
            print(&format!(
                "{source} -> {destination}: {} in {seconds:.1} s, {}/s",
                amount(done.bytes),
                amount(rate(done.bytes, done.took))
            ));
        }
    }

    /// A file that is to be copied.
    pub(in crate::program) fn finds(&self, size: Option<u64>) {
        if let Some(bars) = &self.bars {
            bars.finds(size);
        }
    }

    /// All files are found.
    pub(in crate::program) fn found_all(&self) {
        if let Some(bars) = &self.bars {
            bars.found_all();
        }
    }

    /// Something that is not copied, which is no failure.
    pub(in crate::program) fn skipped(&self, source: &str, reason: &str) {
        self.count(|totals| totals.skipped += 1);
        self.json(&Event::Skipped { source, reason });
        if self.form == Form::Lines {
            warn(format!("{source}: skipped: {reason}"));
        }
    }

    /// The destination has a file already.
    pub(in crate::program) fn unchanged(&self) {
        self.count(|totals| totals.unchanged += 1);
    }

    /// Something that the source does not have is removed from the copy.
    pub(in crate::program) fn removes(&self, destination: &str) {
        self.count(|totals| totals.removed += 1);
        self.json(&Event::Remove { destination });
        if self.form == Form::Lines {
            print(&format!("{destination}: removed"));
        }
    }

    /// Something that the source does not have could not be removed from the copy.
    pub(in crate::program) fn remains(&self, destination: &str, message: &str) {
        self.count(|totals| totals.failed += 1);
        self.json(&Event::Error {
            source: None,
            destination: Some(destination),
            message,
        });
        self.error(&format!("{destination}: {message}"));
    }

    /// A file that a dry run does not copy.
    pub(in crate::program) fn would_copy(&self, source: &str, destination: &str) {
        self.count(|totals| totals.files += 1);
        self.json(&Event::Would {
            source,
            destination,
        });
        if self.form == Form::Lines {
            print(&format!("{source} -> {destination}"));
        }
    }

    /// Something about a server that makes copies slower.
    pub(in crate::program) fn notes(&self, message: &str) {
        self.json(&Event::Note { message });
        if self.form == Form::Lines {
            warn(message);
        }
    }

    /// A file is tried again after a pause.
    pub(in crate::program) fn retries(&self, names: (&str, &str), message: &str, pause: Duration) {
        let (source, destination) = names;
        let seconds = pause.as_secs();
        self.json(&Event::Retry {
            source,
            destination,
            message,
            seconds,
        });
        if self.form == Form::Lines {
            warn(format!(
                "{source} -> {destination}: {message}; tried again in {seconds} s"
            ));
        }
    }

    pub(in crate::program) fn failed(&self, files: Option<(&str, &str)>, message: &str) {
        self.count_failed(files, message);
        match files {
            Some((source, destination)) => {
                self.error(&format!("{source} -> {destination}: {message}"));
            }
            None => self.error(message),
        }
    }

    /// A file was not tried, for a reason that all further files have. People are told the reason once, and how many these are at the end.
    pub(in crate::program) fn abandoned(&self, files: (&str, &str), message: &str) {
        self.count_failed(Some(files), message);
        if !self.has_abandoned.swap(true, Ordering::Relaxed) {
            self.error(message);
        }
    }

    fn count_failed(&self, files: Option<(&str, &str)>, message: &str) {
        self.count(|totals| totals.failed += 1);
        self.json(&Event::Error {
            source: files.map(|(source, _)| source),
            destination: files.map(|(_, destination)| destination),
            message,
        });
        if let Some((source, destination)) = files {
            let mut failures = output::locked(&self.failures);
            if failures.len() < FAILURES {
                failures.push((source.to_owned(), destination.to_owned()));
            }
        }
    }

    /// The copy ends early, because the user wants it. No file has failed.
    pub(in crate::program) fn interrupted(&self, message: &str) {
        if let Some(bars) = &self.bars {
            bars.end();
        }
        self.json(&Event::Error {
            source: None,
            destination: None,
            message,
        });
        self.error(message);
    }

    fn error(&self, words: &str) {
        match self.errors {
            Errors::Own => warn(words),
            Errors::Globus => {
                let kind = match words.contains("the server refused") {
                    true => "globus_ftp_client: the server responded with an error\n",
                    false => "",
                };
                let words = output::shown_lines(words);
                let _ = writeln!(io::stderr().lock(), "error: {kind}{words}");
            }
        }
    }

    /// Sources and destinations of the first files that were not copied.
    pub(in crate::program) fn failures(&self) -> Vec<(String, String)> {
        let mut failures = output::locked(&self.failures);
        std::mem::take(&mut *failures)
    }

    /// Prints the end; whether everything is complete.
    pub(in crate::program) fn done(&self) -> bool {
        if let Some(bars) = &self.bars {
            bars.end();
        }
        let took = self.started.elapsed();
        let totals = *output::locked(&self.totals);
        self.json(&Event::Done {
            totals,
            seconds: took.as_secs_f64(),
        });
        let others = [
            (totals.unchanged, "unchanged"),
            (totals.removed, "removed"),
            (totals.skipped, "skipped"),
            (totals.failed, "failed"),
        ];
        let all = others
            .iter()
            .fold(totals.files, |all, (count, _)| all + count);
        if self.form == Form::Lines && (all > 1 || self.bars.is_some()) {
            let others = others.iter().filter(|(count, _)| *count > 0);
            let others = others.map(|(count, words)| format!(", {count} {words}"));
            print(&format!(
                "{} files, {} in {:.1} s{}",
                totals.files,
                amount(totals.bytes),
                took.as_secs_f64(),
                others.collect::<String>()
            ));
        }
        totals.failed == 0
    }

    /// Tells the progress of a file, of this size if it is known.
    pub(in crate::program) fn watch<'a>(
        &'a self,
        source: &'a str,
        destination: &'a str,
        size: Option<u64>,
    ) -> Watch<'a> {
        let bar = self.bars.as_ref().map(|bars| bars.file(source, size));
        Watch::new(self, bar, source, destination)
    }

    /// Changes the totals.
    fn count(&self, change: impl FnOnce(&mut Totals)) {
        change(&mut output::locked(&self.totals));
        self.show();
    }

    /// Shows the totals in the bar for all files.
    fn show(&self) {
        if let Some(bars) = &self.bars {
            bars.show(&output::locked(&self.totals));
        }
    }

    fn json(&self, event: &Event<'_>) {
        if self.form == Form::Json
            && let Ok(line) = serde_json::to_string(event)
        {
            // A reader that has gone does not end a copy.
            let _ = output::print(output::shown_json(&line));
        }
    }
}

/// How the bytes of a file have moved.
fn moved(done: &Transferred) -> String {
    let mut words = match done.channels {
        1 => "copied over 1 data channel".to_owned(),
        channels => format!("copied over {channels} data channels"),
    };
    if let Some(way) = &done.movement {
        words += &format!(", moved by {way}");
    }
    if let Some(reason) = &done.reason {
        words += &format!(" ({reason})");
    }
    for detail in done.details.as_slice() {
        words += &format!(", {detail}");
    }
    if let Some(sum) = &done.checksum {
        words += &format!(", checksum {sum}");
    }
    words
}

/// A line on standard output, in which names that a server chose control no terminal. A reader that has gone does not end a copy.
fn print(line: &str) {
    let _ = output::print(output::shown(line.as_bytes()));
}
