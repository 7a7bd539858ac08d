//! Which files a process may open: Landlock.
//!
//! A rule is about a directory that is there now, and everything beneath it, and not about a path. Files are
//! replaced by renaming new ones onto them, logs are rotated, and a served directory may be moved away or mounted
//! over. So a [`Place`] is allowed by a rule for the directory that holds its name, except where that is `/`.
//!
//! Facts of files (`stat`), links and the way to a file are not restricted, and neither is a descriptor that was
//! opened before, or by another process.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use landlock::{
    ABI, Access as _, AccessFs, AccessNet, BitFlags, CompatLevel, Compatible as _, LandlockStatus,
    PathBeneath, PathFd, RestrictionStatus, Ruleset, RulesetAttr as _, RulesetCreated,
    RulesetCreatedAttr as _, RulesetError, Scope, make_bitflags,
};
use rustix::fs::{Mode, OFlags};

use crate::SandboxError;

/// The newest that is known here. Kernels with an older one enforce what they know.
const NEWEST: ABI = ABI::V7;

/// What a process may do with the files of a place.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Access {
    /// Read files and list directories.
    Read,
    /// Add to files, and make new ones.
    Append,
    /// Everything but to execute files and to make devices.
    Write,
    /// Use devices.
    Device,
}

impl Access {
    fn rights(self) -> BitFlags<AccessFs> {
        let all = AccessFs::from_all(NEWEST);
        match self {
            Self::Read => make_bitflags!(AccessFs::{ReadFile | ReadDir}),
            Self::Append => make_bitflags!(AccessFs::{WriteFile | MakeReg}),
            // Files may be renamed and removed whatever they are; that devices and the like are made is
            // forbidden among the calls.
            Self::Write => all & !(AccessFs::Execute | AccessFs::IoctlDev),
            Self::Device => make_bitflags!(AccessFs::{ReadFile | ReadDir | WriteFile | IoctlDev}),
        }
    }
}

/// A file or a directory that a process works with.
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

    /// A directory or device of the machine that stays where it is. One that is not there is left out.
    pub fn fixed(path: impl Into<PathBuf>, access: Access) -> Self {
        Self {
            is_fixed: true,
            ..Self::new(path, access)
        }
    }

    /// As [`Place::new`], to read a directory, and also what symbolic links in it lead to, as those of
    /// `/etc/ssl/certs` do.
    pub fn directory_of_links(path: impl Into<PathBuf>) -> Vec<Self> {
        let place = Self::new(path, Access::Read);
        let targets = targets_of_links(&place.path);
        let targets = targets
            .into_iter()
            .map(|directory| Self::fixed(directory, Access::Read));
        targets.chain([place.clone()]).collect()
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The directory, or the single file, that a rule is made for.
    fn anchor(&self) -> io::Result<PathBuf> {
        let found = existing(&self.path)?;
        if self.is_fixed {
            return if found.is_whole {
                Ok(found.path)
            } else {
                Err(io::ErrorKind::NotFound.into())
            };
        }
        // A name that is not there yet will be made in the directory that was found.
        let holder = if found.is_whole {
            found.path.parent().unwrap_or(&found.path)
        } else {
            &found.path
        };
        let is_too_much = holder == Path::new("/") || holder == Path::new("/dev");
        if is_too_much && !found.is_whole {
            return Err(io::ErrorKind::NotFound.into());
        }
        Ok(if is_too_much {
            found.path.clone()
        } else {
            above_automounts(holder).to_owned()
        })
    }
}

/// A path without links, as far as it exists and may be seen.
struct Existing {
    path: PathBuf,
    is_whole: bool,
}

fn existing(path: &Path) -> io::Result<Existing> {
    let path = std::path::absolute(path)?;
    let mut is_whole = true;
    for ancestor in path.ancestors() {
        match ancestor.canonicalize() {
            Ok(path) => return Ok(Existing { path, is_whole }),
            Err(error) if is_hidden(&error) => is_whole = false,
            Err(error) => return Err(error),
        }
    }
    Err(io::ErrorKind::NotFound.into())
}

fn is_hidden(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::NotFound | io::ErrorKind::PermissionDenied
    )
}

/// What an automounter has mounted goes and comes back as another file system, which a rule is not about. So the
/// rule is for the automounter's own directory, as `/cvmfs`.
fn above_automounts(directory: &Path) -> &Path {
    /// linux/magic.h.
    const AUTOFS: libc::c_long = 0x0187;

    let is_automounter = |path: &&Path| {
        rustix::fs::statfs(*path).is_ok_and(|found| found.f_type as libc::c_long == AUTOFS)
    };
    let mut above = directory.ancestors();
    above.find(is_automounter).unwrap_or(directory)
}

