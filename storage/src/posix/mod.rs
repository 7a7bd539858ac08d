//! The files beneath a directory of the machine.
//!
//! Calls that make, remove or rename an entry operate on a descriptor of its directory; all others on a descriptor of the
//! file itself. No path is resolved twice for one change.
//!
//! ```text
//! PosixStorage ──> open, direct     regular files, read and written
//!      │     └───> upload           unfinished uploads
//!      │     └───> unnamed          files without a name until they are complete
//!      │     └───> list, remove     directories
//!      └─────────> facts, accounts  metadata
//! all of them ───> resolve ──> place, rules
//! ```

mod accounts;
mod attribute;
mod direct;
mod facts;
mod list;
mod open;
mod place;
mod remove;
mod reopen;
mod resolve;
mod rights;
mod rules;
mod unnamed;
mod upload;

use std::path::Path;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use rustix::fs::{Advice, AtFlags, CWD, FileType, Gid, Mode, OFlags, Timespec, Timestamps};
use rustix::io::Errno;

pub use self::accounts::group_number;
use self::facts::{AccessCheck, View};
use self::list::Listing;
use self::resolve::{Root, path_of};
use crate::{
    DirectoryStream, FileIdentity, Metadata, OpenedFile, Rule, Storage, StorageError, UnnamedFile,
    UploadOpening, WriteMode,
};

/// How a [`PosixStorage`] behaves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PosixOptions {
    /// Every call that would change something fails with `EACCES`.
    pub read_only: bool,
    /// Permission bits of new files, before the umask is applied. Set-user-ID, set-group-ID and sticky are refused.
    pub file_mode: u32,
    /// Permission bits of new directories, before the umask is applied. Set-user-ID is refused.
    pub directory_mode: u32,
    /// The kind of account that the calls act for.
    pub rights: Rights,
    /// Looks names of users and groups up in the account database. Without it metadata contains only numbers, and
    /// [`Storage::set_group`] accepts only numbers: for processes that have no access to the database.
    pub account_names: bool,
}

impl Default for PosixOptions {
    fn default() -> Self {
        Self {
            read_only: false,
            file_mode: 0o644,
            directory_mode: 0o755,
            rights: Rights::Shared,
            account_names: true,
        }
    }
}

/// The kind of account that the calls of a storage act for. It decides which links and permission bits clients may set.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Rights {
    /// A local account, used by its owner, who could do the same without the server.
    Account,
    /// An account that anonymous users or users with a password share, and under which none of them can log in to the
    /// machine.
    Shared,
}

/// From this size in bytes the kernel is advised that a file is read sequentially, so that it reads further ahead. Smaller
/// files fit into the first read-ahead.
const SEQUENTIAL_FROM: u64 = 1 << 20;

/// The files beneath one directory of the machine, accessed with the account of this process.
///
/// [`Metadata::access`] refers to the user and groups of the process at the time of [`open`](Self::open). It is computed
/// from permission bits in listings, and asked of the kernel for single paths.
#[derive(Debug)]
pub struct PosixStorage {
    view: Arc<View>,
    file_mode: Mode,
    directory_mode: Mode,
    rights: Rights,
    unnamed: unnamed::Refused,
}

impl PosixStorage {
    /// Opens `root`, the directory that paths start from. The descriptor is kept, so renaming the directory has no effect.
    ///
    /// # Errors
    ///
    /// When `root` is not a directory or may not be searched, or the kernel has no `openat2`.
    pub fn open(root: &Path, options: PosixOptions) -> Result<Self, StorageError> {
        let root = Root::open(root)?;
        let of_new = |mode, file_type| {
            permissions(mode).and_then(|mode| rules::mode_of_new(mode, file_type))
        };
        let file_mode = of_new(options.file_mode, FileType::RegularFile);
        let directory_mode = of_new(options.directory_mode, FileType::Directory);
        Ok(Self {
            view: Arc::new(View::new(root, options.read_only, options.account_names)),
            file_mode: file_mode.map_err(failed("open"))?,
            directory_mode: directory_mode.map_err(failed("mkdir"))?,
            rights: options.rights,
            unnamed: unnamed::Refused::default(),
        })
    }

    /// Whether the path of the root still leads to the directory that is open. After `mv root old; mkdir root`, or if a
    /// file system is mounted over it, it does not.
    ///
    /// # Errors
    ///
    /// When the path does not exist, or the process may not follow it.
    pub fn is_current(&self) -> Result<bool, StorageError> {
        self.view.root.is_current().map_err(failed("stat"))
    }

    /// The root, for a call that makes a change. All calls enforce read-only access here.
    fn writable(&self, call: &'static str) -> Result<&Root, StorageError> {
        if self.view.read_only {
            return Err(StorageError::refused(call, Rule::ReadOnly));
        }
        Ok(&self.view.root)
    }
}

