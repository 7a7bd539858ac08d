//! Values of gauges.

/// The value as a gauge holds it, at most `i64::MAX`.
pub(super) fn gauge_value(value: impl TryInto<i64>) -> i64 {
    value.try_into().unwrap_or(i64::MAX)
}
