//! Calls that open, read, move and change files.

use libc::{
    SYS_copy_file_range, SYS_faccessat, SYS_faccessat2, SYS_fadvise64, SYS_fallocate, SYS_fchmod,
    SYS_fchmodat, SYS_fchmodat2, SYS_fchown, SYS_fchownat, SYS_fcntl, SYS_fdatasync, SYS_fgetxattr,
    SYS_flock, SYS_fremovexattr, SYS_fsetxattr, SYS_fstat, SYS_fstatfs, SYS_fsync, SYS_ftruncate,
    SYS_getdents64, SYS_getxattr, SYS_linkat, SYS_lseek, SYS_mincore, SYS_mkdirat, SYS_newfstatat,
    SYS_openat, SYS_openat2, SYS_pread64, SYS_preadv, SYS_preadv2, SYS_pwrite64, SYS_pwritev,
    SYS_pwritev2, SYS_readahead, SYS_readlinkat, SYS_removexattr, SYS_renameat2, SYS_sendfile,
    SYS_setxattr, SYS_splice, SYS_statfs, SYS_statx, SYS_symlinkat, SYS_sync_file_range, SYS_umask,
    SYS_unlinkat, SYS_utimensat,
};

use crate::calls::{Call, Group};
use crate::groups::descriptors::command;
use Call::{Any, If};

/// Opening and reading files.
pub(crate) const READING: Group = &[
    Any(SYS_openat),
    Any(SYS_openat2),
    Any(SYS_fstat),
    Any(SYS_newfstatat),
    Any(SYS_statx),
    Any(SYS_statfs),
    Any(SYS_fstatfs),
    Any(SYS_faccessat),
    Any(SYS_faccessat2),
    Any(SYS_readlinkat),
    Any(SYS_getdents64),
    Any(SYS_lseek),
    Any(SYS_pread64),
    Any(SYS_preadv),
    Any(SYS_preadv2),
    Any(SYS_fadvise64),
    Any(SYS_flock),
    #[cfg(target_arch = "x86_64")]
    Any(libc::SYS_open),
    #[cfg(target_arch = "x86_64")]
    Any(libc::SYS_stat),
    #[cfg(target_arch = "x86_64")]
    Any(libc::SYS_lstat),
    #[cfg(target_arch = "x86_64")]
    Any(libc::SYS_access),
    #[cfg(target_arch = "x86_64")]
    Any(libc::SYS_readlink),
];

/// Moving data between files and sockets, in the kernel and through memory.
pub(crate) const MOVING: Group = &[
    Any(SYS_sendfile),
    Any(SYS_splice),
    Any(SYS_copy_file_range),
    Any(SYS_pwrite64),
    Any(SYS_pwritev),
    Any(SYS_pwritev2),
    Any(SYS_readahead),
    Any(SYS_mincore),
    Any(SYS_fallocate),
    Any(SYS_ftruncate),
    Any(SYS_fsync),
    Any(SYS_fdatasync),
    Any(SYS_sync_file_range),
    // The capacity of a pipe.
    If(
        SYS_fcntl,
        &[
            &[command(libc::F_SETPIPE_SZ)],
            &[command(libc::F_GETPIPE_SZ)],
        ],
    ),
];

/// Changes to directories and to attributes of files. Devices, sockets and pipes cannot be created.
pub(crate) const CHANGING: Group = &[
    Any(SYS_unlinkat),
    Any(SYS_mkdirat),
    #[cfg(not(target_arch = "riscv64"))]
    Any(libc::SYS_renameat),
    Any(SYS_renameat2),
    Any(SYS_symlinkat),
    Any(SYS_linkat),
    Any(SYS_fchmod),
    Any(SYS_fchmodat),
    Any(SYS_fchmodat2),
    Any(SYS_fchown),
    Any(SYS_fchownat),
    Any(SYS_utimensat),
    Any(SYS_umask),
    #[cfg(target_arch = "x86_64")]
    Any(libc::SYS_unlink),
    #[cfg(target_arch = "x86_64")]
    Any(libc::SYS_rmdir),
    #[cfg(target_arch = "x86_64")]
    Any(libc::SYS_mkdir),
    #[cfg(target_arch = "x86_64")]
    Any(libc::SYS_rename),
    #[cfg(target_arch = "x86_64")]
    Any(libc::SYS_symlink),
    #[cfg(target_arch = "x86_64")]
    Any(libc::SYS_link),
    #[cfg(target_arch = "x86_64")]
    Any(libc::SYS_chmod),
];

/// Extended attributes, which hold the checksums of their files.
pub(crate) const ATTRIBUTES: Group = &[
    Any(SYS_getxattr),
    Any(SYS_fgetxattr),
    Any(SYS_setxattr),
    Any(SYS_fsetxattr),
    Any(SYS_removexattr),
    Any(SYS_fremovexattr),
];
