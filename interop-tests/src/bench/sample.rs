//! What one run of a row gave, and what several runs say together.

use std::time::Duration;

use crate::support::Kind;

/// Who runs a row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Contender {
    /// One of the servers.
    Server(Kind),
    /// The bare pump, in one of its ways.
    Pump(Way),
}

/// How the bare pump moves bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Way {
    /// `sendfile` on the one side, `splice` through a pipe on the other.
    Splice,
    /// `read` and `write` with buffers of 256 KiB.
    SmallBuffers,
    /// `read` and `write` with buffers of 1 MiB.
    LargeBuffers,
}

/// What a run's number is, and which way is better.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unit {
    /// 10^9 bytes a second: more is better.
    Gigabytes,
    /// 10^6 bits a second: more is better.
    Megabits,
    /// Files a second: more is better.
    Files,
    /// Sessions that log in and leave, a second: more is better.
    Logins,
    /// Names listed, a second: more is better.
    Names,
    /// Time to answer: less is better.
    Milliseconds,
    /// Resident memory: less is better.
    Kibibytes,
    /// Resident memory: less is better.
    Mebibytes,
    /// Processor seconds for 10^9 bytes: less is better.
    ProcessorSeconds,
    /// A share from 0 to 1: more is better.
    Share,
}

/// One of the things that are measured in a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reading {
    /// What the row is about, in the row's unit.
    Value,
    /// Processor time of the server or pump that sends.
    Sender,
    /// Processor time of the server or pump that receives.
    Receiver,
    /// Both together.
    Processor,
    /// The rate of the slowest client as a share of the fastest one's.
    Fairness,
    /// The most resident memory that the server had.
    Memory,
    /// How much more resident memory the server had at most than before.
    Growth,
}

/// What one run gave.
#[derive(Debug, Clone, Default)]
pub struct Sample {
    readings: Vec<(Reading, f64)>,
}

impl Contender {
    /// Ours.
    pub const OURS: Self = Self::Server(Kind::Gridhaul);
    /// The real server.
    pub const THEIRS: Self = Self::Server(Kind::Globus);
    /// Both servers.
    pub const SERVERS: [Self; 2] = [Self::OURS, Self::THEIRS];
    /// Both servers and every way of the pump.
    pub const ALL: [Self; 5] = [
        Self::OURS,
        Self::THEIRS,
        Self::Pump(Way::Splice),
        Self::Pump(Way::SmallBuffers),
        Self::Pump(Way::LargeBuffers),
    ];

    /// Whether it is the pump.
    pub fn is_pump(self) -> bool {
        matches!(self, Self::Pump(_))
    }

    /// The name that reports use.
    pub fn name(self) -> &'static str {
        match self {
            Self::Server(kind) => kind.name(),
            Self::Pump(way) => way.words(),
        }
    }
}

impl Way {
    /// Every way.
    pub const ALL: [Self; 3] = [Self::Splice, Self::SmallBuffers, Self::LargeBuffers];

    /// What it does, in words.
    pub fn words(self) -> &'static str {
        match self {
            Self::Splice => "sendfile and splice",
            Self::SmallBuffers => "read and write of 256 KiB",
            Self::LargeBuffers => "read and write of 1 MiB",
        }
    }
}

impl Unit {
    /// How it is written behind a number.
    pub fn words(self) -> &'static str {
        match self {
            Self::Gigabytes => "GB/s",
            Self::Megabits => "Mb/s",
            Self::Files => "files/s",
            Self::Logins => "logins/s",
            Self::Names => "names/s",
            Self::Milliseconds => "ms",
            Self::Kibibytes => "KiB",
            Self::Mebibytes => "MiB",
            Self::ProcessorSeconds => "s/GB",
            Self::Share => "",
        }
    }

    /// Whether a larger number is a better one.
    pub fn more_is_better(self) -> bool {
        !matches!(
            self,
            Self::Milliseconds | Self::Kibibytes | Self::Mebibytes | Self::ProcessorSeconds
        )
    }

    /// A number with three digits that mean something, and the unit.
    pub fn show(self, value: f64) -> String {
        let decimals = match value.abs() {
            below if below < 10.0 => 2,
            below if below < 100.0 => 1,
            _ => 0,
        };
        let number = format!("{value:.decimals$} {}", self.words());
        number.trim_end().to_owned()
    }
}

impl Reading {
    /// Every reading, in the order of reports.
    pub const ALL: [Self; 7] = [
        Self::Value,
        Self::Sender,
        Self::Receiver,
        Self::Processor,
        Self::Fairness,
        Self::Memory,
        Self::Growth,
    ];

