//! The rights of a file that an upload will replace, for the upload's own file: group, permission bits, and the access control
//! list of POSIX (acl(5)).
//!
//! With a list the permission bits of the group are the mask of the list, so a copy of the bits alone would give the owning
//! group the rights of all named users. The list is the extended attribute `system.posix_acl_access`
//! (linux/posix_acl_xattr.h). Lists of other kinds (NFSv4) have no attribute that all file systems share, and are not kept.

use std::os::fd::OwnedFd;
use std::path::Path;

use rustix::fs::{AtFlags, CWD, Gid, Mode, Stat, XattrFlags};
use rustix::io::Errno;

use super::resolve::{Root, path_of};

const ATTRIBUTE: &str = "system.posix_acl_access";

/// The maximum length of a value (linux/limits.h, XATTR_SIZE_MAX).
const LONGEST: usize = 64 * 1024;

/// `POSIX_ACL_XATTR_VERSION`, in little-endian order as everything in the attribute.
const VERSION: [u8; 4] = 2_u32.to_le_bytes();

/// An entry: tag and rights with 16 bits each, and an id with 32.
const ENTRY: usize = 8;

/// The tag of the owning group.
const OWNING_GROUP: u16 = 0x04;

const READ_WRITE_EXECUTE: u32 = 0o777;
const OF_GROUP: u32 = 0o070;

/// Gives the file at `to`, which is not followed, the rights of the one at `from`. If the account may not give it that group,
/// its present group gets no rights.
pub(super) fn copy(root: &Root, from: &Path, to: &Path) -> Result<(), Errno> {
    let old = root.hold(from)?;
    let new = root.hold_unfollowed(to)?;
    let (old_facts, new_facts) = (rustix::fs::fstat(&old)?, rustix::fs::fstat(&new)?);
    let has_group = old_facts.st_gid == new_facts.st_gid || set_group(&new, &old_facts).is_ok();
    match list(&old)? {
        Some(list) => set_list(&new, &old_facts, list, has_group),
        None => {
            // The directory may have given it a list.
            remove_list(&new)?;
            let mode = old_facts.st_mode & READ_WRITE_EXECUTE;
            set_mode(&new, if has_group { mode } else { mode & !OF_GROUP })
        }
    }
}

fn set_group(new: &OwnedFd, old: &Stat) -> Result<(), Errno> {
    let group = Some(Gid::from_raw(old.st_gid));
    rustix::fs::chownat(new, "", None, group, AtFlags::EMPTY_PATH)
}

fn set_mode(new: &OwnedFd, mode: u32) -> Result<(), Errno> {
    let mode = Mode::from_raw_mode(mode);
    match rustix::fs::chmodat(CWD, path_of(new), mode, AtFlags::empty()) {
        // The file is open and exists, so `/proc` is missing.
        Err(Errno::NOENT) => Err(Errno::OPNOTSUPP),
        result => result,
    }
}

/// The list of a file, if it has one beyond its permission bits.
fn list(old: &OwnedFd) -> Result<Option<Vec<u8>>, Errno> {
    let mut value = vec![0; LONGEST];
    match rustix::fs::getxattr(path_of(old).as_str(), ATTRIBUTE, &mut value[..]) {
        Ok(length) => {
            value.truncate(length);
            Ok(Some(value))
        }
        // Without `/proc` only the permission bits are known.
        Err(Errno::NODATA | Errno::OPNOTSUPP | Errno::NOENT) => Ok(None),
        Err(errno) => Err(errno),
    }
}

fn remove_list(new: &OwnedFd) -> Result<(), Errno> {
    match rustix::fs::removexattr(path_of(new).as_str(), ATTRIBUTE) {
        Err(Errno::NODATA | Errno::OPNOTSUPP | Errno::NOENT) => Ok(()),
        result => result,
    }
}

fn set_list(new: &OwnedFd, old: &Stat, mut list: Vec<u8>, has_group: bool) -> Result<(), Errno> {
    let of_group = owning_group(&mut list).ok_or(Errno::OPNOTSUPP)?;
    if !has_group {
        of_group.copy_from_slice(&[0, 0]);
    }
    let rights = u32::from(of_group[0]) & 0o7;
    let set = rustix::fs::setxattr(path_of(new).as_str(), ATTRIBUTE, &list, XattrFlags::empty());
    match set {
        // The bits of the group in the mode are the mask: those of the owning group are in the list.
        Err(Errno::OPNOTSUPP) => {
            let others = old.st_mode & READ_WRITE_EXECUTE & !OF_GROUP;
            set_mode(new, others | (old.st_mode & (rights << 3)))
        }
        set => set,
    }
}

/// The rights of the owning group in a list. `None` if it is not a list of this version.
fn owning_group(list: &mut [u8]) -> Option<&mut [u8]> {
    let (version, entries) = list.split_at_mut_checked(VERSION.len())?;
    if version != VERSION {
        return None;
    }
    let mut entries = entries.chunks_exact_mut(ENTRY);
    let entry = entries.find(|entry| entry[..2] == OWNING_GROUP.to_le_bytes())?;
    Some(&mut entry[2..4])
}
