//! The process that opens the files of one account, beneath one root.
//!
//! The account's permissions are the first barrier, and `openat2` with `RESOLVE_IN_ROOT` is the second. This module is
//! the third, in case an attacker controls the broker: the kernel opens no file outside of the root (Landlock), and
//! permits only system calls that file access needs (seccomp). Networks and other processes are out of reach.

use std::os::fd::OwnedFd;

use crate::calls::{Argument, Call, Filter, Group};
use crate::error::SandboxError;
use crate::files;
use crate::groups::{MEMORY, THREADS};
use crate::place::Access;
use Call::{Any, If};

/// Confines this thread, and those that it starts, to the files beneath `root`. Has no effect before Linux 5.19, where
/// Landlock would forbid every rename between directories.
///
/// # Errors
///
/// When a system call fails.
pub fn to_directory(root: OwnedFd, read_only: bool) -> Result<(), SandboxError> {
    let access = if read_only {
        Access::Read
    } else {
        Access::Write
    };
    files::keep_beneath(root, access).map(drop)
}

/// The system calls that file access needs. A broker starts its threads before it installs this filter.
///
/// # Errors
///
/// When this processor is not supported.
pub fn filter(read_only: bool) -> Result<Filter, SandboxError> {
    let groups = [MEMORY, THREADS, ANSWERS, READING, CHANGING];
    let count = if read_only { 4 } else { 5 };
    Filter::allow(&groups[..count])
}

/// Requests and answers. No other socket can be opened.
const ANSWERS: Group = &[
    Any(libc::SYS_recvmsg),
    Any(libc::SYS_sendmsg),
    // Polls whether the removal of a tree is cancelled.
    Any(libc::SYS_recvfrom),
    // The message of a panic, on standard error.
    If(libc::SYS_write, &[&[Argument::is(0, STANDARD_ERROR)]]),
    // In debug builds std checks whether descriptors are open. No other command is used.
    If(libc::SYS_fcntl, &[&[Argument::is(1, GET_FLAGS)]]),
];

const STANDARD_ERROR: u64 = 2;
const GET_FLAGS: u64 = 1;

/// Opening files, and reading their attributes, listings and checksums.
const READING: Group = &[
    // Every path is resolved by `openat2`, beneath the root.
    Any(libc::SYS_openat2),
    Any(libc::SYS_close),
    // Sizes and kinds of opened files.
    Any(libc::SYS_fstat),
    Any(libc::SYS_newfstatat),
    // Detects pseudo file systems such as /proc.
    Any(libc::SYS_fstatfs),
    // Facts and listings.
    Any(libc::SYS_statx),
    Any(libc::SYS_readlinkat),
    Any(libc::SYS_getdents64),
    Any(libc::SYS_faccessat),
    Any(libc::SYS_faccessat2),
    // Checksums in extended attributes.
    Any(libc::SYS_getxattr),
    // Announces sequential reading of a large file.
    Any(libc::SYS_fadvise64),
];

/// Changes to files. Not permitted for a read-only root.
const CHANGING: Group = &[
    // Removal of trees, which opens names relative to directories.
    Any(libc::SYS_openat),
    Any(libc::SYS_unlinkat),
    Any(libc::SYS_mkdirat),
    #[cfg(not(target_arch = "riscv64"))]
    Any(libc::SYS_renameat),
    Any(libc::SYS_renameat2),
    Any(libc::SYS_symlinkat),
    Any(libc::SYS_fchmodat),
    Any(libc::SYS_fchownat),
    Any(libc::SYS_utimensat),
    Any(libc::SYS_ftruncate),
    Any(libc::SYS_setxattr),
    Any(libc::SYS_removexattr),
    // The owner of an unfinished upload, and the name of a complete one on the disk.
    Any(libc::SYS_geteuid),
    Any(libc::SYS_fsync),
];
