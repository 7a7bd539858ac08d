//! The table that the program `bench` prints.

use super::measured::Measured;
use super::row::Row;
use super::sample::{Contender, Reading, Unit, spread};
use super::verdict::Verdict;

/// A reading of a row with the formatted values of all contenders.
#[derive(Debug, Clone, PartialEq)]
pub struct Line {
    /// The description of the reading.
    pub description: String,
    /// The value of our server.
    pub ours: String,
    /// The value of the real server.
    pub theirs: String,
    /// The ratio of ours to theirs; above 1 is better.
    pub of_theirs: String,
    /// The value of the fastest variant of the pump.
    pub pump: String,
    /// The ratio of ours to the pump; above 1 is better.
    pub of_pump: String,
    /// The spread of each of the three.
    pub spread: String,
}

/// The heading of the table.
pub fn heading() -> String {
    let words = format!(
        "{:<22} {:<50} {:>14} {:>14} {:>6} {:>12} {:>6}  spread",
        "row", "description", "ours", "theirs", "ratio", "pump", "ratio"
    );
    format!("{words}\n{}\n", "-".repeat(words.len()))
}

/// The readings and targets of a row.
pub fn text(measured: &Measured) -> String {
    let row = &measured.row;
    let mut text = String::new();
    for (index, line) in lines(measured).iter().enumerate() {
        let (name, indent) = match index {
            0 => (row.name.as_str(), ""),
            _ => ("", "  "),
        };
        text += &format!(
            "{name:<22} {:<50} {:>14} {:>14} {:>6} {:>12} {:>6}  {}\n",
            format!("{indent}{}", line.description),
            line.ours,
            line.theirs,
            line.of_theirs,
            line.pump,
            line.of_pump,
            line.spread,
        );
    }
    text += &failures(measured);
    for target in &row.targets {
        let verdict = Verdict::of(target, measured);
        let words = verdict.label();
        text += &format!(
            "{:<24} target: {}: {}, {words}\n",
            "", verdict.wanted, verdict.found
        );
    }
    text
}

/// A line for each contender without a result.
fn failures(measured: &Measured) -> String {
    let name = &measured.row.name;
    let lines = measured.failures.iter().map(|failed| {
        let verb = if failed.expected { "cannot" } else { "failed" };
        format!(
            "{name:<22} {} {verb}: {}\n",
            failed.contender.name(),
            failed.reason
        )
    });
    lines.collect()
}

/// The readings of a row.
pub fn lines(measured: &Measured) -> Vec<Line> {
    Reading::ALL
        .into_iter()
        .filter(|reading| {
            let mut contenders = measured.row.contenders.iter();
            contenders.any(|contender| !measured.values(*contender, *reading).is_empty())
        })
        .map(|reading| line(measured, reading))
        .collect()
}

fn line(measured: &Measured, reading: Reading) -> Line {
    let unit = reading.unit(measured.row.unit);
    let pump = measured.pump();
    let median = |contender| measured.median(contender, reading);
    let [ours, theirs] = Contender::SERVERS.map(median);
    let pumped = pump.and_then(median);
    let ratio = |other: Option<f64>| {
        let (ours, other) = ours.zip(other)?;
        let ratio = if unit.more_is_better() {
            ours / other
        } else {
            other / ours
        };
        Some(format!("{ratio:.2}"))
    };
    let show = |value: Option<f64>| value.map(|value| unit.show(value)).unwrap_or_default();
    let spreads: Vec<String> = [Some(Contender::OURS), Some(Contender::THEIRS), pump]
        .into_iter()
        .flatten()
        .map(|contender| measured.values(contender, reading))
        .filter(|values| !values.is_empty())
        .map(|values| format!("{:.0} %", spread(&values) * 100.0))
        .collect();
    Line {
        description: description(&measured.row, reading, ours),
        ours: show(ours),
        theirs: show(theirs),
        of_theirs: ratio(theirs).unwrap_or_default(),
        pump: show(pumped),
        of_pump: ratio(pumped).unwrap_or_default(),
        spread: spreads.join(" / "),
    }
}

/// The description of a line. Processor time is also given as the load of a core at
/// 1 Gb/s.
fn description(row: &Row, reading: Reading, ours: Option<f64>) -> String {
    let words = match reading {
        Reading::Value => row.description.clone(),
        other => other.label().to_owned(),
    };
    match (reading.unit(row.unit), ours) {
        // 10^9 bits are an eighth of 10^9 bytes.
        (Unit::ProcessorSeconds, Some(ours)) => {
            format!("{words} ({:.1} %/Gb/s)", ours / 8.0 * 100.0)
        }
        _ => words,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::measured::tests::measured;
    use crate::bench::sample::Variant;
    use crate::bench::target::Target;

    #[test]
    fn a_ratio_above_one_means_that_ours_is_better() {
        let pump = Contender::Pump(Variant::Splice);
        let mut measured = measured(&[
            (Contender::OURS, 2.0),
            (Contender::THEIRS, 1.0),
            (pump, 4.0),
        ]);
        let [value, sender] = &lines(&measured)[..] else {
            panic!("two readings");
        };
        assert_eq!((&*value.of_theirs, &*value.of_pump), ("2.00", "0.50"));
        // The processor time of the sender is the reciprocal of the value.
        assert_eq!((&*sender.of_theirs, &*sender.of_pump), ("2.00", "0.50"));
        assert!(
            sender.description.ends_with("(6.2 %/Gb/s)"),
            "{}",
            sender.description
        );
        measured.row.targets = vec![Target::of_theirs(1.3), Target::of_pump(0.95)];
        let text = text(&measured);
        assert!(
            text.contains("at least 1.30 of theirs: 2.00, met"),
            "{text}"
        );
        assert!(
            text.contains("at least 0.95 of the pump: 0.50, MISSED"),
            "{text}"
        );
    }
}
