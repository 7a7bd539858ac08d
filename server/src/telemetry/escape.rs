//! Text that cannot add a line to a log or control a terminal.

use std::borrow::Cow;
use std::fmt::Write as _;

/// The text with control characters escaped as `\u000a`. Quoted fields have none; fields without quotes, such as errors,
/// may contain names from clients. In JSON the escape means the same character.
pub(super) fn harmless(text: &str) -> Cow<'_, str> {
    let is_control = |c: char| c.is_control() || matches!(c, '\u{2028}' | '\u{2029}');
    if !text.contains(is_control) {
        return Cow::Borrowed(text);
    }
    let mut harmless = String::with_capacity(text.len() + 16);
    for c in text.chars() {
        if is_control(c) {
            // Writing to a String cannot fail.
            let _ = write!(harmless, "\\u{:04x}", u32::from(c));
        } else {
            harmless.push(c);
        }
    }
    Cow::Owned(harmless)
}