    /// What it is, in words; a row has words of its own for its value.
    pub fn words(self) -> &'static str {
        match self {
            Self::Value => "value",
            Self::Sender => "processor time, sender",
            Self::Receiver => "processor time, receiver",
            Self::Processor => "processor time, both",
            Self::Fairness => "slowest over fastest client",
            Self::Memory => "memory of the server, at most",
            Self::Growth => "memory that the server grew by",
        }
    }

    /// Its unit, in a row whose value has the given one.
    pub fn unit(self, row: Unit) -> Unit {
        match self {
            Self::Value => row,
            Self::Sender | Self::Receiver | Self::Processor => Unit::ProcessorSeconds,
            Self::Fairness => Unit::Share,
            Self::Memory | Self::Growth => Unit::Mebibytes,
        }
    }
}

impl Sample {
    /// A run with this value and nothing else.
    pub fn new(value: f64) -> Self {
        Self::default().with(Reading::Value, value)
    }

    /// A run that moved `bytes` in a time: its value is in 10^9 bytes a second.
    pub fn speed(bytes: u64, elapsed: Duration) -> Self {
        Self::new(gigabytes(bytes) / elapsed.as_secs_f64())
    }

    /// Adds a reading.
    #[must_use]
    pub fn with(mut self, reading: Reading, value: f64) -> Self {
        self.readings.push((reading, value));
        self
    }

    /// Adds processor time that was used for so many bytes.
    #[must_use]
    pub fn with_processor(self, reading: Reading, time: Duration, bytes: u64) -> Self {
        self.with(reading, time.as_secs_f64() / gigabytes(bytes))
    }

    /// Adds the processor time of a sender and of a receiver, and their sum.
    #[must_use]
    pub fn with_both_ends(self, [sender, receiver]: [Duration; 2], bytes: u64) -> Self {
        self.with_processor(Reading::Sender, sender, bytes)
            .with_processor(Reading::Receiver, receiver, bytes)
            .with_processor(Reading::Processor, sender + receiver, bytes)
    }

    /// A reading, if the run has it.
    pub fn reading(&self, reading: Reading) -> Option<f64> {
        let found = self.readings.iter().find(|(known, _)| *known == reading);
        found.map(|(_, value)| *value)
    }
}

/// Units of 10^9 bytes.
#[expect(clippy::cast_precision_loss, reason = "numbers of this size are exact")]
pub fn gigabytes(bytes: u64) -> f64 {
    bytes as f64 / 1e9
}

/// The value in the middle; of an even number the mean of the two.
pub fn median(values: &[f64]) -> f64 {
    let mut values = values.to_vec();
    values.sort_by(f64::total_cmp);
    let middle = values.len() / 2;
    match values.len() {
        0 => f64::NAN,
        odd if odd % 2 == 1 => values[middle],
        _ => f64::midpoint(values[middle - 1], values[middle]),
    }
}

/// How far the furthest of the values is from the median, as a share of it.
pub fn spread(values: &[f64]) -> f64 {
    let middle = median(values);
    let distances = values.iter().map(|value| (value / middle - 1.0).abs());
    distances.fold(0.0, f64::max)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_is_in_the_middle() {
        assert!((median(&[3.0, 1.0, 2.0]) - 2.0).abs() < 1e-9);
        assert!((median(&[4.0, 1.0, 2.0, 3.0]) - 2.5).abs() < 1e-9);
        assert!(median(&[]).is_nan());
        assert!((spread(&[90.0, 100.0, 120.0]) - 0.2).abs() < 1e-9);
    }

    #[test]
    fn numbers_have_three_digits_that_mean_something() {
        assert_eq!(Unit::Gigabytes.show(2.3456), "2.35 GB/s");
        assert_eq!(Unit::Files.show(12_345.6), "12346 files/s");
        assert_eq!(Unit::Share.show(0.5), "0.50");
    }

    #[test]
    fn processor_time_is_for_a_gigabyte() {
        let ends = [Duration::from_secs(1), Duration::from_secs(2)];
        let sample = Sample::speed(2_000_000_000, Duration::from_secs(4));
        let sample = sample.with_both_ends(ends, 2_000_000_000);
        assert_eq!(sample.reading(Reading::Value), Some(0.5));
        assert_eq!(sample.reading(Reading::Sender), Some(0.5));
        assert_eq!(sample.reading(Reading::Processor), Some(1.5));
        assert_eq!(sample.reading(Reading::Fairness), None);
    }
}
