//! The target of a row.

use super::sample::Reading;

/// A bound for one reading of a row.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Target {
    /// The reading.
    pub reading: Reading,
    /// The bound.
    pub bound: Bound,
}

/// A limit for our value: a minimum where more is better, else a maximum.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Bound {
    /// A multiple of the real server's value.
    OfTheirs(f64),
    /// A multiple of the value of the fastest pump.
    OfPump(f64),
    /// A value in the reading's unit.
    Number(f64),
}

impl Target {
    /// At least this multiple of the real server's value.
    pub const fn of_theirs(times: f64) -> Self {
        Self {
            reading: Reading::Value,
            bound: Bound::OfTheirs(times),
        }
    }

    /// At least this share of the fastest pump's value.
    pub const fn of_pump(share: f64) -> Self {
        Self {
            reading: Reading::Value,
            bound: Bound::OfPump(share),
        }
    }

    /// The target for another reading.
    #[must_use]
    pub const fn of(self, reading: Reading) -> Self {
        Self { reading, ..self }
    }
}
