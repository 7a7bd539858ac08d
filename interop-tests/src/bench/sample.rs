//! The readings of one run of a row, and statistics over several runs.

use std::time::Duration;

use crate::support::Kind;

/// A contender of a row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Contender {
    /// One of the servers.
    Server(Kind),
    /// The bare pump, in one of its variants.
    Pump(Variant),
}

/// The variants of the bare pump: how it moves bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Variant {
    /// `sendfile` in the sender, `splice` through a pipe in the receiver.
    Splice,
    /// `read` and `write` with buffers of 256 KiB.
    SmallBuffers,
    /// `read` and `write` with buffers of 1 MiB.
    LargeBuffers,
}

/// The unit of a value, and whether more is better.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unit {
    /// 10^9 bytes per second: more is better.
    Gigabytes,
    /// 10^6 bits per second: more is better.
    Megabits,
    /// Files per second: more is better.
    Files,
    /// Logins per second: more is better.
    Logins,
    /// Listed names per second: more is better.
    Names,
    /// Response time: less is better.
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

/// A reading of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reading {
    /// The main value, in the row's unit.
    Value,
    /// Processor time of the server or pump that sends.
    Sender,
    /// Processor time of the server or pump that receives.
    Receiver,
    /// Processor time of both.
    Processor,
    /// The rate of the slowest client divided by that of the fastest.
    Fairness,
    /// The maximum of the server's resident memory.
    Memory,
    /// The growth of the server's peak resident memory.
    Growth,
}

/// The readings of one run.
#[derive(Debug, Clone, Default)]
pub struct Sample {
    readings: Vec<(Reading, f64)>,
}

impl Contender {
    /// Our server.
    pub const OURS: Self = Self::Server(Kind::Gridhaul);
    /// The real server.
    pub const THEIRS: Self = Self::Server(Kind::Globus);
    /// Both servers.
    pub const SERVERS: [Self; 2] = [Self::OURS, Self::THEIRS];
    /// Both servers and every variant of the pump.
    pub const ALL: [Self; 5] = [
        Self::OURS,
        Self::THEIRS,
        Self::Pump(Variant::Splice),
        Self::Pump(Variant::SmallBuffers),
        Self::Pump(Variant::LargeBuffers),
    ];

    /// Whether it is the pump.
    pub fn is_pump(self) -> bool {
        matches!(self, Self::Pump(_))
    }

    /// The name in reports.
    pub fn name(self) -> &'static str {
        match self {
            Self::Server(kind) => kind.name(),
            Self::Pump(variant) => variant.label(),
        }
    }
}

impl Variant {
    /// All variants.
    pub const ALL: [Self; 3] = [Self::Splice, Self::SmallBuffers, Self::LargeBuffers];

    /// The name in reports.
    pub fn label(self) -> &'static str {
        match self {
            Self::Splice => "sendfile and splice",
            Self::SmallBuffers => "read and write of 256 KiB",
            Self::LargeBuffers => "read and write of 1 MiB",
        }
    }
}

impl Unit {
    /// The symbol.
    pub fn symbol(self) -> &'static str {
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

    /// The value with three significant digits, and the unit.
    pub fn show(self, value: f64) -> String {
        let decimals = match value.abs() {
            below if below < 10.0 => 2,
            below if below < 100.0 => 1,
            _ => 0,
        };
        let number = format!("{value:.decimals$} {}", self.symbol());
        number.trim_end().to_owned()
    }
}

impl Reading {
    /// All readings, in the order of reports.
    pub const ALL: [Self; 7] = [
        Self::Value,
        Self::Sender,
        Self::Receiver,
        Self::Processor,
        Self::Fairness,
        Self::Memory,
        Self::Growth,
    ];

    /// The name in reports; for the value they use the description of the row.
    pub fn label(self) -> &'static str {
        match self {
            Self::Value => "value",
            Self::Sender => "processor time, sender",
            Self::Receiver => "processor time, receiver",
            Self::Processor => "processor time, both",
            Self::Fairness => "slowest over fastest client",
            Self::Memory => "peak memory of the server",
            Self::Growth => "memory growth of the server",
        }
    }

    /// Its unit, in a row whose value has the unit `row`.
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
    /// A run with only this value.
    pub fn new(value: f64) -> Self {
        Self::default().with(Reading::Value, value)
    }

    /// A run that moved `bytes` in a time; its value is in 10^9 bytes per second.
    pub fn speed(bytes: u64, elapsed: Duration) -> Self {
        Self::new(gigabytes(bytes) / elapsed.as_secs_f64())
    }

    /// Adds a reading.
    #[must_use]
    pub fn with(mut self, reading: Reading, value: f64) -> Self {
        self.readings.push((reading, value));
        self
    }

    /// Adds processor time that was used for this number of bytes.
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

/// Converts bytes to units of 10^9 bytes.
#[expect(clippy::cast_precision_loss, reason = "numbers of this size are exact")]
pub fn gigabytes(bytes: u64) -> f64 {
    bytes as f64 / 1e9
}

/// Converts bytes to MiB.
#[expect(clippy::cast_precision_loss, reason = "numbers of this size are exact")]
pub fn mebibytes(bytes: u64) -> f64 {
    bytes as f64 / f64::from(1 << 20)
}

/// The median; for an even number of values the mean of the middle two.
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

/// The largest deviation from the median, as a share of the median.
pub fn spread(values: &[f64]) -> f64 {
    let middle = median(values);
    let distances = values.iter().map(|value| (value / middle - 1.0).abs());
    distances.fold(0.0, f64::max)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn medians_and_spreads() {
        assert!((median(&[3.0, 1.0, 2.0]) - 2.0).abs() < 1e-9);
        assert!((median(&[4.0, 1.0, 2.0, 3.0]) - 2.5).abs() < 1e-9);
        assert!(median(&[]).is_nan());
        assert!((spread(&[90.0, 100.0, 120.0]) - 0.2).abs() < 1e-9);
    }

    #[test]
    fn numbers_have_three_significant_digits() {
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
