//! Landlock rules: which files a process may open, and whether it may use TCP.
//!
//! `stat`, symbolic links and path resolution are not restricted by Landlock, nor are descriptors that were opened
//! before, or that another process has passed.

use std::collections::BTreeMap;
use std::io;
use std::os::fd::OwnedFd;
use std::path::PathBuf;

use landlock::{
    Access as _, AccessFs, AccessNet, BitFlags, CompatLevel, Compatible as _, LandlockStatus,
    PathBeneath, PathFd, RestrictionStatus, Ruleset, RulesetAttr as _, RulesetCreated,
    RulesetCreatedAttr as _, RulesetError, Scope,
};
use rustix::fs::{Mode, OFlags};

use crate::error::SandboxError;
use crate::kernel::landlock_abi;
use crate::place::{Access, NEWEST, Place, existing};

/// The rules of a process: places that it may open, and whether it may use TCP.
#[derive(Debug)]
pub struct Files {
    rules: BTreeMap<(PathBuf, Access), PathFd>,
    missing: Vec<(PathBuf, String)>,
    network: bool,
}

impl Files {
    /// Rules for these places. They are opened now, so a process can call this with privileges that it drops before it
    /// is confined.
    pub fn at(places: impl IntoIterator<Item = Place>) -> Self {
        let mut files = Self {
            rules: BTreeMap::new(),
            missing: Vec::new(),
            network: true,
        };
        for place in places {
            match files.add(&place) {
                Err(_) if place.is_fixed() => {}
                Err(error) => files
                    .missing
                    .push((place.path().to_owned(), error.to_string())),
                Ok(()) => {}
            }
        }
        files
    }

    fn add(&mut self, place: &Place) -> io::Result<()> {
        let anchor = place.anchor()?;
        let opened = PathFd::new(&anchor).map_err(io::Error::other)?;
        self.rules.insert((anchor, place.access()), opened);
        Ok(())
    }

    /// Forbids to listen at TCP ports and to connect to them (Linux 6.7 and later).
    #[must_use]
    pub fn without_network(self) -> Self {
        Self {
            network: false,
            ..self
        }
    }

    /// Places that do not exist, with the reason. They cannot be used before a restart.
    pub fn missing(&self) -> &[(PathBuf, String)] {
        &self.missing
    }

    /// Confines this thread, and those that it starts, until they end.
    ///
    /// # Errors
    ///
    /// When a system call fails.
    pub fn enforce_on_this_thread(self) -> Result<(), SandboxError> {
        self.enforce().map(drop)
    }

    /// Confines this thread, and those that it starts.
    pub(crate) fn enforce(self) -> Result<Enforced, SandboxError> {
        let allowed = Allowed(self.rules.keys().cloned().collect());
        if landlock_abi().is_none() {
            return Ok(Enforced {
                version: None,
                allowed,
            });
        }
        let mut rules = ruleset(self.network).map_err(error)?;
        for ((_, access), opened) in self.rules {
            let rights = for_file_type(&opened, access.rights());
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

/// What the kernel enforces.
pub(crate) struct Enforced {
    pub(crate) version: Option<i32>,
    pub(crate) allowed: Allowed,
}

/// The directories and files with a rule.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Allowed(Vec<(PathBuf, Access)>);

impl Allowed {
    /// Whether a rule covers a place.
    pub(crate) fn covers(&self, place: &Place) -> bool {
        let Ok(found) = existing(place.path()) else {
            return false;
        };
        self.0.iter().any(|(anchor, access)| {
            let permits = *access == place.access()
                || (*access == Access::Write && place.access() != Access::Device);
            permits && found.path.starts_with(anchor)
        })
    }
}

/// Confines this thread, and those that it starts, to the files beneath a directory, and forbids TCP.
pub(crate) fn keep_beneath(root: OwnedFd, access: Access) -> Result<Option<i32>, SandboxError> {
    if landlock_abi().is_none() {
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

/// A rule set without rules, which allows no access. It also forbids signals and connections to abstract UNIX sockets of
/// processes outside of the domain (Linux 6.12 and later).
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

/// Limits the rights of a rule for a single file to those of files: the kernel refuses directory rights there.
fn for_file_type(opened: &PathFd, rights: BitFlags<AccessFs>) -> BitFlags<AccessFs> {
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
