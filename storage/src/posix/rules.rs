//! Rules for all clients, beyond the permissions that the kernel checks.
//!
//! The kernel protects the files of one account from another. These rules protect other programs and users of the machine
//! from files that a client could make: set-user-ID programs, names that forge lines of listings and logs, and links that
//! lead local programs out of the served directory.

use std::os::fd::AsFd;
use std::path::{Component, Path};

use rustix::fs::{FileType, Mode};
use rustix::io::Errno;

use crate::{Rights, Rule, StorageError};

/// Set-user-ID, set-group-ID and sticky.
const SPECIAL: u32 = 0o7000;

/// Set-group-ID and sticky, which on a directory set the group of new files and restrict removals.
const OF_DIRECTORIES: u32 = 0o3000;

/// The permission bits to set for a file of this type with the bits `present`, if a client requests `wanted`.
///
/// A file never gets a special bit: a client could make a program that runs with the permissions of the server or the
/// account for every user of the machine. A directory never gets set-user-ID, which Linux ignores. A local account may set
/// set-group-ID and sticky on its directories, which sites do for directories of groups. In a shared account these bits
/// are reserved for the administrator: clients can neither set nor clear them.
pub(super) fn mode(
    file_type: FileType,
    present: Mode,
    wanted: Mode,
    rights: Rights,
) -> Result<Mode, Rule> {
    let (present, wanted) = (present.as_raw_mode() & SPECIAL, wanted.as_raw_mode());
    let (allowed, kept) = match (file_type, rights) {
        (FileType::Directory, Rights::Account) => (OF_DIRECTORIES, 0),
        (FileType::Directory, Rights::Shared) => (present, present),
        _ => (0, 0),
    };
    if wanted & SPECIAL & !allowed != 0 {
        return Err(Rule::SpecialBits);
    }
    Ok(Mode::from_raw_mode(wanted | kept))
}

/// Checks the target of a new symbolic link.
///
/// The server resolves every link beneath its root, but other programs of the machine do not: links in a shared account
/// would lead them to any file. `..` is refused as well as a leading slash, because it leads elsewhere after a rename of the
/// directory. A local account could make the same link without the server, so its links are not restricted.
pub(super) fn link_target(target: &Path, rights: Rights) -> Result<(), Rule> {
    if has_control_characters(target.as_os_str().as_encoded_bytes()) {
        return Err(Rule::ControlCharacters);
    }
    let leads_down = |part: Component<'_>| matches!(part, Component::Normal(_) | Component::CurDir);
    if rights == Rights::Shared && !target.components().all(leads_down) {
        return Err(Rule::LeadingLink);
    }
    Ok(())
}

/// Checks the name of a new file. Existing files with such names can be read, renamed and removed.
pub(super) fn new_name(name: &[u8]) -> Result<(), Rule> {
    if has_control_characters(name) {
        return Err(Rule::ControlCharacters);
    }
    Ok(())
}

/// Control characters of ASCII except the tabulator, those of Unicode (U+0080 to U+009F) in UTF-8, and the
/// line and paragraph separators (U+2028, U+2029). Clients split lines at some of them (Python's `str.splitlines` at most
/// of them), and terminals interpret others.
fn has_control_characters(name: &[u8]) -> bool {
    let is_control = |&byte: &u8| (byte < b' ' && byte != b'\t') || byte == 0x7f;
    name.iter().any(is_control)
        || name
            .windows(2)
            .any(|pair| matches!(pair, [0xc2, 0x80..=0x9f]))
        || name
            .windows(3)
            .any(|triple| matches!(triple, [0xe2, 0x80, 0xa8 | 0xa9]))
}

/// Refuses files of pseudo file systems: `/proc/self/mem` is the memory of this process, and writing to a file of `/sys`
/// controls the kernel.
pub(super) fn served(held: impl AsFd) -> Result<(), StorageError> {
    let system = rustix::fs::fstatfs(held).map_err(|errno| StorageError::new("statfs", errno))?;
    // Some C libraries define the type as signed or with 64 bits; the magic number has 32 bits.
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
    let magic = system.f_type as u32;
    if PSEUDO_FILE_SYSTEMS.contains(&magic) {
        return Err(StorageError::refused("open", Rule::KernelFile));
    }
    Ok(())
}

