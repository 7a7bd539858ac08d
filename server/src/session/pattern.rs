//! Patterns as of a shell, which `LIST` and `NLST` understand in the last name of a path.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;

use globset::{GlobBuilder, GlobMatcher};

/// The longest pattern that is understood; a longer one is a name.
const LONGEST_PATTERN: usize = 1024;

/// A pattern as of a shell in the last name of a path.
pub(super) struct Pattern {
    /// What stands before the last name, with its slash.
    pub(super) prefix: Vec<u8>,
    matcher: GlobMatcher,
    /// Names that begin with a dot fit only if the pattern says the dot.
    hidden: bool,
}

impl Pattern {
    /// `None` if there is nothing special in the last name, or it cannot be a pattern.
    pub(super) fn new(given: &[u8]) -> Option<Self> {
        let start = given
            .iter()
            .rposition(|&byte| byte == b'/')
            .map_or(0, |slash| slash + 1);
        let (prefix, name) = given.split_at(start);
        let text = std::str::from_utf8(name).ok()?;
        if text.len() > LONGEST_PATTERN || !text.contains(['*', '?', '[', '{']) {
            return None;
        }
        let glob = GlobBuilder::new(text)
            .literal_separator(true)
            .backslash_escape(true)
            .build()
            .ok()?;
        Some(Self {
            prefix: prefix.to_owned(),
            matcher: glob.compile_matcher(),
            hidden: text.starts_with('.'),
        })
    }

    pub(super) fn fits(&self, name: &OsStr) -> bool {
        (self.hidden || !name.as_bytes().starts_with(b".")) && self.matcher.is_match(name)
    }
}
