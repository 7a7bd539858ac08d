//! The process that keeps root's privileges, to start brokers.
//!
//! Its children look accounts up and may call PAM before they confine themselves further. Name service and PAM modules
//! are foreign code whose system calls cannot be listed, so the filter denies the calls that none of them needs. Landlock
//! is not used: a child opens any directory that an account may have, and a Landlock domain cannot be left.

use crate::calls::{Argument, Call, Filter, Group};
use crate::error::SandboxError;
use crate::kernel::has_seccomp_filters;
use crate::privileges::give_up_new_rights;
use Call::{Any, If};

/// Confines this process and its children.
///
/// With `executes` a child may execute programs, which some PAM modules do (`unix_chkpwd`).
///
/// # Errors
///
/// When a system call fails. A kernel without seccomp filters is not an error; see [`crate::has_seccomp_filters`].
pub fn confine(executes: bool) -> Result<(), SandboxError> {
    give_up_new_rights()?;
    match has_seccomp_filters() {
        true => filter(executes)?.enforce(),
        false => Ok(()),
    }
}

/// All system calls except those that neither the monitor nor its children need.
///
/// # Errors
///
/// When this processor is not supported.
pub fn filter(executes: bool) -> Result<Filter, SandboxError> {
    let groups = [
        PROCESSES, NAMESPACES, KERNEL, MACHINE, BYPASSES, INPUT, PROGRAMS,
    ];
    let count = if executes { 6 } else { 7 };
    Filter::deny(&groups[..count])
}

/// Access to the memory and descriptors of other processes.
pub(crate) const PROCESSES: Group = &[
    Any(libc::SYS_ptrace),
    Any(libc::SYS_process_vm_readv),
    Any(libc::SYS_process_vm_writev),
    Any(libc::SYS_process_madvise),
    Any(libc::SYS_pidfd_getfd),
    Any(libc::SYS_kcmp),
];

/// Changes of the root, mounts and namespaces.
pub(crate) const NAMESPACES: Group = &[
    Any(libc::SYS_mount),
    Any(libc::SYS_umount2),
    Any(libc::SYS_pivot_root),
    Any(libc::SYS_chroot),
    Any(libc::SYS_setns),
    Any(libc::SYS_unshare),
    Any(libc::SYS_open_tree),
    Any(libc::SYS_move_mount),
    Any(libc::SYS_fsopen),
    Any(libc::SYS_fsconfig),
    Any(libc::SYS_fsmount),
    Any(libc::SYS_fspick),
    Any(libc::SYS_mount_setattr),
    Any(OPEN_TREE_ATTR),
];

/// `open_tree_attr` of Linux 6.15.
const OPEN_TREE_ATTR: libc::c_long = 467;

/// Loading code into the kernel, and tracing it.
pub(crate) const KERNEL: Group = &[
    Any(libc::SYS_init_module),
    Any(libc::SYS_finit_module),
    Any(libc::SYS_delete_module),
    Any(libc::SYS_kexec_load),
    #[cfg(not(target_arch = "riscv64"))]
    Any(libc::SYS_kexec_file_load),
    Any(libc::SYS_bpf),
    Any(libc::SYS_perf_event_open),
    Any(libc::SYS_userfaultfd),
    Any(libc::SYS_syslog),
];

/// Administration of the machine: clock, names, swap, accounting, power, I/O ports.
pub(crate) const MACHINE: Group = &[
    Any(libc::SYS_reboot),
    Any(libc::SYS_swapon),
    Any(libc::SYS_swapoff),
    Any(libc::SYS_acct),
    Any(libc::SYS_quotactl),
    Any(libc::SYS_quotactl_fd),
    Any(libc::SYS_sethostname),
    Any(libc::SYS_setdomainname),
    Any(libc::SYS_settimeofday),
    Any(libc::SYS_clock_settime),
    Any(libc::SYS_adjtimex),
    Any(libc::SYS_clock_adjtime),
    Any(libc::SYS_vhangup),
    #[cfg(target_arch = "x86_64")]
    Any(libc::SYS_iopl),
    #[cfg(target_arch = "x86_64")]
    Any(libc::SYS_ioperm),
    #[cfg(target_arch = "x86_64")]
    Any(libc::SYS_modify_ldt),
];

/// Ways around the confinement: opening files by handle, operations that a filter does not see (io_uring), execution
/// domains, kernel keyrings.
const BYPASSES: Group = &[
    Any(libc::SYS_open_by_handle_at),
    Any(libc::SYS_io_uring_setup),
    Any(libc::SYS_io_uring_enter),
    Any(libc::SYS_io_uring_register),
    Any(libc::SYS_personality),
    Any(libc::SYS_add_key),
    Any(libc::SYS_request_key),
    Any(libc::SYS_keyctl),
];

/// Inserting input into terminals.
pub(crate) const INPUT: Group = &[If(
    libc::SYS_ioctl,
    &[
        &[Argument::is(1, libc::TIOCSTI)],
        &[Argument::is(1, libc::TIOCLINUX)],
    ],
)];

/// Executing programs.
const PROGRAMS: Group = &[Any(libc::SYS_execve), Any(libc::SYS_execveat)];
