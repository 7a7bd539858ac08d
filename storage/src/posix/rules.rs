//! What is refused to every client, whatever the kernel would allow.
//!
//! The kernel protects the files of one account from another. These rules protect other programs and
//! other users of the machine from what a client can make: a program that runs with the rights of its
//! owner, a name that forges lines of listings and logs, a link that leads a local program out of the
//! directory that is served.

use std::os::fd::AsFd;
use std::path::{Component, Path};

use rustix::fs::{FileType, Mode};
use rustix::io::Errno;

use crate::{Rights, Rule, StorageError};

/// Set-user-ID, set-group-ID and sticky.
const SPECIAL: u32 = 0o7000;

/// Set-group-ID and sticky, which say where files of a directory belong and who removes them.
const OF_DIRECTORIES: u32 = 0o3000;

/// The permission bits that `wanted` comes to for something of this type that has `present`.
///
/// A file never gets a special bit: a client could make a program that runs with the server's or the account's rights
/// for every user of the machine. A directory never gets set-user-ID, which Linux ignores.
/// A local account may set set-group-ID and sticky on its directories, as sites do for directories of a
/// group: it gives away nothing but places in its own directories. Where several users share one account,
/// these bits belong to the administrator: no user sets them or takes them away.
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

/// Whether a link may be made that says `target`.
///
/// The server resolves every link beneath its root, but other programs of the machine do not. Where
/// several users share one account, its links would lead those programs to any file of the machine. A
/// `..` is refused as well as a leading slash: after a rename of the directory it leads elsewhere. A local
/// account could make the same link without the server.
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

/// Whether a file of this name may be made. Names that exist already are read, renamed and removed.
pub(super) fn new_name(name: &[u8]) -> Result<(), Rule> {
    if has_control_characters(name) {
        return Err(Rule::ControlCharacters);
    }
    Ok(())
}

/// Control characters of ASCII except the tabulator, those of Unicode (U+0080 to U+009F) in UTF-8, and the
/// separators of lines and paragraphs (U+2028, U+2029). Clients end lines at some of them (Python's
/// `str.splitlines` at all but a few), and terminals obey others.
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

/// Only stored files are opened. Files of the kernel's own file systems are different: `/proc/self/mem` is the memory
/// of this process, and a write to a file of `/sys` is a
/// command to the kernel.
pub(super) fn served(held: impl AsFd) -> Result<(), StorageError> {
    let system = rustix::fs::fstatfs(held).map_err(|errno| StorageError::new("statfs", errno))?;
    // The type has no sign in some C libraries, and 32 bits of it count.
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
    let magic = system.f_type as u32;
    if KERNELS.contains(&magic) {
        return Err(StorageError::refused("open", Rule::KernelFile));
    }
    Ok(())
}

/// File systems whose files the kernel makes up. From linux/magic.h, except where another is named.
const KERNELS: [u32; 14] = [
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

/// The bits that new files and directories have are an administrator's, and may not be special either:
/// they would be on whatever a client stores.
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
