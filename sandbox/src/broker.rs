//! The process that opens the files of one account, beneath one root.
//!
//! The account's own rights are the first fence, and `openat2` beneath the root is the second. What is
//! here holds if the broker's own code is made to do something else: the kernel opens nothing outside the
//! root (Landlock), and does nothing but what files need (seccomp). There is no way to a network or to
//! another process.

use std::os::fd::OwnedFd;

use crate::SandboxError;
use crate::calls::{Argument, Call, Filter, Group};
use crate::files::{self, Access};
use crate::groups::{MEMORY, THREADS};
use Call::{Any, If};

/// Leaves this thread, and those that it starts, the files beneath `root` as far as the kernel can: not
/// at all before Linux 5.19, where Landlock would forbid every rename between directories.
///
/// # Errors
///
/// When the kernel refuses.
pub fn to_directory(root: OwnedFd, read_only: bool) -> Result<(), SandboxError> {
    let access = if read_only {
        Access::Read
    } else {
        Access::Write
    };
    files::keep_beneath(root, access).map(drop)
}

/// The calls that files need. A broker starts its threads before it is confined to these.
///
/// # Errors
///
/// When this processor is not known.
pub fn filter(read_only: bool) -> Result<Filter, SandboxError> {
    let groups = [MEMORY, THREADS, ANSWERS, LOOKING, CHANGING];
    let count = if read_only { 4 } else { 5 };
    Filter::allow(&groups[..count])
}

/// Requests and answers. There is no way to another socket.
const ANSWERS: Group = &[
    Any(libc::SYS_recvmsg),
    Any(libc::SYS_sendmsg),
    // Whether a removal of a tree is cancelled.
    Any(libc::SYS_recvfrom),
    // The words of a panic, on standard error.
    If(libc::SYS_write, &[&[Argument::is(0, STANDARD_ERROR)]]),
    // std asks whether descriptors are still open in debug builds; nothing else is done with fcntl.
    If(libc::SYS_fcntl, &[&[Argument::is(1, GET_FLAGS)]]),
];

const STANDARD_ERROR: u64 = 2;
const GET_FLAGS: u64 = 1;

/// Files are opened, and facts, listings and checksums read.
const LOOKING: Group = &[
    // Every path: `openat2` beneath the root.
    Any(libc::SYS_openat2),
    Any(libc::SYS_close),
    // Sizes and kinds of opened files.
    Any(libc::SYS_fstat),
    Any(libc::SYS_newfstatat),
    // Whether a file is one of the kernel's own file systems.
    Any(libc::SYS_fstatfs),
    // Facts and listings.
    Any(libc::SYS_statx),
    Any(libc::SYS_readlinkat),
    Any(libc::SYS_getdents64),
    Any(libc::SYS_faccessat),
    Any(libc::SYS_faccessat2),
    // The checksums that files carry.
    Any(libc::SYS_getxattr),
    // A large file is read from one end to the other.
    Any(libc::SYS_fadvise64),
];

/// What changes files, and not those of a read-only root.
const CHANGING: Group = &[
    // Removal of trees, which goes by names in held directories.
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
];
