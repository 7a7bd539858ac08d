//! Checks of numbers and lists in settings.

use std::time::Duration;

use super::error::ConfigError;

/// A year. A larger number is a mistake.
pub(super) const MOST_SECONDS: u64 = 366 * 24 * 3600;

/// A number of seconds, at least one.
pub(super) fn seconds(
    name: &'static str,
    value: Option<u64>,
    default: u64,
) -> Result<Duration, ConfigError> {
    between(name, value, default, 1, MOST_SECONDS).map(Duration::from_secs)
}

/// A number from 1 to a million.
pub(super) fn count(
    name: &'static str,
    value: Option<usize>,
    default: usize,
) -> Result<usize, ConfigError> {
    between(name, value, default, 1, 1_000_000)
}

/// A number in these bounds, both included.
pub(super) fn between<N: Copy + PartialOrd + TryInto<u64>>(
    name: &'static str,
    value: Option<N>,
    default: N,
    least: N,
    most: N,
) -> Result<N, ConfigError> {
    let wide = |number: N| number.try_into().unwrap_or(u64::MAX);
    match value {
        Some(value) if value < least || value > most => Err(ConfigError::OutOfRange {
            name,
            value: wide(value),
            least: wide(least),
            most: wide(most),
        }),
        Some(value) => Ok(value),
        None => Ok(default),
    }
}

/// A list that has an entry, if it is set.
pub(super) fn not_empty<T>(
    name: &'static str,
    list: Option<Vec<T>>,
) -> Result<Option<Vec<T>>, ConfigError> {
    match list {
        Some(list) if list.is_empty() => Err(ConfigError::Empty(name)),
        list => Ok(list),
    }
}
