//! The table that the program `bench` prints.

use std::fs;
use std::process::Command;

use super::rows::{Row, Sample, Target, Unit};

/// The samples of one row, ours and theirs, in the order in which they were taken.
#[derive(Debug)]
pub struct Measured {
    /// The row.
    pub row: Row,
    /// Of our server.
    pub ours: Vec<Sample>,
    /// Of the real one.
    pub theirs: Vec<Sample>,
}

/// The heading of the table.
pub fn heading() -> String {
    let words = format!(
        "{:<17} {:<48} {:>16} {:>16} {:>6}  {:<6} spread",
        "row", "what", "ours", "theirs", "ratio", "target"
    );
    format!("{words}\n{}\n", "-".repeat(words.len()))
}

impl Measured {
    /// The lines of this row: the speed or size, and for large files the processor time.
    pub fn lines(&self) -> String {
        let values = |samples: &[Sample]| samples.iter().map(|sample| sample.value).collect();
        let unit = self.row.unit;
        let mut lines = line(
            self.row.name,
            self.row.what,
            (values(&self.ours), values(&self.theirs)),
            unit.words(),
            unit.more_is_better(),
            self.row.target,
        );
        let processor = |samples: &[Sample]| {
            samples
                .iter()
                .filter_map(|sample| sample.processor)
                .collect()
        };
        let (ours, theirs): (Vec<f64>, Vec<f64>) = (processor(&self.ours), processor(&self.theirs));
        if !ours.is_empty() {
            let what = "  processor time of the servers";
            lines += &line("", what, (ours, theirs), "s/GB", false, Target::NotBehind);
        }
        lines
    }
}

impl Unit {
    fn words(self) -> &'static str {
        match self {
            Self::Megabytes => "MB/s",
            Self::Files => "files/s",
            Self::Logins => "logins/s",
            Self::Kibibytes => "KiB",
        }
    }

    fn more_is_better(self) -> bool {
        self != Self::Kibibytes
    }
}

fn line(
    name: &str,
    what: &str,
    (ours, theirs): (Vec<f64>, Vec<f64>),
    unit: &str,
    more_is_better: bool,
    target: Target,
) -> String {
    let spread = format!("{} / {}", spread(&ours), spread(&theirs));
    let (ours, theirs) = (median(ours), median(theirs));
    let ratio = if more_is_better {
        ours / theirs
    } else {
        theirs / ours
    };
    let (words, met) = match target {
        Target::NotBehind => (">= 1", ratio >= 1.0),
        Target::Ahead => ("> 1", ratio > 1.0),
    };
    let missed = if met { "" } else { "  MISSED" };
    let shown = |value: f64| format!("{value:.*} {unit}", usize::from(value < 100.0) * 2);
    let (ours, theirs) = (shown(ours), shown(theirs));
    format!(
        "{name:<17} {what:<48} {ours:>16} {theirs:>16} {ratio:>6.2}  {words:<6} {spread}{missed}\n"
    )
}

/// The value in the middle; of an even number the mean of the two.
fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    let middle = values.len() / 2;
    match values.len() {
        0 => f64::NAN,
        odd if odd % 2 == 1 => values[middle],
        _ => f64::midpoint(values[middle - 1], values[middle]),
    }
}

/// How far the extremes are from the median, in percent.
fn spread(values: &[f64]) -> String {
    let middle = median(values.to_vec());
    let furthest = values
        .iter()
        .map(|value| (value / middle - 1.0).abs())
        .fold(0.0, f64::max);
    format!("{:.0} %", furthest * 100.0)
}

/// The machine and the versions, in a line.
pub fn machine(ours: &str) -> String {
    let kernel = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    let processors = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model = processors
        .lines()
        .find_map(|line| line.strip_prefix("model name"))
        .map_or("unknown processor", |line| {
            line.trim_start_matches(['\t', ' ', ':'])
        });
    let count = std::thread::available_parallelism().map_or(1, usize::from);
    format!(
        "Linux {}, {count} x {model}; {}; {}; {}",
        kernel.trim(),
        version(ours, "--version"),
        version("globus-gridftp-server", "-version"),
        version("globus-url-copy", "-version"),
    )
}

/// The first line of what a program says of itself.
fn version(program: &str, option: &str) -> String {
    let output = Command::new(program).arg(option).output();
    let words = output
        .map(|output| [output.stdout, output.stderr].concat())
        .unwrap_or_default();
    let words = String::from_utf8_lossy(&words);
    words.lines().next().unwrap_or(program).trim().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_is_in_the_middle() {
        assert!((median(vec![3.0, 1.0, 2.0]) - 2.0).abs() < 1e-9);
        assert!((median(vec![4.0, 1.0, 2.0, 3.0]) - 2.5).abs() < 1e-9);
        assert!(median(Vec::new()).is_nan());
        assert_eq!(spread(&[90.0, 100.0, 120.0]), "20 %");
    }

    #[test]
    fn more_than_one_means_that_ours_is_better() {
        let line = |ours, theirs, more| {
            line(
                "name",
                "what",
                (vec![ours], vec![theirs]),
                "unit",
                more,
                Target::Ahead,
            )
        };
        assert!(line(200.0, 100.0, true).contains(" 2.00 "));
        assert!(line(50.0, 100.0, false).contains(" 2.00 "));
        assert!(line(50.0, 100.0, true).contains("MISSED"));
        assert!(!line(101.0, 100.0, true).contains("MISSED"));
    }
}
