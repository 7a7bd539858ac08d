//! Numbers of bytes for people.

use std::time::Duration;

/// Bytes a second.
pub(super) fn rate(bytes: u64, took: Duration) -> u64 {
    let nanoseconds = took.as_nanos().max(1);
    let rate = u128::from(bytes) * 1_000_000_000 / nanoseconds;
    u64::try_from(rate).unwrap_or(u64::MAX)
}

/// `1.5 MB`, in powers of 1000.
pub(in crate::program) fn amount(bytes: u64) -> String {
    const UNITS: [&str; 6] = ["kB", "MB", "GB", "TB", "PB", "EB"];
    if bytes < 1000 {
        return format!("{bytes} B");
    }
    let (mut tenths, mut unit) = (u128::from(bytes) / 100, 0);
    while tenths >= 10_000 {
        tenths /= 1000;
        unit += 1;
    }
    format!(
        "{}.{} {}",
        tenths / 10,
        tenths % 10,
        UNITS[unit.min(UNITS.len() - 1)]
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn amounts_have_units() {
        for (bytes, text) in [
            (0, "0 B"),
            (999, "999 B"),
            (1000, "1.0 kB"),
            (1_550_000, "1.5 MB"),
            (999_999_999, "999.9 MB"),
            (u64::MAX, "18.4 EB"),
        ] {
            assert_eq!(amount(bytes), text);
        }
    }
}
