//! Errors of storage calls.

use std::io;

use rustix::io::Errno;

/// A failed call: the system call's name and its error number, from which replies are made.
///
/// GridFTP clients match the operating system's error texts ("No such file or directory"), so the message contains them.
#[derive(Debug, thiserror::Error)]
#[error("System error in {call}: {}", self.reason())]
pub struct StorageError {
    /// The name of the call, as globus-gridftp-server writes it: `open`, `stat`, `mkdir`, `rename`, ...
    pub call: &'static str,
    /// The error number of the kernel, or that of the rule.
    pub errno: Errno,
    /// The rule, if the call was refused by one and not by the kernel.
    pub rule: Option<Rule>,
}

/// A rule by which a storage refuses a call that the kernel would permit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Rule {
    /// A name, or the target of a symbolic link, has control characters.
    ControlCharacters,
    /// A set-user-ID, set-group-ID or sticky bit that clients may not set.
    SpecialBits,
    /// A symbolic link in a shared account that is absolute or contains `..`.
    LeadingLink,
    /// A file of a pseudo file system (/proc, /sys).
    KernelFile,
    /// A name of an unfinished upload.
    UploadName,
    /// Another upload of the file is running.
    UploadRuns,
    /// A change, by a user who may only read.
    ReadOnly,
}

impl Rule {
    /// All rules. Their positions identify them in messages to other processes.
    pub const ALL: [Self; 7] = [
        Self::ControlCharacters,
        Self::SpecialBits,
        Self::LeadingLink,
        Self::KernelFile,
        Self::UploadName,
        Self::UploadRuns,
        Self::ReadOnly,
    ];

    /// The error number that selects the reply code.
    pub fn errno(self) -> Errno {
        match self {
            Self::ControlCharacters | Self::UploadName => Errno::ILSEQ,
            Self::SpecialBits | Self::LeadingLink => Errno::PERM,
            Self::KernelFile | Self::ReadOnly => Errno::ACCESS,
            Self::UploadRuns => Errno::TXTBSY,
        }
    }

    /// The cause and the remedy, after the system's error text where clients match it.
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
            Self::UploadName => {
                "Invalid name: it is reserved for unfinished uploads; choose a name that does not end in \
                 .gridhaul-part or .gridhaul-blocks"
            }
            Self::ReadOnly => "Permission denied: this server gives this user read access only",
            Self::UploadRuns => {
                "Text file busy: another upload of this file is running; wait for its end, or stop it"
            }
        }
    }
}

/// The call in the error of a kernel that is too old. No client can cause it.
pub(crate) const OPENAT2: &str =
    "openat2 (it needs Linux 5.6 or newer, and a sandbox that allows it)";

/// The class of an error, which selects the reply code.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StorageErrorKind {
    /// There is no such file or directory.
    NotFound,
    /// The account has no permission.
    PermissionDenied,
    /// A component of the path is not a directory.
    NotADirectory,
    /// The path names a directory where a file is required.
    IsADirectory,
    /// The path exists already.
    Exists,
    /// The file system is full.
    NoSpace,
    /// The account's quota is used up.
    QuotaExceeded,
    /// Another error.
    Other,
}

impl StorageError {
    /// The names of all calls in errors. Their positions identify them in messages to other processes of the same version; other
    /// machines get the names.
    pub const CALLS: [&'static str; 31] = [
        "open",
        "stat",
        "scandir",
        "mkdir",
        "unlink",
        "rmdir",
        "link",
        "rename",
        "chmod",
        "chgrp",
        "utime",
        "symlink",
        "truncate",
        "ftruncate",
        "read",
        "getxattr",
        "setxattr",
        "statfs",
        "fsync",
        "broker",
        "write",
        "close",
        "dup",
        "fallocate",
        "fdatasync",
        "sync_file_range",
        "statvfs",
        "getrandom",
        "thread",
        "chdir",
        OPENAT2,
    ];

    /// The name of a call, as in [`StorageError::call`]. `None` if no error of this program has it.
    pub fn call_named(name: &str) -> Option<&'static str> {
        Self::CALLS.iter().find(|&&call| call == name).copied()
    }

    /// An error of the kernel in this call.
    pub fn new(call: &'static str, errno: Errno) -> Self {
        Self {
            call,
            errno,
            rule: None,
        }
    }

    /// A call that a rule refused.
    pub fn refused(call: &'static str, rule: Rule) -> Self {
        Self {
            call,
            errno: rule.errno(),
            rule: Some(rule),
        }
    }

    /// An error of the kernel in this call; `EIO` for an error without a number.
    pub fn from_io(call: &'static str, error: &io::Error) -> Self {
        Self::new(call, Errno::from_io_error(error).unwrap_or(Errno::IO))
    }

    /// The text of the rule, or that of the operating system without the number that Rust appends.
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

    /// Whether the file system, or the quota of the account, has no room left.
    pub fn is_about_room(&self) -> bool {
        matches!(
            self.kind(),
            StorageErrorKind::NoSpace | StorageErrorKind::QuotaExceeded
        )
    }
}
