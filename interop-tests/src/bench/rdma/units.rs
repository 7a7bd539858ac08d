//! Units of the tables.

/// 1 Gb/s in bytes per second.
pub(super) const GIGABIT: u64 = 125_000_000;
