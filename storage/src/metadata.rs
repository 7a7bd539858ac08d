//! Metadata of files.

use std::path::PathBuf;
use std::time::SystemTime;

/// The metadata of a file or directory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Metadata {
    /// The type, of the target if a symbolic link was followed.
    pub kind: FileKind,
    /// Size in bytes.
    pub size: u64,
    /// Permission bits with set-user-ID, set-group-ID and sticky (`0o7777`).
    pub mode: u32,
    /// The owner.
    pub owner: Account,
    /// The group.
    pub group: Account,
    /// Number of hard links.
    pub links: u64,
    /// The modification time.
    pub modified: SystemTime,
    /// Device number; with `inode` it identifies the file.
    pub device: u64,
    /// Inode number.
    pub inode: u64,
    /// The target of a symbolic link at this path, as it is stored in the link.
    pub link_target: Option<PathBuf>,
    /// The access of the storage's account.
    pub access: Access,
}

/// Identifies a file independently of its name, while it is open.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct FileIdentity {
    /// The device number.
    pub device: u64,
    /// The inode number.
    pub inode: u64,
}

/// The access of an account to a file, apart from operations on its directory entry.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Access {
    /// It may be read (a directory: listed).
    pub read: bool,
    /// It may be written (a directory: entries may be made and removed).
    pub write: bool,
    /// A directory may be searched.
    pub search: bool,
}

/// A user or a group.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Account {
    /// The uid or gid.
    pub id: u32,
    /// The name in the account database, if it has one.
    pub name: Option<String>,
}

/// The type of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FileKind {
    /// A regular file.
    File,
    /// A directory.
    Directory,
    /// A symbolic link that was not followed, or is dangling.
    Symlink,
    /// A FIFO.
    Pipe,
    /// A character device.
    CharacterDevice,
    /// A block device.
    BlockDevice,
    /// A socket or an unknown type.
    Other,
}
