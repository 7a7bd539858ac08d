//! What a server says about files (RFC 3659 7.5).

use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::time::SystemTime;

use gridhaul_protocol::facts::{FileFacts, FileType};

/// What a server says about a file. `None`: it does not say that.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Facts {
    /// The type; of the target, if a link was followed.
    pub kind: Option<Kind>,
    /// It is a symbolic link, also if the server has followed it.
    pub is_link: bool,
    /// The size in bytes.
    pub size: Option<u64>,
    /// The last change of the content, in whole seconds.
    pub modified: Option<SystemTime>,
    /// The permission bits.
    pub mode: Option<u32>,
    /// A number that files of one owner have in common.
    pub owner: Option<u64>,
}

/// The type of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// A regular file.
    File,
    /// A directory.
    Directory,
    /// A symbolic link that the server has not followed.
    Link,
    /// A device, a pipe or a socket.
    Other,
}

impl Facts {
    /// Whether it is a directory itself: what is done to its content is done to nothing else.
    pub fn is_real_directory(&self) -> bool {
        self.kind == Some(Kind::Directory) && !self.is_link
    }

    /// Whether it is a regular file, or the server does not say what it is.
    pub(crate) fn may_be_file(&self) -> bool {
        matches!(self.kind, Some(Kind::File) | None)
    }

    /// Those that the client uses.
    pub(crate) fn of(facts: &FileFacts<'_>) -> Self {
        let kind = facts.file_type.map(|kind| match kind {
            FileType::File => Kind::File,
            FileType::Directory | FileType::CurrentDirectory | FileType::ParentDirectory => {
                Kind::Directory
            }
            FileType::Symlink => Kind::Link,
            _ => Kind::Other,
        });
        Self {
            kind,
            is_link: kind == Some(Kind::Link) || facts.link_target.is_some(),
            size: facts.size,
            modified: facts.modified.map(SystemTime::from),
            mode: facts.mode,
            owner: owner(facts),
        }
    }
}

/// Servers tell a number, or a name only.
fn owner(facts: &FileFacts<'_>) -> Option<u64> {
    if let Some(uid) = facts.uid {
        return Some(uid.into());
    }
    let mut hasher = DefaultHasher::new();
    facts.owner.as_ref()?.hash(&mut hasher);
    Some(hasher.finish())
}
