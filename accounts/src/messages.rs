//! What the server, the monitor and the brokers say to each other.
//!
//! Every message fits into a buffer whose size is here, and is read whole or refused. None of the
//! three trusts another: the monitor has its rules from the time before there was a network, and what a
//! broker says concerns the files of its own account only.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

use gridhaul_storage::{PosixOptions, Rights, Rule, StorageError};
use rustix::io::Errno;
use serde::{Deserialize, Serialize};

use crate::facts::{Entry, Facts, Time};
use crate::listed::OpenError;
use crate::refusal::Refusal;

/// Bytes of the longest path: that of the kernel, without the zero at its end.
pub(crate) const LONGEST_PATH: usize = 4095;

/// Bytes of the longest message to the monitor or to a broker: two paths and a little.
pub(crate) const REQUEST_BYTES: usize = 2 * LONGEST_PATH + 512;

/// Bytes of the longest answer: entries of a directory, of which the last may be a long one.
pub(crate) const REPLY_BYTES: usize = ENTRIES_BYTES + LONGEST_PATH + 1024;

/// About how many bytes of entries a broker collects before it answers.
pub(crate) const ENTRIES_BYTES: usize = 32 * 1024;

/// From the server to the monitor. The answer is a [`Started`], with a socket to a process of its own.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub(crate) enum Order<'a> {
    /// Start a broker. It says [`Hello`].
    Broker(#[serde(borrow)] Start<'a>),
    /// Open the file at this place of the monitor's list. What comes is [`Opened`].
    Open(u64),
}

/// What a broker is started for.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub(crate) struct Start<'a> {
    pub(crate) account: &'a str,
    pub(crate) root: &'a [u8],
    pub(crate) read_only: bool,
    pub(crate) file_mode: u32,
    pub(crate) directory_mode: u32,
}

/// From the monitor to the server. A failure has the kernel's number.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Started(pub(crate) Result<(), i32>);

/// The first and only message on the socket from the monitor: from the broker to the server, with the
/// sockets for requests.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Hello(pub(crate) Result<Ready, Refusal>);

/// The only message on the socket from the monitor when a file was to be opened. The descriptor comes
/// with it.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Opened(pub(crate) Result<(), OpenError>);

/// What the server is told of an account that may be used.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Ready {
    pub(crate) pid: u32,
    pub(crate) home: Vec<u8>,
}

/// From the server to a broker: one call of `Storage`. Each has one [`Reply`].
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub(crate) enum Request<'a> {
    OpenRead {
        path: &'a [u8],
        /// Past the page cache as well.
        direct: bool,
    },
    OpenWrite {
        path: &'a [u8],
        truncate: bool,
        direct: bool,
    },
    /// Whether the root's path still leads to the directory that was opened; if not, the failure is `ESTALE`.
    CheckRoot,
    Stat(&'a [u8]),
    List(&'a [u8]),
    /// The next entries of a listing.
    Continue(u32),
    /// The rest of a listing is not needed.
    Forget(u32),
    MakeDirectory(&'a [u8]),
    RemoveFile(&'a [u8]),
    RemoveDirectory(&'a [u8]),
    RemoveTree(&'a [u8]),
    /// Stop a [`Request::RemoveTree`] that is under way. It has no answer of its own.
    Cancel,
    Rename {
        from: &'a [u8],
        to: &'a [u8],
    },
    SetMode {
        path: &'a [u8],
        mode: u32,
    },
    /// Without a number the group is unknown.
    SetGroup {
        path: &'a [u8],
        group: Option<u32>,
    },
    SetModified {
        path: &'a [u8],
        time: Time,
    },
    Symlink {
        target: &'a [u8],
        link: &'a [u8],
    },
    Truncate {
        path: &'a [u8],
        length: u64,
    },
    ChecksumAttribute(&'a [u8]),
    /// Without a value it is removed.
    SetChecksumAttribute {
        path: &'a [u8],
        value: Option<&'a [u8]>,
    },
}

/// From a broker to the server.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum Reply {
    Done,
    /// The descriptor comes with it, and after it the one past the page cache, if there is one.
    Opened,
    Facts(Facts),
    Attribute(Option<Vec<u8>>),
    Entries {
        entries: Vec<Entry>,
        /// The listing's number, unless this is all.
        more: Option<u32>,
    },
    Failed(Failure),
}

/// A failed call.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Failure {
    /// The place of the call's name in [`CALLS`].
    call: u8,
    errno: i32,
    /// The place of the rule in [`Rule::ALL`], if one refused the call.
    rule: Option<u8>,
}

/// The names that `Storage` gives to calls that fail.
const CALLS: [&str; 18] = [
    "open",
    "stat",
    "scandir",
    "mkdir",
    "unlink",
    "rmdir",
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
    "broker",
];

/// The name of a call that is none of the others.
pub(crate) const BROKER: &str = CALLS[CALLS.len() - 1];

pub(crate) fn path(bytes: &[u8]) -> &Path {
    Path::new(OsStr::from_bytes(bytes))
}

impl Failure {
    pub(crate) fn new(error: &StorageError) -> Self {
        let call = CALLS.iter().position(|&call| call == error.call);
        let call = call.unwrap_or(CALLS.len() - 1);
        let rule = error
            .rule
            .and_then(|rule| Rule::ALL.iter().position(|&it| it == rule));
        Self {
            call: u8::try_from(call).unwrap_or(u8::MAX),
            errno: error.errno.raw_os_error(),
            rule: rule.and_then(|place| u8::try_from(place).ok()),
        }
    }

    pub(crate) fn into_error(self) -> StorageError {
        /// The largest that Linux has, MAX_ERRNO.
        const MOST: i32 = 4095;
        let call = CALLS.get(usize::from(self.call)).copied();
        let errno = match self.errno {
            number @ 1..=MOST => Errno::from_raw_os_error(number),
            _ => Errno::IO,
        };
        let call = call.unwrap_or(BROKER);
        match self
            .rule
            .and_then(|place| Rule::ALL.get(usize::from(place)))
        {
            Some(&rule) => StorageError::refused(call, rule),
            None => StorageError::new(call, errno),
        }
    }
}

impl Start<'_> {
    pub(crate) fn options(&self) -> PosixOptions {
        PosixOptions {
            read_only: self.read_only,
            file_mode: self.file_mode,
            directory_mode: self.directory_mode,
            rights: Rights::Account,
            account_names: false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failures_keep_their_call_and_their_number() {
        for call in CALLS {
            let error = StorageError::new(call, Errno::ACCESS);
            let received = Failure::new(&error).into_error();
            assert_eq!((received.call, received.errno), (call, Errno::ACCESS));
        }
        for rule in Rule::ALL {
            let error = StorageError::refused("chmod", rule);
            let received = Failure::new(&error).into_error();
            assert_eq!(received.to_string(), error.to_string());
        }
        let hostile = Failure {
            call: 200,
            errno: -1,
            rule: Some(200),
        };
        let error = hostile.into_error();
        assert_eq!((error.call, error.errno), (BROKER, Errno::IO));
    }

    #[test]
    fn the_longest_messages_fit_into_their_buffers() {
        let longest = [b'x'; LONGEST_PATH];
        let request = Request::Rename {
            from: &longest,
            to: &longest,
        };
        assert!(postcard::to_stdvec(&request).unwrap().len() <= REQUEST_BYTES);
    }
}
