//! Paths of commands, and paths of a session.
//!
//! This module does no access control: the kernel resolves every path beneath the session's root, including `..`, because only
//! the kernel can follow symbolic links. The exception is the current directory: it is a text that the client sees (`PWD`), and
//! `CWD ..` undoes `CWD link` as in a shell ([`RemotePath::without_parents`]).

use std::ffi::OsStr;
use std::fmt;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// A path as in a command: bytes, not empty, at most [`Self::MAX_BYTES`], without NUL and CRLF.
///
/// It need not be UTF-8. Quotes and spaces belong to it.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct PathArgument(Vec<u8>);

impl PathArgument {
    /// The longest path in bytes: `PATH_MAX` of Linux without its final NUL.
    pub const MAX_BYTES: usize = 4095;

    /// A path, or `None` if it is not valid.
    pub fn new(path: impl Into<Vec<u8>>) -> Option<Self> {
        let path = path.into();
        let fits = (1..=Self::MAX_BYTES).contains(&path.len()) && crate::line::fits(&path);
        fits.then_some(Self(path))
    }

    /// The path.
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    /// The path as it is, for the target of a symbolic link.
    pub fn as_path(&self) -> &Path {
        Path::new(OsStr::from_bytes(&self.0))
    }

    /// Whether it ends in a slash, and so must be a directory.
    pub fn has_trailing_slash(&self) -> bool {
        self.0.ends_with(b"/")
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

/// An absolute path relative to the session's root: without double slashes, `.` and a trailing slash (except `/`), and at most
/// [`PathArgument::MAX_BYTES`] long. It may contain `..`.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct RemotePath(Vec<u8>);

/// A path together with its directory is longer than [`PathArgument::MAX_BYTES`]. The text is that of `ENAMETOOLONG`, which
/// clients look for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("File name too long")]
pub struct PathTooLong;

impl RemotePath {
    /// The root of the session.
    pub fn root() -> Self {
        Self(vec![b'/'])
    }

    /// The path of `argument` if this is the current directory.
    ///
    /// `~` and `~/...` start at `home`; `~name` is an ordinary name.
    ///
    /// # Errors
    ///
    /// When the result is too long.
    pub fn join(&self, argument: &PathArgument, home: &Self) -> Result<Self, PathTooLong> {
        let argument = argument.as_bytes();
        let (mut joined, relative) = match argument {
            [b'/', ..] => (Self::root(), &argument[1..]),
            b"~" => (home.clone(), &argument[1..]),
            [b'~', b'/', ..] => (home.clone(), &argument[2..]),
            _ => (self.clone(), argument),
        };
        for name in relative.split(|&byte| byte == b'/') {
            if !name.is_empty() && name != b"." {
                joined.push(name);
            }
        }
        if joined.0.len() > PathArgument::MAX_BYTES {
            return Err(PathTooLong);
        }
        Ok(joined)
    }

    /// The path with each `..` removed together with the name before it, if there is one.
    ///
    /// After a symbolic link this differs from the kernel's resolution. It is only for the current directory (`CWD`, `CDUP`); the
    /// result is then checked.
    #[must_use]
    pub fn without_parents(&self) -> Self {
        let mut resolved = Self::root();
        for name in self.names() {
            if name == b".." {
                resolved.pop();
            } else {
                resolved.push(name);
            }
        }
        resolved
    }

    /// The path.
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    /// The path as a [`Path`], with its leading slash.
    pub fn as_path(&self) -> &Path {
        Path::new(OsStr::from_bytes(&self.0))
    }

    /// The path in quotation marks, as in a 257 reply. Quotation marks in the path are doubled (RFC 959, appendix II).
    pub fn quoted(&self) -> Vec<u8> {
        let mut quoted = vec![b'"'];
        for &byte in &self.0 {
            quoted.push(byte);
            if byte == b'"' {
                quoted.push(b'"');
            }
        }
        quoted.push(b'"');
        quoted
    }

    /// Whether this is `/`.
    pub fn is_root(&self) -> bool {
        self.0 == b"/"
    }

    /// The last name; empty for `/`.
    pub fn file_name(&self) -> &[u8] {
        self.names().last().unwrap_or_default()
    }

    fn names(&self) -> impl Iterator<Item = &[u8]> {
        self.0
            .split(|&byte| byte == b'/')
            .filter(|name| !name.is_empty())
    }

    fn push(&mut self, name: &[u8]) {
        if !self.is_root() {
            self.0.push(b'/');
        }
        self.0.extend_from_slice(name);
    }

    fn pop(&mut self) {
        let end = self.0.iter().rposition(|&byte| byte == b'/');
        self.0.truncate(end.unwrap_or(0).max(1));
    }
}

/// Reads the path of a 257 reply. In replies of globus-gridftp-server 13.24 to `MKD` other words precede it. Not every server doubles
/// quotation marks; the path then ends at the first one.
pub fn parse_quoted(text: &[u8]) -> Option<PathArgument> {
    let start = text.iter().position(|&byte| byte == b'"')?;
    let mut path = Vec::new();
    let mut rest = text[start + 1..].iter().peekable();
    loop {
        match (rest.next()?, rest.peek()) {
            (b'"', Some(b'"')) => path.extend(rest.next()),
            (b'"', _) => return PathArgument::new(path),
            (&byte, _) => path.push(byte),
        }
    }
}

impl fmt::Debug for RemotePath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "\"{}\"", self.0.escape_ascii())
    }
}

