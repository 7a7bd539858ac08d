//! Reading and writing of numbers.
//!
//! A listing may have a million lines, and the formatter of the standard library takes longer for a number than the kernel for
//! the lookup of a file.

use std::str::FromStr;

/// Reads a decimal number of the type's range: only digits, while `FromStr` alone would accept a sign.
pub(crate) fn decimal<T: FromStr>(digits: &[u8]) -> Option<T> {
    // `parse` refuses the empty text.
    if !digits.iter().all(u8::is_ascii_digit) {
        return None;
    }
    std::str::from_utf8(digits).ok()?.parse().ok()
}

/// Appends a number in decimal digits.
pub(crate) fn append_decimal(text: &mut Vec<u8>, number: u64) {
    append_digits(text, number, 10, 1);
}

/// Appends a number in at least `width` octal digits.
pub(crate) fn append_octal(text: &mut Vec<u8>, number: u64, width: usize) {
    append_digits(text, number, 8, width);
}

/// Appends a number in lower-case hexadecimal digits.
pub(crate) fn append_hexadecimal(text: &mut Vec<u8>, number: u64) {
    append_digits(text, number, 16, 1);
}

/// Appends a number in at least `width` decimal digits.
pub(crate) fn append_padded(text: &mut Vec<u8>, number: u64, width: usize) {
    append_digits(text, number, 10, width);
}

#[inline]
fn append_digits(text: &mut Vec<u8>, mut number: u64, base: u64, width: usize) {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    /// The digits of the largest number in octal.
    const MOST: usize = 22;

    let mut digits = [b'0'; MOST];
    let mut start = MOST;
    while number > 0 {
        start -= 1;
        let digit = (number % base).to_le_bytes()[0];
        digits[start] = DIGITS[usize::from(digit & 0xf)];
        number /= base;
    }
    text.extend_from_slice(&digits[start.min(MOST - width.min(MOST))..]);
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn appended(append: impl FnOnce(&mut Vec<u8>)) -> String {
        let mut text = Vec::new();
        append(&mut text);
        String::from_utf8(text).expect("digits")
    }

    proptest! {
        #[test]
        fn numbers_look_as_the_standard_library_writes_them(
            number in prop_oneof![any::<u64>(), 0..5000_u64, Just(u64::MAX)],
        ) {
            let decimal = appended(|text| append_decimal(text, number));
            prop_assert_eq!(decimal, number.to_string());
            let padded = appended(|text| append_padded(text, number, 4));
            prop_assert_eq!(padded, format!("{number:04}"));
            let octal = appended(|text| append_octal(text, number, 4));
            prop_assert_eq!(octal, format!("{number:04o}"));
            let hexadecimal = appended(|text| append_hexadecimal(text, number));
            prop_assert_eq!(hexadecimal, format!("{number:x}"));
        }
    }
}
