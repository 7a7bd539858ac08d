//! Lines on standard output and standard error. A reader that has gone is an error, or does not matter; it ends no copy.

use std::fmt::Display;
use std::io::{self, Write as _};

/// A line on standard output.
///
/// # Errors
///
/// When it cannot be written.
pub(super) fn print(line: impl Display) -> io::Result<()> {
    writeln!(io::stdout().lock(), "{line}")
}

/// A line on standard error.
pub(super) fn warn(words: impl Display) {
    // Errors have no other place.
    let _ = writeln!(io::stderr().lock(), "gridhaul: {words}");
}

/// A name that a server chose, without characters that control a terminal.
pub(super) fn shown(name: &[u8]) -> String {
    let text = String::from_utf8_lossy(name);
    let escaped = text
        .chars()
        .map(|one| match one.is_control() && one != '\t' {
            true => one.escape_default().to_string(),
            false => one.to_string(),
        });
    escaped.collect()
}
