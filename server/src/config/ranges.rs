//! Checks of numbers and lists in settings. Each error is noted, and the default stands in, so that one run finds all of them.

use std::time::Duration;

use super::error::ConfigError;
use super::examples::example;
use super::seconds::Seconds;

/// A year. A larger number is a mistake.
pub(super) const MOST_SECONDS: u64 = 366 * 24 * 3600;

/// A number of seconds, at least one.
pub(super) fn seconds(
    errors: &mut Vec<ConfigError>,
    name: &'static str,
    value: Option<Seconds>,
    default: u64,
) -> Duration {
    let value = value.map(u64::from);
    Duration::from_secs(between(errors, name, value, default, 1, MOST_SECONDS))
}

/// A number from 1 to a million.
pub(super) fn count(
    errors: &mut Vec<ConfigError>,
    name: &'static str,
    value: Option<usize>,
    default: usize,
) -> usize {
    between(errors, name, value, default, 1, 1_000_000)
}

/// A number in these bounds, both included. Others are errors, and become the default.
pub(super) fn between<N: Copy + PartialOrd + TryInto<u64>>(
    errors: &mut Vec<ConfigError>,
    name: &'static str,
    value: Option<N>,
    default: N,
    least: N,
    most: N,
) -> N {
    let wide = |number: N| number.try_into().unwrap_or(u64::MAX);
    match value {
        Some(value) if value < least || value > most => {
            errors.push(ConfigError::OutOfRange {
                name,
                value: wide(value),
                least: wide(least),
                most: wide(most),
                unit: unit_of(name),
            });
            default
        }
        Some(value) => value,
        None => default,
    }
}

/// The unit of a setting, after its numbers.
fn unit_of(name: &str) -> &'static str {
    match example(name).map(|example| example.kind) {
        Some("a time") => " seconds",
        Some("a number of bytes") => " bytes",
        _ => "",
    }
}

/// A list that has an entry, if it is set.
pub(super) fn not_empty<T>(
    errors: &mut Vec<ConfigError>,
    name: &'static str,
    list: Option<Vec<T>>,
) -> Option<Vec<T>> {
    let list = list?;
    if list.is_empty() {
        errors.push(ConfigError::Empty(name));
        return None;
    }
    Some(list)
}
