//! The page of the benchmark: tables, and charts beside it.

use std::fs;
use std::io;
use std::path::Path;

use super::markdown::table;
use super::svg::{self, Chart, Series};
use crate::bench::measured::Measured;
use crate::bench::row::Group;
use crate::bench::sample::{Contender, Reading, Unit};
use crate::bench::table::{Line, lines};
use crate::bench::verdict::Verdict;

/// The introduction of the page.
const INTRODUCTION: &str = "# Measurements

This page and its charts are written by `make bench-record`, which measures everything in one run:
gridhaul-server, globus-gridftp-server, and the bare pump. The pump is two small processes that only move the same
file over TCP, in three variants: `sendfile` and `splice`, and `read` and `write` with buffers of 256 KiB
and of 1 MiB. Each row shows the fastest variant. The contenders run alternately, and each number
is the median of the runs. A ratio above 1 means that ours is better. The spread is the largest deviation of a
run from the median, for each contender. Processor time is for 10^9 bytes; in parentheses, as the
load of a core at 1 Gb/s.
";

/// Writes `measurements.md` and its charts to a directory, which is made if it does not exist. If it contains a
/// `notes.md`, that becomes the end of the page.
///
/// # Errors
///
/// When a file cannot be written.
pub fn write(directory: &Path, facts: &[(&str, String)], measured: &[Measured]) -> io::Result<()> {
    fs::create_dir_all(directory)?;
    let mut page = format!("{INTRODUCTION}\n{}", table(["", ""], facts_rows(facts)));
    page += &targets(measured);
    for group in Group::ALL {
        let rows: Vec<&Measured> = measured
            .iter()
            .filter(|measured| measured.row.group == group)
            .collect();
        if rows.is_empty() {
            continue;
        }
        page += &format!("\n## {}\n\n", group.title());
        for (name, chart) in charts(group, &rows) {
            fs::write(directory.join(&name), chart.svg())?;
            page += &format!("![{}, {}]({name})\n\n", chart.title, chart.unit);
        }
        page += &readings(&rows);
        page += &notes(&rows);
    }
    // Hand-written notes on the numbers: the causes of missed targets, and experiments.
    if let Ok(notes) = fs::read_to_string(directory.join("notes.md")) {
        page += &format!("\n## Notes\n\n{notes}");
    }
    fs::write(directory.join("measurements.md"), page)
}

fn facts_rows(facts: &[(&str, String)]) -> Vec<[String; 2]> {
    let rows = facts.iter();
    rows.map(|(name, words)| [(*name).to_owned(), words.clone()])
        .collect()
}

/// The targets and the results.
fn targets(measured: &[Measured]) -> String {
    let mut rows = Vec::new();
    for measured in measured {
        for target in &measured.row.targets {
            let verdict = Verdict::of(target, measured);
            let word = match verdict.met {
                Some(false) => format!("**{}**", verdict.label()),
                _ => verdict.label().to_owned(),
            };
            let row = &measured.row;
            rows.push([
                format!("`{}`", row.name),
                row.description.clone(),
                verdict.wanted,
                verdict.found,
                word,
            ]);
        }
    }
    if rows.is_empty() {
        return String::new();
    }
    let heading = ["row", "description", "target", "value", ""];
    format!("\n## Targets\n\n{}", table(heading, rows))
}

/// All readings of all rows.
fn readings(rows: &[&Measured]) -> String {
    let cells = |measured: &Measured, index: usize, line: Line| {
        let [name, runs] = match index {
            0 => [
                format!("`{}`", measured.row.name),
                measured.runs().to_string(),
            ],
            _ => Default::default(),
        };
        let Line {
            description,
            ours,
            theirs,
            of_theirs,
            pump,
            of_pump,
            spread,
        } = line;
        [
            name,
            description,
            ours,
            theirs,
            of_theirs,
            pump,
            of_pump,
            spread,
            runs,
        ]
    };
    let rows = rows.iter().flat_map(|measured| {
        let lines = lines(measured).into_iter().enumerate();
        lines.map(|(index, line)| cells(measured, index, line))
    });
    let heading = [
        "row",
        "description",
        "ours",
        "theirs",
        "ratio",
        "pump",
        "ratio",
        "spread",
        "runs",
    ];
    table(heading, rows.collect())
}