/// Pseudo file systems. From linux/magic.h, except where another source is named.
const PSEUDO_FILE_SYSTEMS: [u32; 14] = [
    0x0000_9fa0, // PROC_SUPER_MAGIC
    0x6265_6572, // SYSFS_MAGIC
    0x6462_6720, // DEBUGFS_MAGIC
    0x7472_6163, // TRACEFS_MAGIC
    0x7363_6673, // SECURITYFS_MAGIC
    0xf97c_ff8c, // SELINUX_MAGIC
    0x4341_5d53, // SMACK_MAGIC
    0x0027_e0eb, // CGROUP_SUPER_MAGIC
    0x6367_7270, // CGROUP2_SUPER_MAGIC
    0x0765_5821, // RDTGROUP_SUPER_MAGIC
    0xcafe_4a11, // BPF_FS_MAGIC
    0xde5e_81e4, // EFIVARFS_MAGIC
    0x4249_4e4d, // BINFMTFS_MAGIC
    0x6265_6570, // CONFIGFS_MAGIC, fs/configfs/mount.c
];

/// Checks the configured permission bits of new files and directories, which may not be special either: all files that
/// clients store would have them.
pub(super) fn mode_of_new(mode: Mode, file_type: FileType) -> Result<Mode, Errno> {
    self::mode(file_type, Mode::empty(), mode, Rights::Account).map_err(Rule::errno)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bits(file_type: FileType, present: u32, wanted: u32, rights: Rights) -> Result<u32, Rule> {
        let raw = Mode::from_raw_mode;
        mode(file_type, raw(present), raw(wanted), rights).map(|mode| mode.as_raw_mode())
    }

    #[test]
    fn no_file_gets_a_special_bit_and_directories_those_that_are_harmless() {
        for rights in [Rights::Account, Rights::Shared] {
            for special in 1..=7 {
                let wanted = special << 9 | 0o755;
                for file_type in [FileType::RegularFile, FileType::Fifo, FileType::Socket] {
                    let refused = bits(file_type, 0o7755, wanted, rights);
                    assert_eq!(refused, Err(Rule::SpecialBits), "{wanted:o}");
                }
                let directory = bits(FileType::Directory, 0o755, wanted, rights);
                if rights == Rights::Account && special & 0o4 == 0 {
                    assert_eq!(directory, Ok(wanted));
                } else {
                    assert_eq!(directory, Err(Rule::SpecialBits), "{wanted:o}");
                }
            }
            assert_eq!(
                bits(FileType::RegularFile, 0o4755, 0o644, rights),
                Ok(0o644)
            );
        }
        let directory = |wanted, rights| bits(FileType::Directory, 0o3775, wanted, rights);
        assert_eq!(directory(0o755, Rights::Account), Ok(0o755));
        assert_eq!(directory(0o755, Rights::Shared), Ok(0o3755));
        assert_eq!(directory(0o2700, Rights::Shared), Ok(0o3700));
    }

    #[test]
    fn names_have_no_control_characters() {
        for name in [
            "",
            "a b",
            "\ttab",
            "ü",
            "\u{a0}",
            "漢字",
            "\u{2027}",
            "\u{202a}",
            "é\u{301}",
            "%0A",
        ] {
            assert_eq!(new_name(name.as_bytes()), Ok(()), "{name:?}");
        }
        assert_eq!(new_name(b"latin \xfc\x85"), Ok(()));
        for name in [
            "a\nb",
            "a\rb",
            "\0",
            "\u{1b}[2J",
            "\u{7f}",
            "\u{b}",
            "\u{1c}",
            "\u{85}",
            "\u{9b}",
            "\u{2028}",
            "\u{2029}",
        ] {
            let refused = Err(Rule::ControlCharacters);
            assert_eq!(new_name(name.as_bytes()), refused, "{name:?}");
        }
    }
}
