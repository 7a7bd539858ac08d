//! Lines on standard output and standard error. A reader that has gone is an error, or does not matter; it ends no copy.

use std::fmt::Display;
use std::io::{self, Write as _};
use std::sync::{Mutex, MutexGuard, PoisonError};

use indicatif::MultiProgress;

/// The progress bars at the end of the screen, of which the process has one set.
static BARS: Mutex<Option<MultiProgress>> = Mutex::new(None);

/// Writes further lines above these bars.
pub(super) fn write_above(bars: Option<MultiProgress>) {
    *locked(&BARS) = bars;
}

/// Runs something that writes to the terminal, or reads from it, without bars on the screen.
pub(super) fn without_bars<T>(work: impl FnOnce() -> T) -> T {
    let bars = locked(&BARS).clone();
    match bars {
        Some(bars) => bars.suspend(work),
        None => work(),
    }
}

/// The values behind these locks are whole at any time.
pub(super) fn locked<T>(lock: &Mutex<T>) -> MutexGuard<'_, T> {
    lock.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A line on standard output.
///
/// # Errors
///
/// When it cannot be written.
pub(super) fn print(line: impl Display) -> io::Result<()> {
    without_bars(|| writeln!(io::stdout().lock(), "{line}"))
}

/// A line on standard error.
pub(super) fn warn(words: impl Display) {
    // Errors have no other place.
    let _ = without_bars(|| writeln!(io::stderr().lock(), "gridhaul: {words}"));
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
