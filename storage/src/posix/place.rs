//! Detects whether an open directory still has its path, for a process that may not follow the path itself.
//!
//! `/proc/self/fd` shows the present path of a directory, which changes with every rename of it or of a directory above.
//! `/proc/self/mountinfo` (proc_pid_mountinfo(5)) lists the mounts, one of which may hide it.

use std::ffi::OsString;
use std::fs;
use std::os::fd::{AsFd as _, AsRawFd as _, OwnedFd};
use std::os::unix::ffi::OsStringExt as _;
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, StatxFlags};

/// The path that a directory had when it was opened.
#[derive(Debug)]
pub(super) struct Place(PathBuf);

impl Place {
    /// The present path of a directory; `None` without `/proc`.
    pub(super) fn of(directory: &OwnedFd) -> Option<Self> {
        fs::read_link(format!("/proc/self/fd/{}", directory.as_raw_fd()))
            .ok()
            .map(Self)
    }

    /// Whether the directory still has this path, and no mount hides it. `None` if the kernel does not report it.
    pub(super) fn still_has(&self, directory: &OwnedFd) -> Option<bool> {
        if Self::of(directory)?.0 != self.0 {
            return Some(false);
        }
        let mounts = fs::read("/proc/self/mountinfo").ok()?;
        let mounts: Vec<_> = mounts
            .split(|byte| *byte == b'\n')
            .filter_map(Mount::parse)
            .collect();
        Some(is_visible(&mounts, mount_of(directory)?, &self.0))
    }
}

/// The mount that a directory was opened in; `None` before Linux 5.8.
fn mount_of(directory: &OwnedFd) -> Option<u64> {
    let flags = AtFlags::EMPTY_PATH | AtFlags::STATX_DONT_SYNC;
    let facts = rustix::fs::statx(directory.as_fd(), "", flags, StatxFlags::MNT_ID).ok()?;
    let is_reported = StatxFlags::from_bits_retain(facts.stx_mask).contains(StatxFlags::MNT_ID);
    is_reported.then_some(facts.stx_mnt_id)
}

#[derive(Debug)]
struct Mount {
    id: u64,
    parent: u64,
    point: PathBuf,
}

impl Mount {
    fn parse(line: &[u8]) -> Option<Self> {
        let mut fields = line.split(|byte| *byte == b' ');
        let mut number = || std::str::from_utf8(fields.next()?).ok()?.parse().ok();
        let (id, parent) = (number()?, number()?);
        // Skips the device and the root of the mount within its file system.
        let point = unescaped(fields.nth(2)?);
        Some(Self {
            id,
            parent,
            point: OsString::from_vec(point).into(),
        })
    }
}

/// Decodes special characters such as spaces, which are written as a backslash and three octal digits.
fn unescaped(mut text: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(text.len());
    while let Some((&first, rest)) = text.split_first() {
        let number = rest
            .get(..3)
            .and_then(|digits| std::str::from_utf8(digits).ok());
        let number = number.and_then(|digits| u8::from_str_radix(digits, 8).ok());
        match (first, number) {
            (b'\\', Some(byte)) => {
                bytes.push(byte);
                text = &rest[3..];
            }
            _ => {
                bytes.push(first);
                text = rest;
            }
        }
    }
    bytes
}

/// Whether `path` leads to the mount `id`: no other mount covers a part of the path.
fn is_visible(mounts: &[Mount], id: u64, path: &Path) -> bool {
    // Goes from the mount up to that of `/`, and checks the mounts within each on the path to the previous one.
    let (mut mount, mut way, mut below) = (id, path, None);
    loop {
        let hides = |other: &&Mount| {
            other.parent == mount && Some(other.id) != below && way.starts_with(&other.point)
        };
        if mounts
            .iter()
            .any(|other| other.id != mount && hides(&other))
        {
            return false;
        }
        let Some(found) = mounts.iter().find(|found| found.id == mount) else {
            // Either the mount was detached and exists only for its users, or this is the parent of the mount of `/`, which
            // is not listed.
            return below.is_some();
        };
        if found.parent == mount {
            return true;
        }
        (below, way, mount) = (Some(mount), &found.point, found.parent);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `/srv/closed` contains the root; `/srv` is a file system of its own.
    const MOUNTS: &str = "\
21 1 8:1 / / rw shared:1 - ext4 /dev/sda1 rw
22 21 0:5 / /proc rw - proc proc rw
30 21 8:2 / /srv rw,relatime shared:7 - ext4 /dev/sda2 rw
31 30 8:3 / /srv/closed/other rw - ext4 /dev/sda3 rw
32 30 8:4 / /srv/closed/ro\\040ot rw - ext4 /dev/sda4 rw
";

    fn visible(more: &str, id: u64, path: &str) -> bool {
        let text = format!("{MOUNTS}{more}");
        let mounts: Vec<_> = text
            .lines()
            .filter_map(|line| Mount::parse(line.as_bytes()))
            .collect();
        is_visible(&mounts, id, Path::new(path))
    }

    #[test]
    fn a_mount_on_the_way_hides_a_directory() {
        const ROOT: &str = "/srv/closed/root";
        let mount =
            |parent: u64, point: &str| format!("40 {parent} 0:9 / {point} rw - tmpfs none rw\n");

        assert!(visible("", 30, ROOT));
        for (parent, point) in [
            (30, ROOT),
            (30, "/srv/closed"),
            (30, "/srv"),
            (21, "/"),
            (21, "/srv"),
        ] {
            assert!(
                !visible(&mount(parent, point), 30, ROOT),
                "{parent} {point}"
            );
        }
        for (parent, point) in [
            (30, "/srv/closed/root/inside"),
            (30, "/srv/closed/root2"),
            (30, "/srv/else"),
            (21, "/other"),
            // Mounted before `/srv` was mounted over it.
            (21, "/srv/closed"),
            (31, "/srv/closed/other/x"),
        ] {
            assert!(visible(&mount(parent, point), 30, ROOT), "{parent} {point}");
        }
    }

    #[test]
    fn a_file_system_that_is_the_root_is_there_until_it_is_unmounted() {
        const ROOT: &str = "/srv/closed/ro ot";
        assert!(visible("", 32, ROOT));
        assert!(!visible(
            "40 32 0:9 / /srv/closed/ro\\040ot rw - tmpfs none rw\n",
            32,
            ROOT
        ));
        assert!(!visible("", 33, ROOT));
        // What it is mounted on.
        assert!(!visible("", 30, ROOT));
    }

    #[test]
    fn a_directory_has_its_place_until_it_or_one_above_it_is_renamed() {
        let place = tempfile::tempdir().unwrap();
        let at = |name: &str| place.path().join(name);
        for renamed in ["above/root", "above"] {
            fs::create_dir_all(at("above/root")).unwrap();
            let held = OwnedFd::from(fs::File::open(at("above/root")).unwrap());
            let found = Place::of(&held).expect("/proc is there");
            assert_eq!(found.still_has(&held), Some(true));
            fs::rename(at(renamed), at("old")).unwrap();
            fs::create_dir_all(at("above/root")).unwrap();
            assert_eq!(found.still_has(&held), Some(false), "{renamed}");
            fs::remove_dir_all(at("old")).unwrap();
        }
    }
}
