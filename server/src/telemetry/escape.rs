//! Text that cannot add a line to a log or control a terminal.

use std::borrow::Cow;
use std::fmt::Write as _;

use crate::harmful::is_harmful;

/// The text with harmful characters escaped as `\u000a`. Quoted fields have none; fields without quotes, such as errors,
/// may contain names from clients. In JSON the escape means the same character.
pub(super) fn harmless(text: &str) -> Cow<'_, str> {
    if !text.contains(is_harmful) {
        return Cow::Borrowed(text);
    }
    let mut harmless = String::with_capacity(text.len() + 16);
    for c in text.chars() {
        if is_harmful(c) {
            // Writing to a String cannot fail.
            let _ = write!(harmless, "\\u{:04x}", u32::from(c));
        } else {
            harmless.push(c);
        }
    }
    Cow::Owned(harmless)
}
