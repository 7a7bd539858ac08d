//! Units of the tables.

/// A bit per second, in bytes per second.
pub(super) const GIGABIT: u64 = 125_000_000;

pub(super) fn percent(share: f64) -> String {
    format!("{:.1} %", share * 100.0)
}
