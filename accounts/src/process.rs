//! Processes: the few system calls of this crate that have no safe name.

use std::ffi::CString;
use std::io;
use std::os::fd::{AsRawFd as _, BorrowedFd, OwnedFd, RawFd};
use std::panic::{AssertUnwindSafe, catch_unwind};

use rustix::process::{Pid, PidfdFlags, pidfd_open};

/// Starts a process that runs `child` and ends. It must be called while this process has one thread: a
/// copy of any other would miss the threads that hold its locks.
///
/// # Errors
///
/// When there is a second thread, or no process is left.
pub fn fork(child: impl FnOnce()) -> io::Result<Pid> {
    if std::fs::read_dir("/proc/self/task")?.count() != 1 {
        return Err(io::Error::other(
            "it must be started before any other thread",
        ));
    }
    // SAFETY: there is no other thread, as was just seen, so the copy is whole.
    match unsafe { libc::fork() } {
        0 => {
            // Unwinding would return into the copy of what the parent was doing.
            let status = match catch_unwind(AssertUnwindSafe(child)) {
                Ok(()) => 0,
                Err(_) => 101,
            };
            // SAFETY: it takes any number. Nothing of the parent's is flushed or removed.
            unsafe { libc::_exit(status) }
        }
        pid => Pid::from_raw(pid).ok_or_else(io::Error::last_os_error),
    }
}

/// A child of this process, as a descriptor that is readable when the child has ended.
///
/// # Errors
///
/// When the kernel has none (before Linux 5.3), or no descriptor is left.
pub fn watch(child: Pid) -> io::Result<OwnedFd> {
    // The number stays the child's own until it has been waited for.
    Ok(pidfd_open(child, PidfdFlags::empty())?)
}

/// Takes no word but SIGKILL: signals to the whole service or terminal are for the server, which has
/// transfers to finish. Children do the same.
pub fn ignore_signals() {
    for signal in [libc::SIGHUP, libc::SIGINT, libc::SIGTERM] {
        ignore(signal);
    }
}

/// Leaves nothing of child processes that end, so that this process need not wait for them.
pub(crate) fn leave_children_to_the_kernel() {
    ignore(libc::SIGCHLD);
}

fn ignore(signal: libc::c_int) {
    // SAFETY: ignoring a signal runs no code of ours, and those of the callers can be ignored.
    unsafe { libc::signal(signal, libc::SIG_IGN) };
}

/// Closes every descriptor but standard input, output and error, and `kept`.
///
/// # Safety
///
/// No other descriptor may be used, or closed, after this.
pub(crate) unsafe fn close_all_but(kept: BorrowedFd<'_>) -> io::Result<()> {
    let mut open = Vec::new();
    for entry in std::fs::read_dir("/proc/self/fd")? {
        let name = entry?.file_name();
        open.extend(name.to_str().and_then(|name| name.parse::<RawFd>().ok()));
    }
    let standard = [libc::STDIN_FILENO, libc::STDOUT_FILENO, libc::STDERR_FILENO];
    for descriptor in open {
        if descriptor != kept.as_raw_fd() && !standard.contains(&descriptor) {
            // SAFETY: the caller vouches for what is closed; the one that read the directory is closed
            // already, which is not an error that matters.
            unsafe { libc::close(descriptor) };
        }
    }
    Ok(())
}

/// The day on which an account expires, in days since 1970, as the machine's shadow database says.
/// `None` where it does not say. Needs root's rights.
pub(crate) fn expiry_day(account: &str) -> Option<i64> {
    /// An entry is a line; longer ones are not expected.
    const LONGEST: usize = 16 * 1024;

    let account = CString::new(account).ok()?;
    let mut buffer = vec![0; LONGEST];
    // SAFETY: the structure is numbers and pointers, for which zero is a value.
    let mut entry: libc::spwd = unsafe { std::mem::zeroed() };
    let mut found = std::ptr::null_mut();
    // SAFETY: the name ends with a zero, the buffer is as long as said, and all outlive the call.
    let failed = unsafe {
        libc::getspnam_r(
            account.as_ptr(),
            &raw mut entry,
            buffer.as_mut_ptr(),
            buffer.len(),
            &raw mut found,
        )
    };
    let known = failed == 0 && !found.is_null();
    // shadow(5): an empty field, which is read as -1, is no date.
    known.then_some(entry.sp_expire).filter(|&day| day >= 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_with_threads_is_not_copied() {
        // The test runner's own thread is one already.
        let error = fork(|| unreachable!("no child")).expect_err("two threads");
        assert!(error.to_string().contains("thread"), "{error}");
    }

    #[test]
    fn accounts_that_nobody_knows_do_not_expire() {
        assert_eq!(expiry_day("no such account"), None);
        assert_eq!(expiry_day("a\0b"), None);
    }
}
