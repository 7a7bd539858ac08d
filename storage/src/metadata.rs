//! What is known of a file without opening it.

use std::path::PathBuf;
use std::time::SystemTime;

/// The facts of a file or directory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Metadata {
    /// File, directory, or something else; of the target, where a link was followed.
    pub kind: FileKind,
    /// Size in bytes.
    pub size: u64,
    /// Permission bits with set-uid, set-gid and sticky (`0o7777`).
    pub mode: u32,
    /// The owner.
    pub owner: Account,
    /// The group.
    pub group: Account,
    /// Number of hard links.
    pub links: u64,
    /// Time of the last change of content.
    pub modified: SystemTime,
    /// Device number; with `inode` it identifies the file.
    pub device: u64,
    /// Inode number.
    pub inode: u64,
    /// Where a symbolic link at this path points to, as the link says it.
    pub link_target: Option<PathBuf>,
    /// What the account of this storage may do, as the kernel judges it.
    pub access: Access,
}

/// What the account may do with a file, apart from its place in the directory.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Access {
    /// It may be read (a directory: listed).
    pub read: bool,
    /// It may be written (a directory: entries made and removed).
    pub write: bool,
    /// A directory may be entered.
    pub search: bool,
}

/// A user or a group: its number, and its name where there is one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Account {
    /// The kernel's number.
    pub id: u32,
    /// The name in the account database.
    pub name: Option<String>,
}

/// What kind of thing a path names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FileKind {
    /// A regular file.
    File,
    /// A directory.
    Directory,
    /// A symbolic link that was not followed, or points nowhere.
    Symlink,
    /// A FIFO.
    Pipe,
    /// A character device.
    CharacterDevice,
    /// A block device.
    BlockDevice,
    /// A socket, or something newer.
    Other,
}
