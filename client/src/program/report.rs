//! What a copy prints: lines for people, or JSON for programs.

use std::io::{self, Write as _};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use gridhaul_protocol::ranges::RangeSet;
use serde::Serialize;

use crate::transfer::Observer;

/// How often progress is told.
const INTERVAL: Duration = Duration::from_secs(1);

/// The form of the output.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Form {
    /// A line for each file.
    Lines,
    /// An object for each event.
    Json,
    /// Errors only.
    Quiet,
}

/// The form of errors.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Errors {
    /// Our own.
    Own,
    /// With the words that scripts look for in the output of globus-url-copy.
    Globus,
}

/// An event, as an object of JSON.
#[derive(Debug, Serialize)]
#[serde(tag = "event", rename_all = "lowercase")]
enum Event<'a> {
    Start {
        files: usize,
    },
    Progress {
        source: &'a str,
        destination: &'a str,
        bytes: u64,
    },
    File {
        source: &'a str,
        destination: &'a str,
        bytes: u64,
        seconds: f64,
        channels: usize,
        checksum: Option<&'a str>,
    },
    Skipped {
        source: &'a str,
        reason: &'a str,
    },
    Remove {
        destination: &'a str,
    },
    Would {
        source: &'a str,
        destination: &'a str,
    },
    Retry {
        source: &'a str,
        destination: &'a str,
        message: &'a str,
        seconds: u64,
    },
    Error {
        source: Option<&'a str>,
        destination: Option<&'a str>,
        message: &'a str,
    },
    Done {
        files: u64,
        failed: u64,
        skipped: u64,
        unchanged: u64,
        removed: u64,
        bytes: u64,
        seconds: f64,
    },
}

/// The output of a copy.
pub(super) struct Report {
    form: Form,
    errors: Errors,
    started: Instant,
    totals: Mutex<Totals>,
    /// The first files that were not copied.
    failures: Mutex<Vec<(String, String)>>,
}

/// More failures are only counted.
const FAILURES: usize = 100_000;

#[derive(Debug, Clone, Copy, Default)]
struct Totals {
    files: u64,
    failed: u64,
    skipped: u64,
    unchanged: u64,
    removed: u64,
    bytes: u64,
}

/// A copied file.
pub(super) struct Copied<'a> {
    pub(super) source: &'a str,
    pub(super) destination: &'a str,
    pub(super) bytes: u64,
    pub(super) took: Duration,
    pub(super) channels: usize,
    pub(super) checksum: Option<&'a str>,
}

impl Report {
    pub(super) fn start(form: Form, errors: Errors, files: usize) -> Self {
        let report = Self {
            form,
            errors,
            started: Instant::now(),
            totals: Mutex::default(),
            failures: Mutex::default(),
        };
        report.json(&Event::Start { files });
        report
    }

    pub(super) fn copied(&self, file: &Copied<'_>) {
        self.count(|totals| {
            totals.files += 1;
            totals.bytes = totals.bytes.saturating_add(file.bytes);
        });
        let seconds = file.took.as_secs_f64();
        self.json(&Event::File {
            source: file.source,
            destination: file.destination,
            bytes: file.bytes,
            seconds,
            channels: file.channels,
            checksum: file.checksum,
        });
        if self.form == Form::Lines {
            print(&format!(
                "{} -> {}: {} in {seconds:.1} s, {}/s",
                file.source,
                file.destination,
                amount(file.bytes),
                amount(rate(file.bytes, file.took))
            ));
        }
    }

    /// Something that is not copied, which is no failure.
    pub(super) fn skipped(&self, source: &str, reason: &str) {
        self.count(|totals| totals.skipped += 1);
        self.json(&Event::Skipped { source, reason });
        if self.form == Form::Lines {
            warn(&format!("{source}: skipped: {reason}"));
        }
    }

    /// The destination has a file already.
    pub(super) fn unchanged(&self) {
        self.count(|totals| totals.unchanged += 1);
    }

