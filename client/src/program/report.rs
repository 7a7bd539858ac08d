//! What a copy prints: lines for people, or JSON for programs.

use std::time::{Duration, Instant};

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
    Error {
        source: Option<&'a str>,
        destination: Option<&'a str>,
        message: &'a str,
    },
    Done {
        files: usize,
        failed: usize,
        bytes: u64,
        seconds: f64,
    },
}

/// The output of a copy.
pub(super) struct Report {
    form: Form,
    started: Instant,
    files: usize,
    failed: usize,
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
    pub(super) fn start(form: Form, files: usize) -> Self {
        let report = Self {
            form,
            started: Instant::now(),
            files: 0,
            failed: 0,
            bytes: 0,
        };
        report.json(&Event::Start { files });
        report
    }

    pub(super) fn copied(&mut self, file: &Copied<'_>) {
        self.files += 1;
        self.bytes += file.bytes;
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
            println!(
                "{} -> {}: {} in {seconds:.1} s, {}/s",
                file.source,
                file.destination,
                amount(file.bytes),
                amount(rate(file.bytes, file.took))
            );
        }
    }

    pub(super) fn failed(&mut self, files: Option<(&str, &str)>, message: &str) {
        self.failed += 1;
        self.json(&Event::Error {
            source: files.map(|(source, _)| source),
            destination: files.map(|(_, destination)| destination),
            message,
        });
        match files {
            Some((source, destination)) => {
                eprintln!("gridhaul: {source} -> {destination}: {message}");
            }
            None => eprintln!("gridhaul: {message}"),
        }
    }

    /// Prints the end; whether everything is complete.
    pub(super) fn done(self) -> bool {
        let took = self.started.elapsed();
        self.json(&Event::Done {
            files: self.files,
            failed: self.failed,
            bytes: self.bytes,
            seconds: took.as_secs_f64(),
        });
        if self.form == Form::Lines && self.files + self.failed > 1 {
            println!(
                "{} files, {} in {:.1} s; {} failed",
                self.files,
                amount(self.bytes),
                took.as_secs_f64(),
                self.failed
            );
        }
        self.failed == 0
    }

    /// Tells the progress of a file.
    pub(super) fn watch<'a>(&self, source: &'a str, destination: &'a str) -> Watch<'a> {
        Watch {
            form: self.form,
            source,
            destination,
            told: Instant::now(),
        }
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
}

impl Observer for Watch<'_> {
    fn moved(&mut self, bytes: u64) {
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
}

fn print_json(form: Form, event: &Event<'_>) {
    if form == Form::Json
        && let Ok(line) = serde_json::to_string(event)
    {
        println!("{line}");
    }
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
