//! Paths as clients write them, and as a session understands them.

use std::fmt;

/// A path as a client wrote it: raw bytes, not empty, at most [`Self::MAX_BYTES`], no NUL, no CRLF.
///
/// It need not be UTF-8; quotes and spaces are part of it.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct PathArgument(Vec<u8>);

impl PathArgument {
    /// The longest path, `PATH_MAX` of Linux with its final NUL.
    pub const MAX_BYTES: usize = 4095;

    /// Takes a path, or `None` if it breaks a rule above.
    pub fn new(path: impl Into<Vec<u8>>) -> Option<Self> {
        let path = path.into();
        let fits = (1..=Self::MAX_BYTES).contains(&path.len()) && crate::line::fits(&path);
        fits.then_some(Self(path))
    }

    /// The path.
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }
}

impl fmt::Debug for PathArgument {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "\"{}\"", self.0.escape_ascii())
    }
}

impl fmt::Display for PathArgument {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&String::from_utf8_lossy(&self.0))
    }
}
