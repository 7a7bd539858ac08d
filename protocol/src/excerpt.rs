//! Excerpts of input for error texts.

use std::fmt;

/// A piece of input in an error text: truncated to 80 bytes, with control characters and bytes that are not UTF-8
/// escaped. Make it only from bytes that the peer sent: a text that already contains an excerpt would be escaped twice.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Excerpt(String);

impl Excerpt {
    const MAX_BYTES: usize = 80;

    pub(crate) fn new(bytes: &[u8]) -> Self {
        let (head, more) = match bytes.get(..Self::MAX_BYTES) {
            Some(head) if bytes.len() > Self::MAX_BYTES => (head, "..."),
            _ => (bytes, ""),
        };
        let mut shown = String::new();
        for chunk in head.utf8_chunks() {
            for character in chunk.valid().chars() {
                if character.is_control() {
                    shown.extend(character.escape_default());
                } else {
                    shown.push(character);
                }
            }
            shown.push_str(&chunk.invalid().escape_ascii().to_string());
        }
        Self(shown + more)
    }

    /// A placeholder for input that must not be shown.
    pub(crate) fn secret() -> Self {
        Self(String::from("***"))
    }
}

impl fmt::Display for Excerpt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}
