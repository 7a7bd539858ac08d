//! The target of a row.

use super::sample::Reading;

/// What is wanted of one reading of a row.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Target {
    /// Of what.
    pub reading: Reading,
    /// How much.
    pub bound: Bound,
}

/// A limit for our number: a least one where more is better, else a greatest one.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Bound {
    /// So many times the real server's.
    OfTheirs(f64),
    /// So many times that of the pump in its fastest way.
    OfPump(f64),
    /// A number in the reading's unit.
    Number(f64),
}

impl Target {
    /// At least so many times the real server's value.
    pub const fn of_theirs(times: f64) -> Self {
        Self {
            reading: Reading::Value,
            bound: Bound::OfTheirs(times),
        }
    }

    /// At least this share of the pump's value.
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
