//! Metadata of files, in the form of messages.

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt as _;
use std::path::PathBuf;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use gridhaul_storage::{Access, Account, DirectoryEntry, FileKind, Metadata};
use serde::{Deserialize, Serialize};

/// A directory entry.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Entry {
    pub(crate) name: Vec<u8>,
    pub(crate) facts: Facts,
}

/// `Metadata` without names of accounts, which a broker cannot look up.
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

/// A time in the form of the kernel: nanoseconds are positive, also before 1970.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Time {
    seconds: i64,
    nanoseconds: u32,
}

impl Entry {
    pub(crate) fn new(entry: DirectoryEntry) -> Self {
        Self {
            name: entry.name.into_vec(),
            facts: Facts::new(entry.metadata),
        }
    }

    /// The maximum length in a message, in bytes.
    pub(crate) fn bytes(&self) -> usize {
        const NUMBERS: usize = 96;
        let target = self.facts.link_target.as_ref().map_or(0, Vec::len);
        NUMBERS + self.name.len() + target
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

    /// Adds names of accounts. `before` is the metadata of the previous file, most likely of the same owner, whose name is
    /// reused.
    pub(crate) fn into_metadata(self, before: Option<Metadata>) -> Metadata {
        let (owner, group) = before.map_or((None, None), |before| {
            (Some(before.owner), Some(before.group))
        });
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
            owner: owner
                .filter(|owner| owner.id == self.owner)
                .unwrap_or_else(|| Account::user(self.owner)),
            group: group
                .filter(|group| group.id == self.group)
                .unwrap_or_else(|| Account::group(self.group)),
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

    /// Times out of range become the epoch.
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

#[cfg(test)]
mod tests {
    use std::ffi::OsStr;
    use std::os::unix::ffi::OsStrExt as _;

    use super::*;
    use crate::messages::{ENTRIES_BYTES, LONGEST_PATH, REPLY_BYTES};

    #[test]
    fn metadata_is_transmitted_unchanged() {
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
            assert_eq!(received.into_metadata(None), metadata);
        }
    }

    #[test]
    fn times_before_1970_are_transmitted() {
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
    fn the_longest_entry_fits_after_the_others() {
        let longest = [b'x'; LONGEST_PATH];
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
