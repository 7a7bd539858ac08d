//! Metadata and entries of directories.

use std::ffi::OsString;
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::path::PathBuf;

use gridhaul_storage::{Access, Account, DirectoryEntry, FileKind, Metadata};

use super::values::{self, WireError};
use crate::generated as message;

/// The kinds of files. Their positions are sent.
const KINDS: [FileKind; 7] = [
    FileKind::File,
    FileKind::Directory,
    FileKind::Symlink,
    FileKind::Pipe,
    FileKind::CharacterDevice,
    FileKind::BlockDevice,
    FileKind::Other,
];

/// The longest name of a file, in bytes, in all file systems of Linux (`NAME_MAX` is 255 characters of up to four bytes for some).
const NAME_BYTES: usize = 1024;

pub(crate) fn metadata(metadata: &Metadata) -> message::Metadata {
    let kind = KINDS.iter().position(|kind| *kind == metadata.kind);
    message::Metadata {
        kind: kind
            .and_then(|kind| u32::try_from(kind).ok())
            .unwrap_or(u32::MAX),
        size: metadata.size,
        mode: metadata.mode,
        owner: Some(account(&metadata.owner)),
        group: Some(account(&metadata.group)),
        links: metadata.links,
        modified: Some(values::time(metadata.modified)),
        device: metadata.device,
        inode: metadata.inode,
        link_target: metadata.link_target.as_deref().map(values::path),
        may_read: metadata.access.read,
        may_write: metadata.access.write,
        may_search: metadata.access.search,
    }
}

pub(crate) fn to_metadata(sent: message::Metadata) -> Result<Metadata, WireError> {
    let kind = usize::try_from(sent.kind)
        .ok()
        .and_then(|kind| KINDS.get(kind));
    let modified = sent
        .modified
        .ok_or_else(|| WireError::missing("modified"))?;
    Ok(Metadata {
        kind: *kind.ok_or_else(|| WireError(format!("the kind of file {}", sent.kind)))?,
        size: sent.size,
        mode: sent.mode,
        owner: to_account(sent.owner),
        group: to_account(sent.group),
        links: sent.links,
        modified: values::to_time(modified)?,
        device: sent.device,
        inode: sent.inode,
        link_target: sent
            .link_target
            .map(|target| PathBuf::from(OsString::from_vec(target))),
        access: Access {
            read: sent.may_read,
            write: sent.may_write,
            search: sent.may_search,
        },
    })
}

pub(crate) fn entry(name: &std::ffi::OsStr, of: &Metadata) -> message::Entry {
    message::Entry {
        name: name.as_bytes().to_vec(),
        metadata: Some(metadata(of)),
    }
}

pub(crate) fn to_entry(sent: message::Entry) -> Result<DirectoryEntry, WireError> {
    let name = sent.name;
    // A name with a slash would lead elsewhere.
    let is_special = name == b"." || name == b"..";
    if is_special
        || name.is_empty()
        || name.len() > NAME_BYTES
        || name.contains(&b'/')
        || name.contains(&0)
    {
        return Err(WireError::new("an entry of a directory with a wrong name"));
    }
    let metadata = sent
        .metadata
        .ok_or_else(|| WireError::missing("metadata"))?;
    Ok(DirectoryEntry {
        name: OsString::from_vec(name),
        metadata: to_metadata(metadata)?,
    })
}

fn account(account: &Account) -> message::Account {
    message::Account {
        id: account.id,
        name: account.name.clone(),
    }
}

fn to_account(sent: Option<message::Account>) -> Account {
    let sent = sent.unwrap_or_default();
    Account {
        id: sent.id,
        name: sent.name,
    }
}
