//! Numbers as the protocol writes them.

use std::str::FromStr;

/// Reads a decimal number of the type's range: digits and nothing else, where `FromStr` alone would let
/// a sign pass.
pub(crate) fn decimal<T: FromStr>(digits: &[u8]) -> Option<T> {
    // The empty text is refused by `parse`.
    if !digits.iter().all(u8::is_ascii_digit) {
        return None;
    }
    std::str::from_utf8(digits).ok()?.parse().ok()
}