/// The contenders without a result, and the fastest pump.
fn notes(rows: &[&Measured]) -> String {
    let mut notes = String::new();
    for measured in rows {
        let name = &measured.row.name;
        if let Some(pump) = measured.pump() {
            notes += &format!("- `{name}`: the fastest pump was {}.\n", pump.name());
        }
        for failed in &measured.failures {
            let verb = if failed.expected { "cannot" } else { "failed" };
            let reason = failed.reason.split_whitespace().collect::<Vec<_>>();
            notes += &format!(
                "- `{name}`: {} {verb}: {}\n",
                failed.contender.name(),
                reason.join(" ")
            );
        }
    }
    if notes.is_empty() {
        notes
    } else {
        format!("\n{notes}")
    }
}

/// A chart of the values of a group, and for third-party copies one of the processor time.
fn charts(group: Group, rows: &[&Measured]) -> Vec<(String, Chart)> {
    let Some(first) = rows.first() else {
        return Vec::new();
    };
    let unit = first.row.unit;
    let same = rows.iter().copied().filter(|row| row.row.unit == unit);
    let same: Vec<&Measured> = same.collect();
    let mut charts = vec![chart(group, &same, Reading::Value, unit)];
    if group == Group::ThirdParty {
        charts.push(chart(
            group,
            &same,
            Reading::Processor,
            Unit::ProcessorSeconds,
        ));
    }
    charts
}

fn chart(group: Group, rows: &[&Measured], reading: Reading, unit: Unit) -> (String, Chart) {
    let groups = rows.iter().map(|measured| {
        let bar = |series, contender: Option<Contender>| {
            Some((series, measured.median(contender?, reading)?))
        };
        let bars = [
            bar(Series::Ours, Some(Contender::OURS)),
            bar(Series::Theirs, Some(Contender::THEIRS)),
            bar(Series::Pump, measured.pump()),
        ];
        svg::Group {
            label: measured.row.name.clone(),
            bars: bars.into_iter().flatten().collect(),
        }
    });
    let (name, title) = match reading {
        Reading::Value => (group.file_name().to_owned(), group.title().to_owned()),
        _ => {
            let title = format!("{}: {}", group.title(), reading.label());
            (format!("{}-processor", group.file_name()), title)
        }
    };
    let chart = Chart {
        title,
        unit: unit.symbol().to_owned(),
        groups: groups.filter(|group| !group.bars.is_empty()).collect(),
    };
    (format!("{name}.svg"), chart)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::measured::tests::measured;
    use crate::bench::sample::Variant;
    use crate::bench::target::Target;

    #[test]
    fn a_record_has_facts_targets_numbers_and_charts() {
        let directory = tempfile::tempdir().unwrap();
        let mut measured = measured(&[
            (Contender::OURS, 2.0),
            (Contender::THEIRS, 1.0),
            (Contender::Pump(Variant::Splice), 4.0),
        ]);
        measured.row.group = Group::ThirdParty;
        measured.row.targets = vec![Target::of_pump(0.95)];
        let facts = [("kernel", "Linux | 6".to_owned())];
        fs::write(directory.path().join("notes.md"), "Why it falls short.\n").unwrap();
        write(directory.path(), &facts, &[measured]).unwrap();
        let page = fs::read_to_string(directory.path().join("measurements.md")).unwrap();
        for words in [
            "| kernel | Linux \\| 6 |",
            "| `name` | description | at least 0.95 of the pump | 0.50 | **MISSED** |",
            "| `name` | description | 2.00 GB/s | 1.00 GB/s | 2.00 | 4.00 GB/s | 0.50 |",
            "(third-party.svg)",
            "the fastest pump was sendfile and splice",
            "## Notes\n\nWhy it falls short.\n",
        ] {
            assert!(page.contains(words), "{words}: {page}");
        }
        let chart = fs::read_to_string(directory.path().join("third-party.svg")).unwrap();
        assert!(
            chart.contains("bare pump") && chart.contains(">4.00<"),
            "{chart}"
        );
    }
}
