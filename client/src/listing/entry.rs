//! An entry of a directory.

use gridhaul_protocol::facts::{FactsError, FileFacts, FileType};

use crate::session::Facts;

/// An entry of a directory of a server, or what a server says about a path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// The name: bytes, neither empty nor `.` nor `..`, without `/` and NUL. It may have control characters.
    pub name: Vec<u8>,
    /// What the server says about it.
    pub facts: Facts,
}

/// A line of a listing that cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum EntryError {
    /// It has no facts.
    #[error(transparent)]
    Facts(#[from] FactsError),
    /// Its name is no name of a file: it could lead out of the directory.
    #[error("'{}' is no name of a file", .0.escape_ascii())]
    Name(Vec<u8>),
}

impl Entry {
    /// Reads a line. `None` for the directory itself and its parent.
    pub(super) fn parse(line: &[u8]) -> Result<Option<Self>, EntryError> {
        let (facts, name) = FileFacts::parse_line(line)?;
        let is_around = matches!(
            facts.file_type,
            Some(FileType::CurrentDirectory | FileType::ParentDirectory)
        );
        if is_around || name == b"." || name == b".." {
            return Ok(None);
        }
        if name.is_empty() || name.contains(&b'/') || name.contains(&0) {
            return Err(EntryError::Name(name.to_vec()));
        }
        Ok(Some(Self {
            name: name.to_vec(),
            facts: Facts::of(&facts),
        }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_lead_elsewhere_are_refused() {
        for (line, name) in [
            (&b"Type=file;Size=3; a b"[..], Some(&b"a b"[..])),
            (b"Type=dir; \xff\n", Some(b"\xff\n")),
            (b"Type=cdir; whatever/it/is", None),
            (b"Type=pdir; ..", None),
            (b"Type=dir; ..", None),
            (b"Type=file; .", None),
        ] {
            let entry = Entry::parse(line).expect("valid");
            assert_eq!(entry.map(|entry| entry.name).as_deref(), name);
        }
        for line in [
            &b"Type=file; ../x"[..],
            b"Type=file; /etc/passwd",
            b"Type=file; a/b",
            b"Type=dir; a/",
            b"Type=file; a\0",
            b"Type=file;",
            b"Type=file; ",
            b"x",
        ] {
            Entry::parse(line).expect_err("no name");
        }
    }
}
