//! The process that starts the next version of the server.
//!
//! Everything that confines it also confines the program that it executes, with all its processes. So the filter denies only
//! calls that no process of the server makes, and capabilities, user and files are as at the start. A version that needs a
//! denied call has to be started by a restart.

use crate::calls::{Call, Filter, Group};
use crate::error::SandboxError;
use crate::kernel::has_seccomp_filters;
use crate::monitor::{INPUT, KERNEL, MACHINE, NAMESPACES, PROCESSES};
use crate::privileges::give_up_new_rights;
use Call::Any;

/// Confines this process, and the programs that it executes. If it `inherits` the filter, because a launcher has started the
/// program, there is no second one: the kernel would apply each of them to every call.
///
/// # Errors
///
/// When a system call fails. A kernel without seccomp filters is not an error; see [`crate::has_seccomp_filters`].
pub fn confine(inherits: bool) -> Result<(), SandboxError> {
    give_up_new_rights()?;
    match has_seccomp_filters() && !inherits {
        true => filter()?.enforce(),
        false => Ok(()),
    }
}

/// All system calls except those that no process of the server makes.
///
/// # Errors
///
/// When this processor is not supported.
pub fn filter() -> Result<Filter, SandboxError> {
    Filter::deny(&[PROCESSES, NAMESPACES, KERNEL, MACHINE, BYPASSES, INPUT])
}

/// As for the monitor, without io_uring, which the server may be configured to use.
const BYPASSES: Group = &[
    Any(libc::SYS_open_by_handle_at),
    Any(libc::SYS_personality),
    Any(libc::SYS_add_key),
    Any(libc::SYS_request_key),
    Any(libc::SYS_keyctl),
];