impl Storage for PosixStorage {
    fn open_read(&self, path: &Path) -> Result<OpenedFile, StorageError> {
        let (file, size) = open::existing(&self.view.root, path, OFlags::RDONLY)?;
        if size >= SEQUENTIAL_FROM {
            // Only a hint, so errors are ignored.
            let _ = rustix::fs::fadvise(&file, 0, None, Advice::Sequential);
        }
        Ok(OpenedFile::new(file, size))
    }

    fn open_write(&self, path: &Path, mode: WriteMode) -> Result<OpenedFile, StorageError> {
        let root = self.writable("open")?;
        let mut flags = OFlags::WRONLY;
        flags.set(OFlags::TRUNC, mode == WriteMode::Truncate);
        let (file, size) = match mode {
            WriteMode::Truncate | WriteMode::Keep => {
                open::existing_or_new(root, path, flags, self.file_mode)?
            }
            WriteMode::Existing => open::existing(root, path, flags)?,
        };
        Ok(OpenedFile::new(file, size))
    }

    fn open_read_direct(&self, path: &Path) -> Result<OpenedFile, StorageError> {
        let file = self.open_read(path)?;
        if file.size_at_open() < direct::LEAST_BYTES {
            return Ok(file);
        }
        Ok(direct::opened_twice(file, OFlags::RDONLY))
    }

    fn open_write_direct(&self, path: &Path, mode: WriteMode) -> Result<OpenedFile, StorageError> {
        let file = self.open_write(path, mode)?;
        Ok(direct::opened_twice(file, OFlags::WRONLY))
    }

    fn open_upload(&self, path: &Path, opening: UploadOpening) -> Result<OpenedFile, StorageError> {
        let root = self.writable("open")?;
        let (file, size) = upload::open(root, path, self.file_mode, opening)?;
        let file = OpenedFile::new(file, size);
        if opening.direct {
            return Ok(direct::opened_twice(file, OFlags::WRONLY));
        }
        Ok(file)
    }

    fn open_unnamed(&self, path: &Path) -> Option<(OpenedFile, Box<dyn UnnamedFile>)> {
        let root = self.writable("open").ok()?;
        let (file, unnamed) = unnamed::open(root, path, self.file_mode, &self.unnamed)?;
        Some((OpenedFile::new(file, 0), Box::new(unnamed)))
    }

    fn complete_upload(
        &self,
        from: &Path,
        to: &Path,
        identity: FileIdentity,
        durable: bool,
    ) -> Result<(), StorageError> {
        upload::complete(self.writable("rename")?, from, to, identity, durable)
    }

    fn is_at(&self, path: &Path, identity: FileIdentity) -> Result<bool, StorageError> {
        upload::is_at(&self.view.root, path, identity).map_err(failed("stat"))
    }

    fn stat(&self, path: &Path) -> Result<Metadata, StorageError> {
        self.view
            .stat(path, AccessCheck::Kernel)
            .map_err(failed("stat"))
    }

    fn list(&self, path: &Path) -> Result<Box<dyn DirectoryStream>, StorageError> {
        let listing = Listing::open(&self.view, path).map_err(failed("scandir"))?;
        Ok(Box::new(listing))
    }

    fn make_directory(&self, path: &Path) -> Result<(), StorageError> {
        let place = self.writable("mkdir")?.new_place("mkdir", path)?;
        place
            .make_directory(self.directory_mode)
            .map_err(failed("mkdir"))
    }

    fn remove_file(&self, path: &Path) -> Result<(), StorageError> {
        let root = self.writable("unlink")?;
        root.parent(path)
            .and_then(|(parent, name)| rustix::fs::unlinkat(parent, name, AtFlags::empty()))
            .map_err(failed("unlink"))
    }

    fn remove_directory(&self, path: &Path) -> Result<(), StorageError> {
        let root = self.writable("rmdir")?;
        root.parent(path)
            .and_then(|(parent, name)| rustix::fs::unlinkat(parent, name, AtFlags::REMOVEDIR))
            .map_err(failed("rmdir"))
    }

    fn remove_tree(&self, path: &Path, cancelled: &dyn Fn() -> bool) -> Result<(), StorageError> {
        remove::remove_tree(self.writable("unlink")?, path, cancelled)
    }

    fn rename(&self, from: &Path, to: &Path) -> Result<(), StorageError> {
        let root = self.writable("rename")?;
        let (from_parent, from) = root.parent(from).map_err(failed("rename"))?;
        let place = root.new_place("rename", to)?;
        place
            .rename_from(from_parent, from)
            .map_err(failed("rename"))
    }

