//! The rights of a file that an upload will replace, for the upload's own file: group, permission bits, and the access control
//! list of POSIX (acl(5)).
//!
//! With a list the permission bits of the group are the mask of the list, so a copy of the bits alone would give the owning
//! group the rights of all named users. The list is the extended attribute `system.posix_acl_access`
//! (linux/posix_acl_xattr.h). Lists of other kinds (NFSv4) have no attribute that all file systems share, and are not kept.

use std::os::fd::OwnedFd;

use rustix::fs::{AtFlags, CWD, FileType, Gid, Mode, Stat, XattrFlags};
use rustix::io::Errno;

use super::resolve::path_of;

const ATTRIBUTE: &str = "system.posix_acl_access";

/// The maximum length of a value (linux/limits.h, XATTR_SIZE_MAX).
const LONGEST: usize = 64 * 1024;

/// `POSIX_ACL_XATTR_VERSION`, in little-endian order as everything in the attribute.
const VERSION: [u8; 4] = 2_u32.to_le_bytes();

/// An entry: tag and rights with 16 bits each, and an id with 32.
const ENTRY: usize = 8;

// The tags of entries.
const NAMED_USER: u16 = 0x02;
const OWNING_GROUP: u16 = 0x04;
const NAMED_GROUP: u16 = 0x08;
const MASK: u16 = 0x10;
const OTHERS: u16 = 0x20;

/// Read, write and execute, of one class or entry.
const ALL: u8 = 0o7;

const OF_OWNER: u32 = 0o700;
pub(super) const OF_GROUP: u32 = 0o070;
pub(super) const OF_OTHERS: u32 = 0o007;

/// Gives a file the rights of another one, which must be a regular file. If the account may not give it that group, its
/// present group gets no rights. The members of the old group are then others, who get only those rights that the old group
/// had as well. At no time the file grants other accounts more than before and than the old one.
pub(super) fn copy(old: &OwnedFd, new: &OwnedFd) -> Result<(), Errno> {
    let (old_facts, new_facts) = (rustix::fs::fstat(old)?, rustix::fs::fstat(new)?);
    match FileType::from_raw_mode(old_facts.st_mode) {
        FileType::RegularFile => {}
        FileType::Directory => return Err(Errno::ISDIR),
        _ => return Err(Errno::OPNOTSUPP),
    }
    if new_facts.st_mode & (OF_GROUP | OF_OTHERS) != 0 {
        // The group changes first, and must not get the present rights.
        set_mode(new, new_facts.st_mode & OF_OWNER)?;
    }
    let has_group = old_facts.st_gid == new_facts.st_gid || set_group(new, &old_facts).is_ok();
    match list(old)? {
        Some(list) => set_list(new, &old_facts, list, has_group),
        None => {
            // The directory may have given it a list.
            remove_list(new)?;
            set_mode(new, mode_to_set(old_facts.st_mode, has_group))
        }
    }
}

/// The permission bits for a file without a list.
fn mode_to_set(old: u32, has_group: bool) -> u32 {
    let (owner, group, others) = (old & OF_OWNER, old & OF_GROUP, old & OF_OTHERS);
    if has_group {
        owner | group | others
    } else {
        owner | (others & (group >> 3))
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
    let granted = Granted::by(&list).ok_or(Errno::OPNOTSUPP)?;
    if !has_group {
        change(&mut list, OWNING_GROUP, 0);
        change(&mut list, OTHERS, granted.others & granted.group);
    }
    let set = rustix::fs::setxattr(path_of(new).as_str(), ATTRIBUTE, &list, XattrFlags::empty());
    match set {
        Err(Errno::OPNOTSUPP) => set_mode(new, granted.mode_without_list(old.st_mode, has_group)),
        set => set,
    }
}

/// The rights that a list grants to accounts other than the owner.
#[derive(Debug, Clone, Copy)]
struct Granted {
    /// Of the owning group, limited by the mask.
    group: u8,
    /// Common to all named users and groups, limited by the mask.
    named: u8,
    others: u8,
}

impl Granted {
    /// `None` if it is not a list of this version.
    fn by(list: &[u8]) -> Option<Self> {
        let rights = |wanted| {
            let mut all = entries(list)?;
            let found = all.find(|&(tag, _)| tag == wanted)?;
            Some(found.1)
        };
        let mask = rights(MASK).unwrap_or(ALL);
        let named = entries(list)?
            .filter(|&(tag, _)| tag == NAMED_USER || tag == NAMED_GROUP)
            .fold(ALL, |common, (_, rights)| common & rights & mask);
        Some(Self {
            group: rights(OWNING_GROUP)? & mask,
            named,
            others: rights(OTHERS)?,
        })
    }

    /// The permission bits where the file can have no list: a named account is one of the group or of the others there.
    fn mode_without_list(self, old: u32, has_group: bool) -> u32 {
        let group = u32::from(self.group & self.named) << 3;
        let others = u32::from(self.others & self.named);
        // The bits of the group in `old` are the mask.
        mode_to_set((old & OF_OWNER) | group | others, has_group)
    }
}

/// The tags and rights of a list. `None` if it is not a list of this version.
fn entries(list: &[u8]) -> Option<impl Iterator<Item = (u16, u8)>> {
    let entries = list.strip_prefix(&VERSION)?.chunks_exact(ENTRY);
    Some(entries.map(|entry| (u16::from_le_bytes([entry[0], entry[1]]), entry[2] & ALL)))
}

/// Sets the rights of the entry with this tag, of which a list has one.
fn change(list: &mut [u8], tag: u16, rights: u8) {
    let entries = list[VERSION.len()..].chunks_exact_mut(ENTRY);
    for entry in entries.filter(|entry| entry[..2] == tag.to_le_bytes()) {
        entry[2..4].copy_from_slice(&u16::from(rights).to_le_bytes());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn list_of(entries: &[(u16, u8)]) -> Vec<u8> {
        let mut list = VERSION.to_vec();
        for &(tag, rights) in entries {
            list.extend([tag.to_le_bytes(), u16::from(rights).to_le_bytes()].concat());
            list.extend(u32::MAX.to_le_bytes());
        }
        list
    }

    #[test]
    fn members_of_a_group_that_is_not_kept_gain_nothing_as_others() {
        for (old, kept, lost) in [
            (0o100_606, 0o606, 0o600),
            (0o100_664, 0o664, 0o604),
            (0o100_646, 0o646, 0o604),
            (0o100_600, 0o600, 0o600),
        ] {
            assert_eq!(mode_to_set(old, true), kept);
            assert_eq!(mode_to_set(old, false), lost, "{old:o}");
        }
    }

    #[test]
    fn without_a_list_no_named_account_gains_anything() {
        let list = list_of(&[
            (0x01, 6),
            (NAMED_USER, 0),
            (OWNING_GROUP, 6),
            (MASK, 4),
            (OTHERS, 4),
        ]);
        let granted = Granted::by(&list).expect("a list");
        assert_eq!((granted.group, granted.named, granted.others), (4, 0, 4));
        assert_eq!(granted.mode_without_list(0o100_644, true), 0o600);
        let list = list_of(&[
            (0x01, 6),
            (OWNING_GROUP, 0),
            (NAMED_GROUP, 6),
            (MASK, 6),
            (OTHERS, 4),
        ]);
        let granted = Granted::by(&list).expect("a list");
        assert_eq!(granted.mode_without_list(0o100_664, true), 0o604);
        assert_eq!(granted.mode_without_list(0o100_664, false), 0o600);
        assert!(Granted::by(&list[1..]).is_none());
    }
}