    /// Something that the source does not have is removed from the copy.
    pub(super) fn removes(&self, destination: &str) {
        self.count(|totals| totals.removed += 1);
        self.json(&Event::Remove { destination });
        if self.form == Form::Lines {
            print(&format!("{destination}: removed"));
        }
    }

    /// A file that a dry run does not copy.
    pub(super) fn would_copy(&self, source: &str, destination: &str) {
        self.count(|totals| totals.files += 1);
        self.json(&Event::Would {
            source,
            destination,
        });
        if self.form == Form::Lines {
            print(&format!("{source} -> {destination}"));
        }
    }

    /// A file is tried again after a pause.
    pub(super) fn retries(&self, names: (&str, &str), message: &str, pause: Duration) {
        let (source, destination) = names;
        let seconds = pause.as_secs();
        self.json(&Event::Retry {
            source,
            destination,
            message,
            seconds,
        });
        if self.form == Form::Lines {
            warn(&format!(
                "{source} -> {destination}: {message}; tried again in {seconds} s"
            ));
        }
    }

    pub(super) fn failed(&self, files: Option<(&str, &str)>, message: &str) {
        self.count(|totals| totals.failed += 1);
        self.json(&Event::Error {
            source: files.map(|(source, _)| source),
            destination: files.map(|(_, destination)| destination),
            message,
        });
        match files {
            Some((source, destination)) => {
                let mut failures = self.failures.lock().unwrap_or_else(PoisonError::into_inner);
                if failures.len() < FAILURES {
                    failures.push((source.to_owned(), destination.to_owned()));
                }
                drop(failures);
                self.error(&format!("{source} -> {destination}: {message}"));
            }
            None => self.error(message),
        }
    }

    fn error(&self, words: &str) {
        match self.errors {
            Errors::Own => warn(words),
            Errors::Globus => {
                let kind = match words.contains("the server refused") {
                    true => "globus_ftp_client: the server responded with an error\n",
                    false => "",
                };
                let _ = writeln!(io::stderr().lock(), "error: {kind}{words}");
            }
        }
    }

    /// Sources and destinations of the first files that were not copied.
    pub(super) fn failures(&self) -> Vec<(String, String)> {
        let mut failures = self.failures.lock().unwrap_or_else(PoisonError::into_inner);
        std::mem::take(&mut *failures)
    }

    /// Prints the end; whether everything is complete.
    pub(super) fn done(&self) -> bool {
        let took = self.started.elapsed();
        let Totals {
            files,
            failed,
            skipped,
            unchanged,
            removed,
            bytes,
        } = self.count(|_| {});
        self.json(&Event::Done {
            files,
            failed,
            skipped,
            unchanged,
            removed,
            bytes,
            seconds: took.as_secs_f64(),
        });
        if self.form == Form::Lines && files + failed + skipped + unchanged + removed > 1 {
            let others = [
                (unchanged, "unchanged"),
                (removed, "removed"),
                (skipped, "skipped"),
                (failed, "failed"),
            ];
            let others = others.iter().filter(|(count, _)| *count > 0);
            let others = others.map(|(count, words)| format!(", {count} {words}"));
            print(&format!(
                "{files} files, {} in {:.1} s{}",
                amount(bytes),
                took.as_secs_f64(),
                others.collect::<String>()
            ));
        }
        failed == 0
    }

    /// Tells the progress of a file.
    pub(super) fn watch<'a>(&self, source: &'a str, destination: &'a str) -> Watch<'a> {
        Watch {
            form: self.form,
            source,
            destination,
            told: Instant::now(),
            moved: 0,
            stored: RangeSet::new(),
            tell_stored: None,
            told_stored: Instant::now(),
        }
    }

    /// Changes the totals, and returns them.
    fn count(&self, change: impl FnOnce(&mut Totals)) -> Totals {
        let mut totals = self.totals.lock().unwrap_or_else(PoisonError::into_inner);
        change(&mut totals);
        *totals
    }