    fn set_mode(&self, path: &Path, mode: u32) -> Result<(), StorageError> {
        let root = self.writable("chmod")?;
        let mode = permissions(mode).map_err(failed("chmod"))?;
        let held = root.hold(path).map_err(failed("chmod"))?;
        let facts = rustix::fs::fstat(&held).map_err(failed("chmod"))?;
        let file_type = FileType::from_raw_mode(facts.st_mode);
        let present = Mode::from_raw_mode(facts.st_mode & 0o7777);
        let mode = rules::mode(file_type, present, mode, self.rights)
            .map_err(|rule| StorageError::refused("chmod", rule))?;
        match rustix::fs::chmodat(CWD, path_of(&held), mode, AtFlags::empty()) {
            // The file is open and exists, so `/proc` is missing.
            Err(Errno::NOENT) => Err(StorageError::new("chmod", Errno::OPNOTSUPP)),
            result => result.map_err(failed("chmod")),
        }
    }

    fn set_group(&self, path: &Path, group: &str) -> Result<(), StorageError> {
        let root = self.writable("chgrp")?;
        let held = root.hold(path).map_err(failed("chgrp"))?;
        // Observed from globus-gridftp-server 13.24: an unknown group is answered with EPERM.
        let number = if self.view.account_names {
            group_number(group)
        } else {
            accounts::plain_number(group)
        };
        let group = number.ok_or_else(|| StorageError::new("chgrp", Errno::PERM))?;
        let group = Some(Gid::from_raw(group));
        rustix::fs::chownat(held, "", None, group, AtFlags::EMPTY_PATH).map_err(failed("chgrp"))
    }

    fn set_modified(&self, path: &Path, modified: SystemTime) -> Result<(), StorageError> {
        let root = self.writable("utime")?;
        let times = modification(modified)?;
        let held = root.hold(path).map_err(failed("utime"))?;
        rustix::fs::utimensat(held, "", &times, AtFlags::EMPTY_PATH).map_err(failed("utime"))
    }

    fn symlink(&self, target: &Path, link: &Path) -> Result<(), StorageError> {
        let place = self.writable("symlink")?.new_place("symlink", link)?;
        rules::link_target(target, self.rights)
            .map_err(|rule| StorageError::refused("symlink", rule))?;
        place.make_link(target).map_err(failed("symlink"))
    }

    fn truncate(&self, path: &Path, length: u64) -> Result<(), StorageError> {
        let root = self.writable("truncate")?;
        let (file, _) =
            open::existing(root, path, OFlags::WRONLY).map_err(|error| StorageError {
                call: "truncate",
                ..error
            })?;
        rustix::fs::ftruncate(file, length).map_err(failed("truncate"))
    }

    fn checksum_attribute(&self, path: &Path) -> Result<Option<Vec<u8>>, StorageError> {
        let held = self.view.root.hold(path).map_err(failed("getxattr"))?;
        attribute::get(&held).map_err(failed("getxattr"))
    }

    fn set_checksum_attribute(
        &self,
        path: &Path,
        value: Option<&[u8]>,
    ) -> Result<(), StorageError> {
        let root = self.writable("setxattr")?;
        let held = root.hold(path).map_err(failed("setxattr"))?;
        attribute::set(&held, value).map_err(failed("setxattr"))
    }
}

/// Checks that only permission bits are set: others would be interpreted as a file type.
fn permissions(mode: u32) -> Result<Mode, Errno> {
    if mode & !0o7777 != 0 {
        return Err(Errno::INVAL);
    }
    Ok(Mode::from_raw_mode(mode))
}

/// A change of the modification time alone.
fn modification(modified: SystemTime) -> Result<Timestamps, StorageError> {
    Ok(Timestamps {
        last_access: Timespec {
            tv_sec: 0,
            tv_nsec: rustix::fs::UTIME_OMIT,
        },
        last_modification: timespec(modified).map_err(failed("utime"))?,
    })
}

/// Nanoseconds are positive, also before 1970.
fn timespec(time: SystemTime) -> Result<Timespec, Errno> {
    let (seconds, nanoseconds) = match time.duration_since(UNIX_EPOCH) {
        Ok(after) => (i64::try_from(after.as_secs()), after.subsec_nanos()),
        Err(error) => {
            let before = error.duration();
            match before.subsec_nanos() {
                0 => (i64::try_from(before.as_secs()).map(|seconds| -seconds), 0),
                nanoseconds => (
                    i64::try_from(before.as_secs()).map(|seconds| -seconds - 1),
                    1_000_000_000 - nanoseconds,
                ),
            }
        }
    };
    Ok(Timespec {
        tv_sec: seconds.map_err(|_| Errno::INVAL)?,
        tv_nsec: nanoseconds.into(),
    })
}

/// Adds the name of the call to an error number.
fn failed(call: &'static str) -> impl Fn(Errno) -> StorageError {
    move |errno| StorageError::new(call, errno)
}
