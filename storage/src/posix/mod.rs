//! Files of the machine beneath a directory.
//!
//! Calls that make, remove or rename a name work on the held directory of that name; all others on a
//! held descriptor of what the path names. No path is resolved twice for one change.

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
mod rules;

use std::path::Path;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use rustix::fs::{Advice, AtFlags, CWD, FileType, Gid, Mode, OFlags, Timespec, Timestamps};
use rustix::io::Errno;

pub use self::accounts::group_number;
use self::facts::{Judge, View};
use self::list::Listing;
use self::resolve::{Root, path_of};
use crate::{DirectoryStream, Metadata, OpenedFile, Storage, StorageError, WriteMode};

/// How a [`PosixStorage`] behaves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PosixOptions {
    /// Every call that would change something fails with `EACCES`.
    pub read_only: bool,
    /// Permission bits of new files, less the umask of the process. Set-user-ID, set-group-ID and sticky are
    /// refused.
    pub file_mode: u32,
    /// Permission bits of new directories, less the umask of the process. Set-user-ID is refused.
    pub directory_mode: u32,
    /// Whose rights are used.
    pub rights: Rights,
    /// Whether the account database is asked for the names of users and groups. Without it metadata has
    /// numbers alone, and [`Storage::set_group`] takes nothing else: for a process that cannot reach the
    /// database.
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

/// Whose rights the calls of a storage use, by which it is decided what may be made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Rights {
    /// Those of a local account, for its own user, who could do the same without the server.
    Account,
    /// Those of an account that anonymous users or users with a password share, and that none of them
    /// has on the machine.
    Shared,
}

/// From this size in bytes the kernel is told that a file is read from one end to the other, for which
/// it reads further ahead. Smaller files fit in the first read-ahead.
const SEQUENTIAL_FROM: u64 = 1 << 20;

/// The files beneath one directory of the machine, as the account of this process may use them.
///
/// The user and the groups that the process has when it is opened are those that
/// [`Metadata::access`] speaks of. In listings the permission bits are its judge, for single paths the
/// kernel is.
#[derive(Debug)]
pub struct PosixStorage {
    view: Arc<View>,
    file_mode: Mode,
    directory_mode: Mode,
    rights: Rights,
}

impl PosixStorage {
    /// Takes `root` as the directory that paths start from. It is held: renaming it changes nothing.
    ///
    /// # Errors
    ///
    /// When `root` is no directory or may not be entered, or the kernel has no `openat2`.
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
        })
    }

    /// Whether the path that was opened still leads to the root that is held. After `mv root old; mkdir root`, or
    /// behind a mount, it does not.
    ///
    /// # Errors
    ///
    /// When the path leads nowhere, or may not be followed.
    pub fn is_current(&self) -> Result<bool, StorageError> {
        self.view.root.is_current().map_err(failed("stat"))
    }

    /// The root, for a call that changes something: the one place where read-only is enforced.
    fn writable(&self, call: &'static str) -> Result<&Root, StorageError> {
        if self.view.read_only {
            return Err(StorageError::new(call, Errno::ACCESS));
        }
        Ok(&self.view.root)
    }
}

impl Storage for PosixStorage {
    fn open_read(&self, path: &Path) -> Result<OpenedFile, StorageError> {
        let (file, size) = open::existing(&self.view.root, path, OFlags::RDONLY)?;
        if size >= SEQUENTIAL_FROM {
            // Only a hint: without it reading is as correct.
            let _ = rustix::fs::fadvise(&file, 0, None, Advice::Sequential);
        }
        Ok(OpenedFile::new(file, size))
    }

    fn open_write(&self, path: &Path, mode: WriteMode) -> Result<OpenedFile, StorageError> {
        let root = self.writable("open")?;
        let mut flags = OFlags::WRONLY;
        flags.set(OFlags::TRUNC, mode == WriteMode::Truncate);
        let (file, size) = open::existing_or_new(root, path, flags, self.file_mode)?;
        Ok(OpenedFile::new(file, size))
    }

    fn open_read_direct(&self, path: &Path) -> Result<OpenedFile, StorageError> {
        let file = self.open_read(path)?;
        Ok(direct::opened_twice(file, OFlags::RDONLY))
    }

    fn open_write_direct(&self, path: &Path, mode: WriteMode) -> Result<OpenedFile, StorageError> {
        let file = self.open_write(path, mode)?;
        Ok(direct::opened_twice(file, OFlags::WRONLY))
    }

    fn stat(&self, path: &Path) -> Result<Metadata, StorageError> {
        self.view.stat(path, Judge::Kernel).map_err(failed("stat"))
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
            // What is held is there, so it is `/proc` that is not.
            Err(Errno::NOENT) => Err(StorageError::new("chmod", Errno::OPNOTSUPP)),
            result => result.map_err(failed("chmod")),
        }
    }

    fn set_group(&self, path: &Path, group: &str) -> Result<(), StorageError> {
        let root = self.writable("chgrp")?;
        let held = root.hold(path).map_err(failed("chgrp"))?;
        // observed from globus-gridftp-server 13.24: an unknown group is not permitted.
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
        let times = Timestamps {
            last_access: Timespec {
                tv_sec: 0,
                tv_nsec: rustix::fs::UTIME_OMIT,
            },
            last_modification: timespec(modified).map_err(failed("utime"))?,
        };
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

/// Checked permission bits; others would be taken for a file type somewhere.
fn permissions(mode: u32) -> Result<Mode, Errno> {
    if mode & !0o7777 != 0 {
        return Err(Errno::INVAL);
    }
    Ok(Mode::from_raw_mode(mode))
}

/// Nanoseconds count forwards, also before 1970.
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

/// Puts the name of the call to its error number.
fn failed(call: &'static str) -> impl Fn(Errno) -> StorageError {
    move |errno| StorageError::new(call, errno)
}
