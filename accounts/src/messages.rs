//! Messages between the server, the monitor and the brokers.
//!
//! Every message fits into a buffer whose size is defined here, and is received completely or refused. No process trusts
//! another: the rules of the monitor are fixed when it starts, and answers of a broker affect only the files of its account.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

use gridhaul_storage::{PosixOptions, Rights, Rule, StorageError};
use rustix::io::Errno;
use serde::{Deserialize, Serialize};

use crate::facts::{Entry, Facts, Time};
use crate::listed::OpenError;
use crate::pool_accounts::LeaseError;
use crate::refusal::Refusal;

/// The longest path in bytes: that of the kernel (PATH_MAX), without the terminating zero.
pub(crate) const LONGEST_PATH: usize = 4095;

/// The longest message to the monitor or to a broker in bytes: two paths, and the rest.
pub(crate) const REQUEST_BYTES: usize = 2 * LONGEST_PATH + 512;

/// The longest answer in bytes: entries of a directory, the last of which may be long.
pub(crate) const REPLY_BYTES: usize = ENTRIES_BYTES + LONGEST_PATH + 1024;

/// The bytes of entries after which a broker sends a message.
pub(crate) const ENTRIES_BYTES: usize = 32 * 1024;

/// From the server to the monitor. The answer is a [`Started`] with a socket to a new process.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub(crate) enum Order<'a> {
    /// Start a broker, which sends a [`Hello`].
    Broker(#[serde(borrow)] Start<'a>),
    /// Open the file at this position of the monitor's list. The process sends an [`Opened`].
    Open(u64),
    /// Open or create the log at this position of the monitor's list of logs, for appending. Answered as the same.
    Append(u64),
    /// Lease an account of a pool. The process sends a [`Leased`].
    Lease { identity: &'a str, pool: &'a str },
}

/// The account and options of a broker.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub(crate) struct Start<'a> {
    pub(crate) account: &'a str,
    pub(crate) root: &'a [u8],
    pub(crate) read_only: bool,
    pub(crate) file_mode: u32,
    pub(crate) directory_mode: u32,
}

/// From the monitor to the server. The error is an `errno`.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Started(pub(crate) Result<(), i32>);

/// From the broker to the server: the only message on the socket from the monitor. The sockets for requests are sent with it.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Hello(pub(crate) Result<Ready, Refusal>);

/// From a process that opens a file: the only message on the socket from the monitor. The descriptor is sent with it.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Opened(pub(crate) Result<(), OpenError>);

/// From a process that leases an account of a pool: the only message on the socket from the monitor.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Leased(pub(crate) Result<String, LeaseError>);

/// A broker that is ready.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Ready {
    pub(crate) pid: u32,
    pub(crate) home: Vec<u8>,
}

/// From the server to a broker: a call of `Storage`. Each has one [`Reply`].
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub(crate) enum Request<'a> {
    OpenRead {
        path: &'a [u8],
        /// With a second descriptor past the page cache.
        direct: bool,
    },
    OpenWrite {
        path: &'a [u8],
        truncate: bool,
        /// Make a missing file.
        create: bool,
        direct: bool,
    },
    /// Check whether the root's path still leads to the open directory. Fails with `ESTALE` if not.
    CheckRoot,
    Stat(&'a [u8]),
    List(&'a [u8]),
    /// The next entries of a listing.
    Continue(u32),
    /// Abandon a listing.
    Forget(u32),
    MakeDirectory(&'a [u8]),
    RemoveFile(&'a [u8]),
    RemoveDirectory(&'a [u8]),
    RemoveTree(&'a [u8]),
    /// Cancel a [`Request::RemoveTree`] in progress. Has no answer of its own.
    Cancel,
    Rename {
        from: &'a [u8],
        to: &'a [u8],
    },
    SetMode {
        path: &'a [u8],
        mode: u32,
    },
    /// `None` for an unknown group.
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
    /// `None` removes it.
    SetChecksumAttribute {
        path: &'a [u8],
        value: Option<&'a [u8]>,
    },
    OpenUpload {
        path: &'a [u8],
        create: bool,
        private: bool,
        direct: bool,
    },
    CompleteUpload {
        from: &'a [u8],
        to: &'a [u8],
        device: u64,
        inode: u64,
        durable: bool,
    },
}

/// From a broker to the server.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum Reply {
    Done,
    /// The descriptor is sent with it, followed by the one past the page cache, if any.
    Opened,
    Facts(Facts),
    Attribute(Option<Vec<u8>>),
    Entries {
        entries: Vec<Entry>,
        /// The listing's number, if further entries follow.
        more: Option<u32>,
    },
    Failed(Failure),
}

/// A failed call.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Failure {
    /// The position of the call's name in [`StorageError::CALLS`].
    call: u8,
    errno: i32,
    /// The position of the rule in [`Rule::ALL`], if one refused the call.
    rule: Option<u8>,
}

/// The name of calls that are not in [`StorageError::CALLS`].
pub(crate) const BROKER: &str = "broker";

pub(crate) fn path(bytes: &[u8]) -> &Path {
    Path::new(OsStr::from_bytes(bytes))
}

impl Failure {
    pub(crate) fn new(error: &StorageError) -> Self {
        let place = |name| StorageError::CALLS.iter().position(|&call| call == name);
        let call = place(error.call).or_else(|| place(BROKER));
        let rule = error
            .rule
            .and_then(|rule| Rule::ALL.iter().position(|&it| it == rule));
        Self {
            call: call.map_or(u8::MAX, |place| u8::try_from(place).unwrap_or(u8::MAX)),
            errno: error.errno.raw_os_error(),
            rule: rule.and_then(|place| u8::try_from(place).ok()),
        }
    }

    pub(crate) fn into_error(self) -> StorageError {
        /// MAX_ERRNO of Linux.
        const MOST: i32 = 4095;
        let call = StorageError::CALLS.get(usize::from(self.call)).copied();
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
        for call in StorageError::CALLS {
            let error = StorageError::new(call, Errno::ACCESS);
            let received = Failure::new(&error).into_error();
            assert_eq!((received.call, received.errno), (call, Errno::ACCESS));
        }
        for rule in Rule::ALL {
            let error = StorageError::refused("chmod", rule);
            let received = Failure::new(&error).into_error();
            assert_eq!(received.to_string(), error.to_string());
        }
        let unknown = Failure::new(&StorageError::new("no call", Errno::IO)).into_error();
        assert_eq!((unknown.call, unknown.errno), (BROKER, Errno::IO));
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
