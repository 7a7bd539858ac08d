//! What the server, the monitor and the brokers say to each other.
//!
//! Every message fits into a buffer whose size is here, and is read whole or refused. None of the
//! three trusts another: the monitor has its rules from the time before there was a network, and what a
//! broker says concerns the files of its own account only.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use gridhaul_storage::{
    Access, Account, DirectoryEntry, FileKind, Metadata, PosixOptions, StorageError,
};
use rustix::io::Errno;
use serde::{Deserialize, Serialize};

use crate::policy::Refusal;

/// Bytes of the longest path: that of the kernel, without the zero at its end.
pub(crate) const LONGEST_PATH: usize = 4095;

/// Bytes of the longest message to the monitor or to a broker: two paths and a little.
pub(crate) const REQUEST_BYTES: usize = 2 * LONGEST_PATH + 512;

/// Bytes of the longest answer: entries of a directory, of which the last may be a long one.
pub(crate) const REPLY_BYTES: usize = ENTRIES_BYTES + LONGEST_PATH + 1024;

/// About how many bytes of entries a broker collects before it answers.
pub(crate) const ENTRIES_BYTES: usize = 32 * 1024;

/// From the server to the monitor: start a broker. The answer is a [`Started`], with a socket.
#[derive(Debug, Serialize, Deserialize)]
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

/// What the server is told of an account that may be used.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Ready {
    pub(crate) pid: u32,
    pub(crate) home: Vec<u8>,
}

/// From the server to a broker: one call of `Storage`. Each has one [`Reply`].
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub(crate) enum Request<'a> {
    OpenRead(&'a [u8]),
    OpenWrite {
        path: &'a [u8],
        truncate: bool,
    },
    Stat(&'a [u8]),
    List(&'a [u8]),
    /// The next entries of a listing.
    Continue(u32),
    /// Nobody wants the rest of a listing.
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
    /// Without a number the group is one that nobody knows.
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
}

/// From a broker to the server.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum Reply {
    Done,
    /// The descriptor comes with it.
    Opened,
    Facts(Facts),
    Entries {
        entries: Vec<Entry>,
        /// The listing's number, unless this is all.
        more: Option<u32>,
    },
    Failed(Failure),
}

#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Entry {
    pub(crate) name: Vec<u8>,
    pub(crate) facts: Facts,
}

/// `Metadata` without names of accounts, which a broker cannot find out.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Facts {
    kind: Kind,
    size: u64,
    mode: u32,
    owner: u32,
    group: u32,
    links: u64,
    modified: Time,
    device: u64,
    inode: u64,
    link_target: Option<Vec<u8>>,
    read: bool,
    write: bool,
    search: bool,
}

#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
enum Kind {
    File,
    Directory,
    Symlink,
    Pipe,
    CharacterDevice,
    BlockDevice,
    Other,
}

/// A time as the kernel has it: nanoseconds count forwards, also before 1970.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Time {
    seconds: i64,
    nanoseconds: u32,
}

/// A failed call.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Failure {
    /// The place of the call's name in [`CALLS`].
    call: u8,
    errno: i32,
}

/// The names that `Storage` gives to calls that fail.
const CALLS: [&str; 15] = [
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
    "broker",
];

/// The name of a call that is none of the others.
pub(crate) const BROKER: &str = CALLS[CALLS.len() - 1];

pub(crate) fn path(bytes: &[u8]) -> &Path {
    Path::new(OsStr::from_bytes(bytes))
}

impl Entry {
    pub(crate) fn new(entry: DirectoryEntry) -> Self {
        Self {
            name: entry.name.into_vec(),
            facts: Facts::new(entry.metadata),
        }
    }

    /// Bytes that it takes in a message, at most.
    pub(crate) fn bytes(&self) -> usize {
        const NUMBERS: usize = 96;
        let target = self.facts.link_target.as_ref().map_or(0, Vec::len);
        NUMBERS + self.name.len() + target
    }

    pub(crate) fn into_entry(self) -> DirectoryEntry {
        DirectoryEntry {
            name: OsString::from_vec(self.name),
            metadata: self.facts.into_metadata(),
        }
    }
}

impl Facts {
    pub(crate) fn new(metadata: Metadata) -> Self {
        Self {
            kind: match metadata.kind {
                FileKind::File => Kind::File,
                FileKind::Directory => Kind::Directory,
                FileKind::Symlink => Kind::Symlink,
                FileKind::Pipe => Kind::Pipe,
                FileKind::CharacterDevice => Kind::CharacterDevice,
                FileKind::BlockDevice => Kind::BlockDevice,
                FileKind::Other => Kind::Other,
            },
            size: metadata.size,
            mode: metadata.mode,
            owner: metadata.owner.id,
            group: metadata.group.id,
            links: metadata.links,
            modified: Time::new(metadata.modified),
            device: metadata.device,
            inode: metadata.inode,
            link_target: metadata
                .link_target
                .map(|target| target.into_os_string().into_vec()),
            read: metadata.access.read,
            write: metadata.access.write,
            search: metadata.access.search,
        }
    }

