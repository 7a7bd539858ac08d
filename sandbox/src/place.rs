//! The files and directories that a process uses, and the directories that Landlock rules name for them.
//!
//! A Landlock rule names an existing directory and everything beneath it, not a path. But files are replaced by renaming
//! new ones onto them, logs are rotated, and a served directory may be moved or mounted over. So the rule for a [`Place`]
//! names the directory that contains it, except where that is `/` or `/dev`.

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use landlock::{ABI, Access as _, AccessFs, BitFlags, make_bitflags};

/// The newest Landlock ABI that is used. Older kernels enforce the rights of their own.
pub(crate) const NEWEST: ABI = ABI::V7;

/// The access of a process to the files of a place.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Access {
    /// Read files and list directories.
    Read,
    /// Append to files, and create regular ones.
    Append,
    /// Everything except executing files and creating devices.
    Write,
    /// Remove files that are not directories.
    Remove,
    /// Use devices.
    Device,
}

impl Access {
    pub(crate) fn rights(self) -> BitFlags<AccessFs> {
        let all = AccessFs::from_all(NEWEST);
        match self {
            Self::Read => make_bitflags!(AccessFs::{ReadFile | ReadDir}),
            Self::Append => make_bitflags!(AccessFs::{WriteFile | MakeReg}),
            // Renaming any kind of file needs the right to make it. Devices, pipes and sockets cannot be created
            // because the filter of system calls forbids `mknod`.
            Self::Write => all & !(AccessFs::Execute | AccessFs::IoctlDev),
            Self::Remove => make_bitflags!(AccessFs::{ReadDir | RemoveFile}),
            Self::Device => make_bitflags!(AccessFs::{ReadFile | ReadDir | WriteFile | IoctlDev}),
        }
    }
}

/// A file or directory that a process uses.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Place {
    path: PathBuf,
    access: Access,
    is_fixed: bool,
}

impl Place {
    /// A file or directory that may be replaced while the process runs.
    pub fn new(path: impl Into<PathBuf>, access: Access) -> Self {
        Self {
            path: path.into(),
            access,
            is_fixed: false,
        }
    }

    /// A system directory or device that is not replaced while the process runs. It is ignored if it does not exist.
    pub fn fixed(path: impl Into<PathBuf>, access: Access) -> Self {
        Self {
            is_fixed: true,
            ..Self::new(path, access)
        }
    }

    /// A directory to read, as [`Place::new`], and the directories that its symbolic links lead to. `/etc/ssl/certs`
    /// consists of such links.
    pub fn directory_of_links(path: impl Into<PathBuf>) -> Vec<Self> {
        let place = Self::new(path, Access::Read);
        let targets = targets_of_links(&place.path);
        let targets = targets
            .into_iter()
            .map(|directory| Self::fixed(directory, Access::Read));
        targets.chain([place.clone()]).collect()
    }

    /// The path of the file or directory.
    pub fn path(&self) -> &Path {
        &self.path
    }

    pub(crate) fn access(&self) -> Access {
        self.access
    }

    pub(crate) fn is_fixed(&self) -> bool {
        self.is_fixed
    }

    /// The directory, or the single file, that the rule names.
    pub(crate) fn anchor(&self) -> io::Result<PathBuf> {
        let found = existing(&self.path)?;
        if self.is_fixed {
            return if found.is_whole {
                Ok(found.path)
            } else {
                Err(not_found())
            };
        }
        // A path that does not exist will be created beneath the directory that was found.
        let holder = if found.is_whole {
            found.path.parent().unwrap_or(&found.path)
        } else {
            &found.path
        };
        let is_too_wide = holder == Path::new("/") || holder == Path::new("/dev");
        if is_too_wide && !found.is_whole {
            return Err(not_found());
        }
        Ok(if is_too_wide {
            found.path.clone()
        } else {
            above_automounts(holder).to_owned()
        })
    }
}

/// The error of the operating system, whose text says more than that of its kind.
fn not_found() -> io::Error {
    io::Error::from_raw_os_error(libc::ENOENT)
}

/// The longest prefix of a path that exists and is accessible, without symbolic links.
pub(crate) struct Existing {
    pub(crate) path: PathBuf,
    /// The prefix is the whole path.
    is_whole: bool,
}

pub(crate) fn existing(path: &Path) -> io::Result<Existing> {
    let path = std::path::absolute(path)?;
    let mut is_whole = true;
    for ancestor in path.ancestors() {
        match ancestor.canonicalize() {
            Ok(path) => return Ok(Existing { path, is_whole }),
            Err(error) if is_hidden(&error) => is_whole = false,
            Err(error) => return Err(error),
        }
    }
    Err(not_found())
}

fn is_hidden(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::NotFound | io::ErrorKind::PermissionDenied
    )
}

/// A file system that an automounter mounts is unmounted when it is idle, and mounted again as another one, which the
/// rule does not cover. So the rule names the automounter's own directory, such as `/cvmfs`.
fn above_automounts(directory: &Path) -> &Path {
    /// linux/magic.h.
    const AUTOFS: libc::c_long = 0x0187;

    let is_automounter = |path: &&Path| {
        rustix::fs::statfs(*path).is_ok_and(|found| found.f_type as libc::c_long == AUTOFS)
    };
    let mut above = directory.ancestors();
    above.find(is_automounter).unwrap_or(directory)
}

/// The directories that the symbolic links in a directory lead to.
fn targets_of_links(directory: &Path) -> BTreeSet<PathBuf> {
    /// A large directory has some thousand names, whose links lead to few directories.
    const MOST_NAMES: usize = 20_000;
    const MOST_TARGETS: usize = 100;

    let Ok(names) = fs::read_dir(directory) else {
        return BTreeSet::new();
    };
    let links = names
        .take(MOST_NAMES)
        .filter_map(Result::ok)
        .filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_symlink()));
    let mut targets = BTreeSet::new();
    for link in links {
        let Ok(target) = link.path().canonicalize() else {
            continue;
        };
        if targets.len() < MOST_TARGETS
            && let Some(holder) = target.parent().filter(|holder| *holder != Path::new("/"))
        {
            targets.insert(holder.to_owned());
        }
    }
    targets
}