/// The directories that links in a directory lead to, but for itself.
fn targets_of_links(directory: &Path) -> BTreeSet<PathBuf> {
    /// There are some thousand names in large ones, and links lead to a few places.
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

/// What a process may open, and whether it may use TCP.
#[derive(Debug)]
pub struct Files {
    rules: BTreeMap<(PathBuf, Access), PathFd>,
    missing: Vec<(PathBuf, String)>,
    network: bool,
}

impl Files {
    /// What is at these places. They are held from now on, so this may be called with rights that are
    /// given up before the process is confined.
    pub fn at(places: impl IntoIterator<Item = Place>) -> Self {
        let mut files = Self {
            rules: BTreeMap::new(),
            missing: Vec::new(),
            network: true,
        };
        for place in places {
            match files.add(&place) {
                Err(_) if place.is_fixed => {}
                Err(error) => files.missing.push((place.path, error.to_string())),
                Ok(()) => {}
            }
        }
        files
    }

    fn add(&mut self, place: &Place) -> io::Result<()> {
        let anchor = place.anchor()?;
        let opened = PathFd::new(&anchor).map_err(io::Error::other)?;
        self.rules.insert((anchor, place.access), opened);
        Ok(())
    }

    /// The process listens at no TCP port and connects to none (Linux 6.7 and later).
    #[must_use]
    pub fn without_network(self) -> Self {
        Self {
            network: false,
            ..self
        }
    }

    /// Places that are not there, and cannot be used before a restart, with the reason.
    pub fn missing(&self) -> &[(PathBuf, String)] {
        &self.missing
    }

    /// Confines this thread, and those that it starts, for good.
    ///
    /// # Errors
    ///
    /// When the kernel refuses.
    pub fn enforce_on_this_thread(self) -> Result<(), SandboxError> {
        self.enforce().map(drop)
    }

    /// Confines this thread, and those that it starts.
    pub(crate) fn enforce(self) -> Result<Enforced, SandboxError> {
        let allowed = Allowed(self.rules.keys().cloned().collect());
        if crate::landlock_abi().is_none() {
            return Ok(Enforced {
                version: None,
                allowed,
            });
        }
        let mut rules = ruleset(self.network).map_err(error)?;
        for ((_, access), opened) in self.rules {
            let rights = for_kind_of(&opened, access.rights());
            rules = rules
                .add_rule(PathBeneath::new(opened, rights))
                .map_err(error)?;
        }
        Ok(Enforced {
            version: version(&rules.restrict_self().map_err(error)?),
            allowed,
        })
    }
}

/// What holds for a process from now on.
pub(crate) struct Enforced {
    pub(crate) version: Option<i32>,
    pub(crate) allowed: Allowed,
}

/// The directories and files that there are rules for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Allowed(Vec<(PathBuf, Access)>);

impl Allowed {
    /// Whether there is a rule for a place.
    pub(crate) fn covers(&self, place: &Place) -> bool {
        let Ok(found) = existing(&place.path) else {
            return false;
        };
        self.0.iter().any(|(anchor, access)| {
            let is_enough = *access == place.access
                || (*access == Access::Write && place.access != Access::Device);
            is_enough && found.path.starts_with(anchor)
        })
    }
}

/// Confines this thread, and those that it starts, to what is beneath a directory. There is no network.
pub(crate) fn keep_beneath(root: OwnedFd, access: Access) -> Result<Option<i32>, SandboxError> {
    if crate::landlock_abi().is_none() {
        return Ok(None);
    }
    let restricted = ruleset(false)
        .and_then(|rules| rules.add_rule(PathBeneath::new(root, access.rights())))
        .and_then(RulesetCreated::restrict_self);
    Ok(version(&restricted.map_err(error)?))
}

fn error(error: impl std::fmt::Display) -> SandboxError {
    SandboxError::Files(error.to_string())
}

/// Rules that allow nothing yet. Other processes cannot be signalled, and abstract UNIX sockets not be reached,
/// outside of what confines itself together (Linux 6.12 and later).
fn ruleset(network: bool) -> Result<RulesetCreated, RulesetError> {
    let rules = Ruleset::default()
        .set_compatibility(CompatLevel::SoftRequirement)
        .handle_access(AccessFs::Refer)?
        .set_compatibility(CompatLevel::BestEffort)
        .handle_access(AccessFs::from_all(NEWEST))?
        .scope(Scope::from_all(NEWEST))?;
    if network {
        rules.create()
    } else {
        rules.handle_access(AccessNet::from_all(NEWEST))?.create()
    }
}

/// A rule for a single file may name only rights that files have.
fn for_kind_of(opened: &PathFd, rights: BitFlags<AccessFs>) -> BitFlags<AccessFs> {
    let is_directory = rustix::fs::openat(
        opened,
        c".",
        OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC,
        Mode::empty(),
    );
    match is_directory {
        Ok(_) => rights,
        Err(_) => rights & AccessFs::from_file(NEWEST),
    }
}

fn version(status: &RestrictionStatus) -> Option<i32> {
    match status.landlock {
        LandlockStatus::Available {
            effective_abi,
            kernel_abi,
        } => Some(kernel_abi.unwrap_or(effective_abi as i32)),
        _ => None,
    }
}
