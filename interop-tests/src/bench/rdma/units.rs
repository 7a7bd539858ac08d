//! Units of the tables.

/// 1 Gb/s in bytes per second.
pub(super) const GIGABIT: u64 = 125_000_000;

pub(super) fn percent(share: f64) -> String {
    format!("{:.1} %", share * 100.0)
}
