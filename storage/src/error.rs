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
    /// The kernel's answer, or the number that comes closest to the rule.
    pub errno: Errno,
    /// The rule that refused the call, if it was not the kernel.
    pub rule: Option<Rule>,
}

/// What a storage refuses by itself, although the kernel would do it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Rule {
    /// A name, or what a link says, has control characters.
    ControlCharacters,
    /// Set-user-ID, set-group-ID or sticky where a client may not set them.
    SpecialBits,
    /// A link of a shared account that is absolute or has `..`.
    LeadingLink,
    /// A file that the kernel makes up.
    KernelFile,
}

impl Rule {
    /// All rules; their places are what other processes call them by.
    pub const ALL: [Self; 4] = [
        Self::ControlCharacters,
        Self::SpecialBits,
        Self::LeadingLink,
        Self::KernelFile,
    ];

    /// The number from which reply codes are made.
    pub fn errno(self) -> Errno {
        match self {
            Self::ControlCharacters => Errno::ILSEQ,
            Self::SpecialBits | Self::LeadingLink => Errno::PERM,
            Self::KernelFile => Errno::ACCESS,
        }
    }

    /// What was wrong and what to do, behind the system's own words where clients know them.
    fn text(self) -> &'static str {
        match self {
            Self::ControlCharacters => {
                "Invalid name: it has control characters; choose a name without them"
            }
            Self::SpecialBits => {
                "Operation not permitted: set-user-ID, set-group-ID and sticky bits cannot be set here; \
                 send a mode of three octal digits"
            }
            Self::LeadingLink => {
                "Operation not permitted: a link must be relative and have no '..' in it"
            }
            Self::KernelFile => {
                "Permission denied: files of the kernel's own file systems (/proc, /sys) are not served"
            }
        }
    }
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
        Self {
            call,
            errno,
            rule: None,
        }
    }

    /// Names the call that a rule refused.
    pub fn refused(call: &'static str, rule: Rule) -> Self {
        Self {
            call,
            errno: rule.errno(),
            rule: Some(rule),
        }
    }

    /// Names the call that failed; an error that has no number becomes `EIO`.
    pub fn from_io(call: &'static str, error: &io::Error) -> Self {
        Self::new(call, Errno::from_io_error(error).unwrap_or(Errno::IO))
    }

    /// The words of the rule, or the operating system's without the number that Rust adds.
    pub fn reason(&self) -> String {
        if let Some(rule) = self.rule {
            return rule.text().to_owned();
        }
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
