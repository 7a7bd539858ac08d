//! Lines on standard output and standard error. A reader that has gone is an error, or does not matter; it ends no copy.

use std::fmt::Display;
use std::io::{self, Write as _};
use std::sync::{Mutex, MutexGuard, PoisonError};

use indicatif::{MultiProgress, ProgressDrawTarget};

/// The progress bars at the end of the screen, of which the process has one set.
static BARS: Mutex<Bars> = Mutex::new(Bars {
    shown: None,
    pauses: 0,
});

struct Bars {
    shown: Option<MultiProgress>,
    /// As long as there are any, the bars are not drawn.
    pauses: usize,
}

/// Bars are not drawn until all pauses are dropped. A lock on them would stop the copies that move.
pub(super) struct Pause(());

/// Writes further lines above these bars.
pub(super) fn write_above(bars: Option<MultiProgress>) {
    locked(&BARS).shown = bars;
}

/// Writes without bars on the screen.
fn without_bars<T>(work: impl FnOnce() -> T) -> T {
    let bars = locked(&BARS).shown.clone();
    match bars {
        Some(bars) => bars.suspend(work),
        None => work(),
    }
}

impl Pause {
    /// Removes the bars, because the user may be asked something.
    pub(super) fn begin() -> Self {
        let mut bars = locked(&BARS);
        bars.pauses += 1;
        if let Some(shown) = bars.shown.as_ref().filter(|_| bars.pauses == 1) {
            // A screen that cannot be cleared has other troubles.
            let _ = shown.clear();
            shown.set_draw_target(ProgressDrawTarget::hidden());
        }
        Self(())
    }
}

impl Drop for Pause {
    fn drop(&mut self) {
        let mut bars = locked(&BARS);
        bars.pauses -= 1;
        if let Some(shown) = bars.shown.as_ref().filter(|_| bars.pauses == 0) {
            shown.set_draw_target(ProgressDrawTarget::stderr());
        }
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
    let words = shown_lines(&words.to_string());
    // Errors have no other place.
    let _ = without_bars(|| writeln!(io::stderr().lock(), "gridhaul: {words}"));
}

/// Text on standard error, which controls no terminal.
pub(super) fn write_plain(text: &str) {
    // Messages have no other place.
    let _ = without_bars(|| io::stderr().lock().write_all(text.as_bytes()));
}

/// Lines with names that a server chose, such as its replies, without characters that control a terminal.
pub(super) fn shown_lines(lines: &str) -> String {
    let lines = lines.split('\n').map(|line| shown(line.as_bytes()));
    lines.collect::<Vec<_>>().join("\n")
}

/// JSON without characters that control a terminal: it has them in strings only, where escapes mean the same. Serializers escape only
/// those below U+0020.
pub(super) fn shown_json(text: &str) -> String {
    let escaped = text.chars().map(|one| match one.is_control() {
        true => format!("\\u{:04x}", u32::from(one)),
        false => one.to_string(),
    });
    escaped.collect()
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

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn json_has_the_same_text_and_controls_no_terminal(text in "(\\PC|[\\x00-\\x1f\\x7f-\u{9f}]|\\\\|\")*") {
            let line = serde_json::to_string(&text).expect("a string");
            let line = shown_json(&line);
            prop_assert!(!line.contains(char::is_control), "{line:?}");
            prop_assert_eq!(serde_json::from_str::<String>(&line).expect("JSON"), text);
        }
    }
}
