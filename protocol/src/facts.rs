//! Facts of files, for `MLST`, `MLSD`, `MLSC` and `MLSR` (RFC 3659 7).
//!
//! A line of facts is `Type=file;Size=3; name`: the facts, each terminated by `;`, one space, and the unchanged name. Names of
//! files, owners and groups are bytes in the encoding of the server's file system. The caller supplies the facts.

mod read;
mod selection;
#[cfg(test)]
mod tests;
mod write;

use std::borrow::Cow;

use jiff::Timestamp;

pub use read::FactsError;
pub use selection::{Fact, FactSelection};

/// The facts of a file. `None` values are not written.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct FileFacts<'a> {
    /// `Type`; of the target, if a link was followed.
    pub file_type: Option<FileType>,
    /// `Modify`: the time of the last change of the content, written in whole seconds.
    pub modified: Option<Timestamp>,
    /// `Size`, in bytes.
    pub size: Option<u64>,
    /// `Perm`: the rights of the session's user.
    pub permissions: Option<Permissions>,
    /// `UNIX.mode`: the permission bits, with set-uid, set-gid and sticky (`0o7777`).
    pub mode: Option<u32>,
    /// `UNIX.owner`: the name of the owner.
    pub owner: Option<Cow<'a, [u8]>>,
    /// `UNIX.uid`: the number of the owner.
    pub uid: Option<u32>,
    /// `UNIX.group`: the name of the group.
    pub group: Option<Cow<'a, [u8]>>,
    /// `UNIX.gid`: the number of the group.
    pub gid: Option<u32>,
    /// `Unique`: equal for two paths of the same file.
    pub unique: Option<Unique<'a>>,
    /// `UNIX.slink`: the target of the symbolic link that was followed, as an absolute path of the session.
    pub link_target: Option<Cow<'a, [u8]>>,
    /// `X.count`: the number of entries of a directory, `.` and `..` included.
    pub entries: Option<u64>,
}

/// The type of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum FileType {
    /// A regular file.
    File,
    /// A directory.
    Directory,
    /// The directory that is listed (`cdir`).
    CurrentDirectory,
    /// The directory above it (`pdir`).
    ParentDirectory,
    /// A FIFO.
    Pipe,
    /// A character device.
    CharacterDevice,
    /// A block device.
    BlockDevice,
    /// A symbolic link that was not followed.
    Symlink,
    /// Any other type.
    Other,
}

impl FileType {
    const ALL: [Self; 9] = [
        Self::File,
        Self::Directory,
        Self::CurrentDirectory,
        Self::ParentDirectory,
        Self::Pipe,
        Self::CharacterDevice,
        Self::BlockDevice,
        Self::Symlink,
        Self::Other,
    ];

    /// The value of `Type`, as in globus-gridftp-server 13.24.
    fn name(self) -> &'static str {
        match self {
            Self::File => "file",
            Self::Directory => "dir",
            Self::CurrentDirectory => "cdir",
            Self::ParentDirectory => "pdir",
            Self::Pipe => "OS.unix=pipe",
            Self::CharacterDevice => "OS.unix=chr",
            Self::BlockDevice => "OS.unix=blk",
            Self::Symlink => "OS.unix=slink",
            Self::Other => "OS.unix=other",
        }
    }

    /// Whether it is a directory, including `cdir` and `pdir`.
    pub fn is_directory(self) -> bool {
        matches!(
            self,
            Self::Directory | Self::CurrentDirectory | Self::ParentDirectory
        )
    }
}

/// The permitted operations on a file or in a directory (RFC 3659 7.5.5), by its own permission bits.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub struct Permissions(u16);

impl Permissions {
    /// `a`: `APPE` to the file.
    pub const APPEND: Self = Self(1 << 0);
    /// `w`: `STOR` over the file.
    pub const WRITE: Self = Self(1 << 1);
    /// `r`: `RETR` the file.
    pub const READ: Self = Self(1 << 2);
    /// `c`: create files in the directory.
    pub const CREATE: Self = Self(1 << 3);
    /// `f`: rename it; globus-gridftp-server sets it for directories whose entries may be renamed.
    pub const RENAME: Self = Self(1 << 4);
    /// `m`: make directories in the directory.
    pub const MAKE_DIRECTORY: Self = Self(1 << 5);
    /// `p`: remove entries of the directory.
    pub const PURGE: Self = Self(1 << 6);
    /// `e`: enter the directory.
    pub const ENTER: Self = Self(1 << 7);
    /// `l`: list the directory.
    pub const LIST: Self = Self(1 << 8);
    /// `d`: remove it.
    pub const DELETE: Self = Self(1 << 9);

    /// In the order in which globus-gridftp-server 13.24 writes them: `awr`, `cfmpel`.
    const LETTERS: [(u8, Self); 10] = [
        (b'a', Self::APPEND),
        (b'w', Self::WRITE),
        (b'r', Self::READ),
        (b'c', Self::CREATE),
        (b'f', Self::RENAME),
        (b'm', Self::MAKE_DIRECTORY),
        (b'p', Self::PURGE),
        (b'e', Self::ENTER),
        (b'l', Self::LIST),
        (b'd', Self::DELETE),
    ];

    /// The permissions of a regular file.
    pub fn of_file(read: bool, write: bool) -> Self {
        let mut permissions = Self::default();
        if write {
            permissions = permissions | Self::APPEND | Self::WRITE;
        }
        if read {
            permissions = permissions | Self::READ;
        }
        permissions
    }

    /// The permissions of a directory.
    pub fn of_directory(read: bool, write: bool, search: bool) -> Self {
        let mut permissions = Self::default();
        if write {
            permissions =
                permissions | Self::CREATE | Self::RENAME | Self::MAKE_DIRECTORY | Self::PURGE;
        }
        if search {
            permissions = permissions | Self::ENTER;
        }
        if read {
            permissions = permissions | Self::LIST;
        }
        permissions
    }

    /// Whether all of `other` are allowed.
    pub fn has(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }
}

impl std::ops::BitOr for Permissions {
    type Output = Self;

    fn bitor(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
}

/// The identity of a file, equal for all its names.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Unique<'a> {
    /// Device and inode, written as two hexadecimal numbers with a dash.
    Inode {
        /// The device.
        device: u64,
        /// The inode on the device.
        inode: u64,
    },
    /// Any text of another server.
    Token(Cow<'a, [u8]>),
}
