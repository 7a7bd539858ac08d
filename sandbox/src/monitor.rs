//! The process that keeps root's rights, to start brokers.
//!
//! Its children look accounts up and may ask PAM, which is foreign code with needs that cannot be listed (name
//! services of every kind, helper programs of PAM), before they confine themselves further. So its filter names what
//! none of them does, and there is no Landlock: a child opens any directory that an account may have, and a domain
//! could never be left again.

use crate::calls::{Argument, Call, Filter, Group};
use crate::{SandboxError, give_up_new_rights};
use Call::{Any, If};

/// Confines this process and its children.
///
/// `executes` is whether a child may execute programs, as some PAM modules do (`unix_chkpwd`).
///
/// # Errors
///
/// When the kernel refuses. One without filters is no error; see [`crate::has_seccomp_filters`].
pub fn confine(executes: bool) -> Result<(), SandboxError> {
    give_up_new_rights()?;
    match crate::has_seccomp_filters() {
        true => filter(executes)?.enforce(),
        false => Ok(()),
    }
}

/// All calls but those that none of its work needs.
///
/// # Errors
///
/// When this processor is not known.
pub fn filter(executes: bool) -> Result<Filter, SandboxError> {
    let groups = [PROCESSES, NAMESPACES, KERNEL, MACHINE, AROUND, PROGRAMS];
    let count = if executes { 5 } else { 6 };
    Filter::deny(&groups[..count])
}

/// Looking into other processes, and taking their descriptors.
const PROCESSES: Group = &[
    Any(libc::SYS_ptrace),
    Any(libc::SYS_process_vm_readv),
    Any(libc::SYS_process_vm_writev),
    Any(libc::SYS_process_madvise),
    Any(libc::SYS_pidfd_getfd),
    Any(libc::SYS_kcmp),
];

/// Other roots, mounts and namespaces.
const NAMESPACES: Group = &[
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

/// Code in the kernel, and a look at it.
const KERNEL: Group = &[
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

/// Clocks, names, swap, accounting and the power of the machine; input and output ports.
const MACHINE: Group = &[
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

/// Ways around the rules: files by numbers in place of paths, calls that a filter does not see, other
/// personalities, another owner's keys, terminals that are typed into.
const AROUND: Group = &[
    Any(libc::SYS_open_by_handle_at),
    Any(libc::SYS_io_uring_setup),
    Any(libc::SYS_io_uring_enter),
    Any(libc::SYS_io_uring_register),
    Any(libc::SYS_personality),
    Any(libc::SYS_add_key),
    Any(libc::SYS_request_key),
    Any(libc::SYS_keyctl),
    If(
        libc::SYS_ioctl,
        &[
            &[Argument::is(1, libc::TIOCSTI)],
            &[Argument::is(1, libc::TIOCLINUX)],
        ],
    ),
];

/// Other programs.
const PROGRAMS: Group = &[Any(libc::SYS_execve), Any(libc::SYS_execveat)];
