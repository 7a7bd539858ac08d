//! What a storage call answers when it fails.

use std::io;

use rustix::io::Errno;

/// A failed call: the system call's name and its error number, from which replies are made.
///
/// Clients of this field decide by the operating system's own words ("No such file or directory"), so
/// the message keeps them.
#[derive(Debug, thiserror::Error)]
#[error("System error in {call}: {}", self.reason())]
pub struct StorageError {
    /// The call, named as the field's servers name it: `open`, `stat`, `mkdir`, `rename`, ...
    pub call: &'static str,
    /// The kernel's answer.
    pub errno: Errno,
}

/// What a reply code is chosen by.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StorageErrorKind {
    /// There is no such file or directory.
    NotFound,
    /// The account may not.
    PermissionDenied,
    /// A part of the path is no directory.
    NotADirectory,
    /// The path names a directory where a file is needed.
    IsADirectory,
    /// The path exists already.
    Exists,
    /// The file system is full.
    NoSpace,
    /// The account's quota is used up.
    QuotaExceeded,
    /// Anything else.
    Other,
}

impl StorageError {
    /// Names the call that failed.
    pub fn new(call: &'static str, errno: Errno) -> Self {
        Self { call, errno }
    }

    /// Names the call that failed; an error that has no number becomes `EIO`.
    pub fn from_io(call: &'static str, error: &io::Error) -> Self {
        Self {
            call,
            errno: Errno::from_io_error(error).unwrap_or(Errno::IO),
        }
    }

    /// The operating system's words, without the number that Rust adds.
    pub fn reason(&self) -> String {
        let text = io::Error::from(self.errno).to_string();
        match text.rfind(" (os error") {
            Some(end) => text[..end].to_owned(),
            None => text,
        }
    }

    /// The class of the error.
    pub fn kind(&self) -> StorageErrorKind {
        match self.errno {
            Errno::NOENT => StorageErrorKind::NotFound,
            Errno::ACCESS => StorageErrorKind::PermissionDenied,
            Errno::NOTDIR => StorageErrorKind::NotADirectory,
            Errno::ISDIR => StorageErrorKind::IsADirectory,
            Errno::EXIST => StorageErrorKind::Exists,
            Errno::NOSPC => StorageErrorKind::NoSpace,
            Errno::DQUOT => StorageErrorKind::QuotaExceeded,
            _ => StorageErrorKind::Other,
        }
    }
}