impl fmt::Display for RemotePath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&String::from_utf8_lossy(&self.0))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn path(text: impl Into<Vec<u8>>) -> RemotePath {
        let root = RemotePath::root();
        let argument = PathArgument::new(text).unwrap();
        root.join(&argument, &root).unwrap()
    }

    fn join(current: &str, argument: &str) -> String {
        let argument = PathArgument::new(argument).unwrap();
        let joined = path(current).join(&argument, &path("/home/me")).unwrap();
        joined.to_string()
    }

    #[test]
    fn relative_paths_start_at_the_current_directory() {
        assert_eq!(join("/a/b", "c"), "/a/b/c");
        assert_eq!(join("/a/b", "./c/./d//e/"), "/a/b/c/d/e");
        assert_eq!(join("/", "c"), "/c");
        assert_eq!(join("/a", "."), "/a");
    }

    #[test]
    fn absolute_paths_start_at_the_root_and_the_tilde_is_home() {
        assert_eq!(join("/a/b", "//c"), "/c");
        assert_eq!(join("/a/b", "/"), "/");
        assert_eq!(join("/a/b", "~"), "/home/me");
        assert_eq!(join("/a/b", "~/"), "/home/me");
        assert_eq!(join("/a/b", "~/x"), "/home/me/x");
        assert_eq!(join("/a/b", "~x"), "/a/b/~x");
        assert_eq!(join("/a/b", "x~"), "/a/b/x~");
    }

    #[test]
    fn quotes_and_spaces_belong_to_names() {
        assert_eq!(join("/", "\"a b\" "), "/\"a b\" ");
    }

    #[test]
    fn parents_are_left_to_the_kernel() {
        assert_eq!(join("/a/link", "../x"), "/a/link/../x");
    }

    #[test]
    fn the_current_directory_is_logical() {
        let logical = |text: &str| path(text).without_parents().to_string();
        assert_eq!(logical("/a/link/../x"), "/a/x");
        assert_eq!(logical("/a/.."), "/");
        assert_eq!(logical("/../../x"), "/x");
    }

    #[test]
    fn long_paths_are_refused() {
        let name = PathArgument::new(vec![b'x'; 3000]).unwrap();
        let root = RemotePath::root();
        let directory = root.join(&name, &root).unwrap();
        assert_eq!(directory.join(&name, &root), Err(PathTooLong));
        assert!(PathArgument::new(vec![b'x'; PathArgument::MAX_BYTES + 1]).is_none());
    }

    #[test]
    fn invalid_bytes_are_refused() {
        assert!(PathArgument::new("").is_none());
        assert!(PathArgument::new("a\0b").is_none());
        assert!(PathArgument::new("a\r\nDELE b").is_none());
        assert!(PathArgument::new("a\nb\r").is_some());
    }

    #[test]
    fn quoted_paths_of_replies() {
        let parsed = |text: &str| parse_quoted(text.as_bytes()).map(|path| path.to_string());
        assert_eq!(parsed("\"/D\" is current directory."), Some("/D".into()));
        let created = "Directory \"/D/lst/nd\" created successfully.";
        assert_eq!(parsed(created), Some("/D/lst/nd".into()));
        assert_eq!(parsed("\"/a\"\"b\" is"), Some("/a\"b".into()));
        assert_eq!(parsed("no path"), None);
        assert_eq!(parsed("\"/open"), None);
    }

    proptest! {
        #[test]
        fn quoted_paths_survive(text in "[/a\"]{1,12}") {
            let path = path(text);
            let text = [path.quoted().as_slice(), b" is current directory."].concat();
            let parsed = parse_quoted(&text).unwrap();
            prop_assert_eq!(parsed.as_bytes(), path.as_bytes());
        }

        #[test]
        fn joined_paths_are_normal(
            current in "(/|[a~.]|\\.\\.){1,12}",
            argument in "(/|[a~.]|\\.\\.){1,12}",
        ) {
            let joined = join(&current, &argument);
            prop_assert!(joined.starts_with('/'));
            prop_assert!(!joined.contains("//"));
            prop_assert!(joined == "/" || !joined.ends_with('/'));
            prop_assert!(!joined.split('/').any(|name| name == "."));
            // A normal path stays unchanged.
            prop_assert_eq!(&join("/", &joined), &joined);
        }

        #[test]
        fn a_path_without_parents_has_none(text in "(/|[ab]|\\.\\.){1,12}") {
            let resolved = path(text).without_parents();
            prop_assert!(!resolved.names().any(|name| name == b".."));
            prop_assert_eq!(resolved.without_parents(), resolved);
        }
    }
}
