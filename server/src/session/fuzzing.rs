//! Fuzz target: patterns of `NLST` and `LIST`, compared with a simpler implementation.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;

use crate::fuzz_input::Input;
use crate::session::listing::Pattern;

/// The most texts that braces are expanded to. Patterns with more are not compared.
const MOST_TEXTS: usize = 200;

/// A pattern and names for it: one from the input, and the pattern itself.
pub fn pattern(input: &[u8]) {
    let mut input = Input(input);
    let length = input.byte();
    let given = input.bytes(length.into());
    let name = input.bytes(255);
    let Some(pattern) = Pattern::new(given) else {
        return;
    };
    for name in [name, given] {
        let matches = pattern.matches(OsStr::from_bytes(name));
        if let Some(expected) = matches_simply(&given[pattern.prefix.len()..], name) {
            assert_eq!(matches, expected, "{given:?} {name:?}");
        }
    }
}

/// Whether a pattern matches a name. `None` if it has more than wildcards and braces, or if braces expand to too many texts.
fn matches_simply(pattern: &[u8], name: &[u8]) -> Option<bool> {
    let pattern: Vec<char> = std::str::from_utf8(pattern).ok()?.chars().collect();
    let name: Vec<char> = std::str::from_utf8(name).ok()?.chars().collect();
    if pattern.iter().any(|one| matches!(one, '[' | '\\')) {
        return None;
    }
    let is_hidden = name.first() == Some(&'.') && pattern.first() != Some(&'.');
    let mut texts = Vec::new();
    expand(&pattern, &mut texts)?;
    Some(!is_hidden && texts.iter().any(|text| matches_wildcards(text, &name)))
}

/// Replaces the first braces by each of their alternatives, and so on.
fn expand(pattern: &[char], texts: &mut Vec<Vec<char>>) -> Option<()> {
    let Some(open) = pattern.iter().position(|&one| one == '{') else {
        if texts.len() >= MOST_TEXTS {
            return None;
        }
        texts.push(pattern.to_owned());
        return Some(());
    };
    let (before, rest) = (&pattern[..open], &pattern[open + 1..]);
    let (mut depth, mut start, mut alternatives) = (0, 0, Vec::new());
    for (place, &one) in rest.iter().enumerate() {
        match one {
            '{' => depth += 1,
            ',' if depth == 0 => {
                alternatives.push(&rest[start..place]);
                start = place + 1;
            }
            '}' if depth > 0 => depth -= 1,
            '}' => {
                alternatives.push(&rest[start..place]);
                let behind = &rest[place + 1..];
                for alternative in alternatives {
                    expand(&[before, alternative, behind].concat(), texts)?;
                }
                return Some(());
            }
            _ => {}
        }
    }
    panic!("a pattern whose braces are not closed");
}

/// Matches `*` and `?` with a table of the prefixes that match.
fn matches_wildcards(pattern: &[char], name: &[char]) -> bool {
    let mut matched = vec![false; name.len() + 1];
    matched[0] = true;
    for &one in pattern {
        if one == '*' {
            for end in 1..matched.len() {
                matched[end] |= matched[end - 1];
            }
            continue;
        }
        for end in (1..matched.len()).rev() {
            matched[end] = matched[end - 1] && (one == '?' || one == name[end - 1]);
        }
        matched[0] = false;
    }
    matched[name.len()]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fuzz_input::tests::over_arbitrary_bytes;

    /// Bytes that make patterns more often than arbitrary ones.
    fn likely(input: &[u8]) {
        const CHARACTERS: &[u8] = b"ab.{},*?{},*?[]-!\\/";
        let (length, text) = input.split_first().unwrap_or((&0, &[]));
        let text = text
            .iter()
            .map(|byte| CHARACTERS[usize::from(*byte) % CHARACTERS.len()]);
        let bytes: Vec<u8> = std::iter::once(length % 24).chain(text).collect();
        pattern(&bytes);
    }

    #[test]
    fn patterns_match_as_in_a_simple_implementation() {
        over_arbitrary_bytes(2000, 40, likely);
        over_arbitrary_bytes(500, 400, pattern);
    }
}