    fn json(&self, event: &Event<'_>) {
        print_json(self.form, event);
    }
}

/// The progress of a file.
pub(super) struct Watch<'a> {
    form: Form,
    source: &'a str,
    destination: &'a str,
    told: Instant,
    moved: u64,
    stored: RangeSet,
    tell_stored: Option<TellStored<'a>>,
    told_stored: Instant,
}

/// Receives all ranges that the destination has stored, several times a second.
pub(super) type TellStored<'a> = Box<dyn Fn(&RangeSet) + Send + 'a>;

/// How often stored ranges are told.
const STORED_INTERVAL: Duration = Duration::from_millis(200);

impl<'a> Watch<'a> {
    /// Has stored ranges told.
    pub(super) fn tell_stored(&mut self, tell: TellStored<'a>) {
        self.tell_stored = Some(tell);
    }

    /// Ends that.
    pub(super) fn tell_nothing(&mut self) {
        self.tell_stored = None;
    }

    /// Whether bytes of the file have moved.
    pub(super) fn has_moved(&self) -> bool {
        self.moved > 0
    }

    /// What the destination has stored.
    pub(super) fn stored(&self) -> &RangeSet {
        &self.stored
    }
}

/// More ranges are not remembered: a restart that sends a file in so many pieces is no gain.
const MOST_RANGES: usize = 100_000;

impl Observer for Watch<'_> {
    fn moved(&mut self, bytes: u64) {
        self.moved = self.moved.max(bytes);
        if self.told.elapsed() < INTERVAL {
            return;
        }
        self.told = Instant::now();
        print_json(
            self.form,
            &Event::Progress {
                source: self.source,
                destination: self.destination,
                bytes,
            },
        );
    }

    fn stored(&mut self, ranges: &RangeSet) {
        if self.stored.len() + ranges.len() <= MOST_RANGES {
            self.stored.extend_from(ranges);
        }
        if let Some(tell) = &self.tell_stored
            && self.told_stored.elapsed() >= STORED_INTERVAL
        {
            self.told_stored = Instant::now();
            tell(&self.stored);
        }
    }
}

fn print_json(form: Form, event: &Event<'_>) {
    if form == Form::Json
        && let Ok(line) = serde_json::to_string(event)
    {
        print(&line);
    }
}

/// A line on standard output. A reader that has gone does not end a copy.
fn print(line: &str) {
    let _ = writeln!(io::stdout().lock(), "{line}");
}

/// A line on standard error.
fn warn(line: &str) {
    let _ = writeln!(io::stderr().lock(), "gridhaul: {line}");
}

fn rate(bytes: u64, took: Duration) -> u64 {
    let nanoseconds = took.as_nanos().max(1);
    let rate = u128::from(bytes) * 1_000_000_000 / nanoseconds;
    u64::try_from(rate).unwrap_or(u64::MAX)
}

/// `1.5 MB`, in powers of 1000.
fn amount(bytes: u64) -> String {
    const UNITS: [&str; 6] = ["kB", "MB", "GB", "TB", "PB", "EB"];
    if bytes < 1000 {
        return format!("{bytes} B");
    }
    let (mut tenths, mut unit) = (u128::from(bytes) / 100, 0);
    while tenths >= 10_000 {
        tenths /= 1000;
        unit += 1;
    }
    format!(
        "{}.{} {}",
        tenths / 10,
        tenths % 10,
        UNITS[unit.min(UNITS.len() - 1)]
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn amounts_have_units() {
        for (bytes, text) in [
            (0, "0 B"),
            (999, "999 B"),
            (1000, "1.0 kB"),
            (1_550_000, "1.5 MB"),
            (999_999_999, "999.9 MB"),
            (u64::MAX, "18.4 EB"),
        ] {
            assert_eq!(amount(bytes), text);
        }
    }
}