    /// Names of accounts are added here.
    pub(crate) fn into_metadata(self) -> Metadata {
        Metadata {
            kind: match self.kind {
                Kind::File => FileKind::File,
                Kind::Directory => FileKind::Directory,
                Kind::Symlink => FileKind::Symlink,
                Kind::Pipe => FileKind::Pipe,
                Kind::CharacterDevice => FileKind::CharacterDevice,
                Kind::BlockDevice => FileKind::BlockDevice,
                Kind::Other => FileKind::Other,
            },
            size: self.size,
            mode: self.mode,
            owner: Account::user(self.owner),
            group: Account::group(self.group),
            links: self.links,
            modified: self.modified.into_system(),
            device: self.device,
            inode: self.inode,
            link_target: self
                .link_target
                .map(|target| PathBuf::from(OsString::from_vec(target))),
            access: Access {
                read: self.read,
                write: self.write,
                search: self.search,
            },
        }
    }
}

impl Time {
    pub(crate) fn new(time: SystemTime) -> Self {
        let whole = |duration: Duration| i64::try_from(duration.as_secs()).unwrap_or(i64::MAX);
        let (seconds, nanoseconds) = match time.duration_since(UNIX_EPOCH) {
            Ok(after) => (whole(after), after.subsec_nanos()),
            Err(error) => {
                let before = error.duration();
                match before.subsec_nanos() {
                    0 => (-whole(before), 0),
                    nanoseconds => (-whole(before) - 1, 1_000_000_000 - nanoseconds),
                }
            }
        };
        Self {
            seconds,
            nanoseconds,
        }
    }

    /// What a clock cannot say is its beginning.
    pub(crate) fn into_system(self) -> SystemTime {
        let whole = Duration::from_secs(self.seconds.unsigned_abs());
        let start = if self.seconds < 0 {
            UNIX_EPOCH.checked_sub(whole)
        } else {
            UNIX_EPOCH.checked_add(whole)
        };
        start
            .and_then(|start| start.checked_add(Duration::from_nanos(self.nanoseconds.into())))
            .unwrap_or(UNIX_EPOCH)
    }
}

impl Failure {
    pub(crate) fn new(error: &StorageError) -> Self {
        let call = CALLS.iter().position(|&call| call == error.call);
        let call = call.unwrap_or(CALLS.len() - 1);
        Self {
            call: u8::try_from(call).unwrap_or(u8::MAX),
            errno: error.errno.raw_os_error(),
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
        StorageError::new(call.unwrap_or(BROKER), errno)
    }
}

impl Start<'_> {
    pub(crate) fn options(&self) -> PosixOptions {
        PosixOptions {
            read_only: self.read_only,
            file_mode: self.file_mode,
            directory_mode: self.directory_mode,
            account_names: false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn metadata_comes_through_unchanged() {
        let mut metadata = Metadata {
            kind: FileKind::Symlink,
            size: u64::MAX,
            mode: 0o7777,
            owner: Account::user(0),
            group: Account::group(4_000_000_000),
            links: 3,
            modified: UNIX_EPOCH + Duration::new(1, 2),
            device: 5,
            inode: u64::MAX,
            link_target: Some(PathBuf::from(OsStr::from_bytes(b"\xff/a"))),
            access: Access {
                read: true,
                write: false,
                search: true,
            },
        };
        for kind in [
            FileKind::File,
            FileKind::Directory,
            FileKind::Symlink,
            FileKind::Pipe,
            FileKind::CharacterDevice,
            FileKind::BlockDevice,
            FileKind::Other,
        ] {
            metadata.kind = kind;
            let sent = postcard::to_stdvec(&Facts::new(metadata.clone())).unwrap();
            let received: Facts = postcard::from_bytes(&sent).unwrap();
            assert_eq!(received.into_metadata(), metadata);
        }
    }

    #[test]
    fn times_before_1970_come_through() {
        for time in [
            UNIX_EPOCH,
            UNIX_EPOCH + Duration::new(5_000_000_000, 999_999_999),
            UNIX_EPOCH - Duration::from_secs(1),
            UNIX_EPOCH - Duration::new(1, 1),
        ] {
            assert_eq!(Time::new(time).into_system(), time);
        }
        let impossible = Time {
            seconds: i64::MIN,
            nanoseconds: u32::MAX,
        };
        let _ = impossible.into_system();
    }

    #[test]
    fn failures_keep_their_call_and_their_number() {
        for call in CALLS {
            let error = StorageError::new(call, Errno::ACCESS);
            let received = Failure::new(&error).into_error();
            assert_eq!((received.call, received.errno), (call, Errno::ACCESS));
        }
        let hostile = Failure {
            call: 200,
            errno: -1,
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
        let entry = Entry {
            name: vec![b'n'; 255],
            facts: Facts {
                kind: Kind::Other,
                size: u64::MAX,
                mode: u32::MAX,
                owner: u32::MAX,
                group: u32::MAX,
                links: u64::MAX,
                modified: Time {
                    seconds: i64::MIN,
                    nanoseconds: u32::MAX,
                },
                device: u64::MAX,
                inode: u64::MAX,
                link_target: Some(longest.to_vec()),
                read: true,
                write: true,
                search: true,
            },
        };
        let encoded = postcard::to_stdvec(&entry).unwrap();
        assert!(encoded.len() <= entry.bytes());
        assert!(ENTRIES_BYTES + encoded.len() + 16 <= REPLY_BYTES);
    }
}
