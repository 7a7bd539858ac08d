//! gridhaul beside other clients, with both servers.
//!
//! ```text
//!   rows       what is copied
//!   programs   how each client is told to copy it
//! ```

mod programs;
mod rows;

use std::io;
use std::path::Path;
use std::time::{Duration, Instant};

use self::programs::Program;
use self::rows::{Row, all};
use super::machine;
use super::record::section::{self, Section, Target};
use super::record::table;
use super::sample::median;
use super::testbed::Testbed;
use crate::support::Kind;

/// The introduction of the page.
const INTRODUCTION: &str = "# Clients

This page is written by `make bench-clients`: gridhaul and globus-url-copy copy from and to globus-gridftp-server; the same two, curl
and rclone copy from and to gridhaul-server, all on one machine. They run alternately with the same files in memory, each run is checked for the number and the
bytes of the copies, and each number is the median of the runs in seconds. globus-url-copy has the options `-fast -pp -cc 4` for many files,
gridhaul its defaults. The ratio is the time of globus-url-copy over that of gridhaul. Client, server and kernel share the processors, so a ratio
is bounded by what the server needs: [Notes](measurements.md#large-get-1-large-put-1-and-large-between-1-of-the-client) say how much that is.
";

/// No further round of a row is started after this time.
const LIMIT: Duration = Duration::from_secs(60);

/// Measures all rows whose names contain one of `wanted`, or all.
pub fn measure(testbed: &Testbed, repeat: usize, wanted: &[String]) -> Vec<Section> {
    let sections = [
        (Kind::Globus, "With globus-gridftp-server"),
        (Kind::Gridhaul, "With gridhaul-server"),
    ];
    let is_wanted =
        |row: &Row| wanted.is_empty() || wanted.iter().any(|name| row.name.contains(name.as_str()));
    let section = |(kind, title): (Kind, &str)| {
        let rows = all().into_iter().filter(is_wanted);
        let lines: Vec<Line> = rows
            .map(|row| Line::take(row, testbed, kind, repeat))
            .collect();
        section_of(title, &lines)
    };
    sections.into_iter().map(section).collect()
}

/// Writes `clients.md` to a directory.
///
/// # Errors
///
/// When the file cannot be written.
pub fn write(directory: &Path, sections: &[Section], sizes: &str) -> io::Result<()> {
    let mut facts = machine::facts();
    facts.extend(machine::programs());
    facts.push(("files", sizes.to_owned()));
    let facts = facts
        .iter()
        .map(|(name, words)| format!("- {name}: {words}\n"));
    let notes = format!("\n## The machine\n\n{}", facts.collect::<String>());
    section::write(directory, "clients.md", INTRODUCTION, sections, &notes)
}

/// The times of all programs in a row, in seconds, or why one has none.
struct Line {
    row: Row,
    times: Vec<(Program, Result<Vec<f64>, String>)>,
}

impl Line {
    fn take(row: Row, testbed: &Testbed, kind: Kind, repeat: usize) -> Self {
        let started = Instant::now();
        let programs = Program::ALL
            .into_iter()
            .filter(|program| row.runs(*program, kind));
        let mut times: Vec<_> = programs.map(|program| (program, Ok(Vec::new()))).collect();
        for _ in 0..repeat {
            for (program, times) in &mut times {
                let Ok(known) = times else { continue };
                match row.run(*program, testbed, kind) {
                    Ok(time) => known.push(time.as_secs_f64()),
                    Err(error) => *times = Err(error.to_string()),
                }
            }
            if started.elapsed() > LIMIT {
                break;
            }
        }
        eprintln!("{} {}: {times:.2?}", kind.name(), row.name);
        Self { row, times }
    }

    fn time(&self, program: Program) -> Option<f64> {
        let of = self.times.iter().find(|(known, _)| *known == program);
        let values = of.and_then(|(_, times)| times.as_ref().ok());
        values
            .filter(|values| !values.is_empty())
            .map(|values| median(values))
    }

    fn ratio(&self) -> Option<f64> {
        Some(self.time(Program::GlobusUrlCopy)? / self.time(Program::Gridhaul)?)
    }

    fn cell(&self, program: Program) -> String {
        let of = self.times.iter().find(|(known, _)| *known == program);
        match (of, self.time(program)) {
            (_, Some(time)) => format!("{time:.2} s"),
            (Some((_, Err(_))), _) => "failed".to_owned(),
            _ => String::new(),
        }
    }
}

fn section_of(title: &str, lines: &[Line]) -> Section {
    let heading = [
        "row",
        "description",
        "gridhaul",
        "globus-url-copy",
        "ratio",
        "curl",
        "rclone",
    ];
    let cells = lines.iter().map(|line| {
        let ratio = line.ratio().map(|ratio| format!("{ratio:.2}"));
        let [ours, theirs, curl, rclone] = Program::ALL.map(|program| line.cell(program));
        let (name, words) = (format!("`{}`", line.row.name), line.row.description());
        [
            name,
            words,
            ours,
            theirs,
            ratio.unwrap_or_default(),
            curl,
            rclone,
        ]
    });
    let failures = lines.iter().flat_map(|line| {
        let failed = line.times.iter().filter_map(|(program, times)| {
            let error = times.as_ref().err()?;
            // Without the command, which has a password and directories of this machine.
            let words = error.splitn(3, '`').nth(2).unwrap_or(error);
            let error: Vec<_> = words.split_whitespace().take(40).collect();
            Some(format!(
                "- `{}`: {} failed: {}\n",
                line.row.name,
                program.name(),
                error.join(" ")
            ))
        });
        failed.collect::<Vec<_>>()
    });
    let failures: String = failures.collect();
    let targets = lines.iter().map(|line| Target {
        wanted: format!(
            "`{}`: at least {:.1} times as fast as globus-url-copy",
            line.row.name, line.row.target
        ),
        found: line
            .ratio()
            .map_or_else(|| "no result".to_owned(), |ratio| format!("{ratio:.2}")),
        is_met: line.ratio().is_some_and(|ratio| ratio >= line.row.target),
    });
    Section {
        title: title.to_owned(),
        description: "Times of whole commands.".to_owned(),
        table: table(heading, cells.collect())
            + if failures.is_empty() { "" } else { "\n" }
            + &failures,
        targets: targets.collect(),
        pictures: Vec::new(),
    }
}
