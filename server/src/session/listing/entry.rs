//! The facts of one file, as the listing commands write them.

use std::borrow::Cow;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use gridhaul_protocol::facts::{FileFacts, FileType, Permissions, Unique};
use gridhaul_protocol::listing::{ListLine, ListTime};
use gridhaul_storage::{Account, FileKind, Metadata};
use jiff::Timestamp;
use jiff::tz::TimeZone;

/// The relation of an entry to the listed directory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// One of its entries, or a file that the client named.
    Entry,
    /// The directory itself.
    Current,
    /// The directory above it.
    Parent,
}

/// The facts of a file. `None` for a dangling link, which listings leave out, as globus-gridftp-server 13.24 does.
pub(crate) fn facts<'a>(
    metadata: &'a Metadata,
    kind: Kind,
    link_target: Option<&'a Path>,
) -> Option<FileFacts<'a>> {
    let file_type = match (file_type(metadata.kind), kind) {
        (FileType::Symlink, _) => return None,
        (FileType::Directory, Kind::Current) => FileType::CurrentDirectory,
        (FileType::Directory, Kind::Parent) => FileType::ParentDirectory,
        (file_type, _) => file_type,
    };
    let access = metadata.access;
    let permissions = match file_type {
        FileType::File => Permissions::of_file(access.read, access.write),
        kind if kind.is_directory() => {
            Permissions::of_directory(access.read, access.write, access.search)
        }
        _ => Permissions::default(),
    };
    let name = |account: &'a Account| {
        account
            .name
            .as_ref()
            .map(|name| Cow::Borrowed(name.as_bytes()))
    };
    Some(FileFacts {
        file_type: Some(file_type),
        modified: Timestamp::try_from(metadata.modified).ok(),
        size: Some(metadata.size),
        permissions: Some(permissions),
        mode: Some(metadata.mode),
        owner: name(&metadata.owner),
        uid: Some(metadata.owner.id),
        group: name(&metadata.group),
        gid: Some(metadata.group.id),
        unique: Some(Unique::Inode {
            device: metadata.device,
            inode: metadata.inode,
        }),
        link_target: link_target.map(|target| Cow::Borrowed(target.as_os_str().as_bytes())),
        entries: None,
    })
}

/// The target of a link in `directory`, as an absolute path.
pub(crate) fn link_target(directory: &Path, metadata: &Metadata) -> Option<PathBuf> {
    metadata
        .link_target
        .as_ref()
        .map(|target| directory.join(target))
}

/// The time and the time zone of the server, for the times of `LIST` and `STAT`.
#[derive(Debug, Clone)]
pub(crate) struct Clock {
    now: Timestamp,
    zone: TimeZone,
}

impl Clock {
    pub(crate) fn now() -> Self {
        Self {
            now: Timestamp::now(),
            zone: TimeZone::system(),
        }
    }
}

/// Appends the line of `LIST` and `STAT`.
pub(crate) fn append_long(line: &mut Vec<u8>, metadata: &Metadata, name: &[u8], clock: &Clock) {
    let modified = Timestamp::try_from(metadata.modified).unwrap_or(Timestamp::UNIX_EPOCH);
    ListLine {
        file_type: file_type(metadata.kind),
        mode: metadata.mode,
        links: metadata.links,
        owner: name_or_number(&metadata.owner),
        group: name_or_number(&metadata.group),
        size: metadata.size,
        modified: ListTime::new(modified, clock.now, &clock.zone),
        name: Cow::Borrowed(name),
        link_target: metadata
            .link_target
            .as_ref()
            .map(|target| Cow::Borrowed(target.as_os_str().as_bytes())),
    }
    .append(line);
}

fn name_or_number(account: &Account) -> Cow<'_, [u8]> {
    match &account.name {
        Some(name) => Cow::Borrowed(name.as_bytes()),
        None => Cow::Owned(account.id.to_string().into_bytes()),
    }
}

fn file_type(kind: FileKind) -> FileType {
    match kind {
        FileKind::File => FileType::File,
        FileKind::Directory => FileType::Directory,
        FileKind::Symlink => FileType::Symlink,
        FileKind::Pipe => FileType::Pipe,
        FileKind::CharacterDevice => FileType::CharacterDevice,
        FileKind::BlockDevice => FileType::BlockDevice,
        FileKind::Other => FileType::Other,
    }
}
