//! Reports of drivers to the program: the result of checks of the machine, and gauges for monitoring.

/// The result of one check of the machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finding {
    /// The subject, for the line of a report.
    pub about: &'static str,
    /// Whether the driver works as far as this subject is concerned.
    pub standing: Standing,
    /// The details, and how to fix a problem.
    pub text: String,
}

impl Finding {
    /// Whether there is no problem.
    pub fn is_good(&self) -> bool {
        self.standing == Standing::Good
    }
}

/// The result of a check.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Standing {
    /// No problem.
    Good,
    /// The driver works less well than it could, or not at all.
    Bad,
    /// The machine does not tell, or not this user. The text has what would tell.
    Unknown,
}

impl Standing {
    /// Good, or bad.
    pub fn of(is_good: bool) -> Self {
        match is_good {
            true => Self::Good,
            false => Self::Bad,
        }
    }
}

/// A gauge for monitoring: a present value, several that a label tells apart, or a count.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Gauge {
    /// The name in the format of Prometheus.
    pub name: &'static str,
    /// One line that explains it, without a full stop.
    pub help: &'static str,
    /// The values.
    pub values: GaugeValues,
}

/// The values of a [`Gauge`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum GaugeValues {
    /// One value.
    Single(u64),
    /// Events since the start of the process. The name ends with `_total`.
    Count(u64),
    /// The name of a label, and its values with theirs. These are constants of the program, so that the number of time series is
    /// bounded.
    ByLabel(&'static str, Vec<(&'static str, u64)>),
}

impl Gauge {
    /// A gauge with one value.
    pub fn single(name: &'static str, help: &'static str, value: u64) -> Self {
        let values = GaugeValues::Single(value);
        Self { name, help, values }
    }

    /// A count of events.
    pub fn count(name: &'static str, help: &'static str, events: u64) -> Self {
        let values = GaugeValues::Count(events);
        Self { name, help, values }
    }
}
