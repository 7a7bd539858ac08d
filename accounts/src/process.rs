//! Processes: wrappers of system calls that have no safe interface.

use std::ffi::CString;
use std::io;
use std::os::fd::{AsRawFd as _, BorrowedFd, FromRawFd as _, OwnedFd, RawFd};
use std::os::unix::fs::FileExt as _;
use std::os::unix::process::CommandExt as _;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::Command;

use rustix::process::{Pid, PidfdFlags, pidfd_open};

/// Forks a process that runs `child` and ends. This process must have one thread: locks that other threads hold would never
/// be released in the child.
///
/// # Errors
///
/// When there is a second thread, or the process cannot be created.
pub fn fork(child: impl FnOnce()) -> io::Result<Pid> {
    check_only_thread()?;
    // SAFETY: there is no other thread, as was just checked, so the child has a consistent copy.
    match unsafe { libc::fork() } {
        0 => {
            // Unwinding would continue in the copy of the parent's stack frames.
            let status = match catch_unwind(AssertUnwindSafe(child)) {
                Ok(()) => 0,
                Err(_) => 101,
            };
            end(status)
        }
        pid => Pid::from_raw(pid).ok_or_else(io::Error::last_os_error),
    }
}

/// Ends this process with all its threads at once, also those that wait. Nothing is flushed or dropped.
pub fn end(status: i32) -> ! {
    // SAFETY: it accepts any status, and runs no exit handlers of the parent.
    unsafe { libc::_exit(status) }
}

/// Writes a line to standard error. A macro of std panics when nothing can be written there, on a full disk or to a closed pipe.
pub fn tell(line: std::fmt::Arguments<'_>) {
    // There is no other place for it.
    let _ = io::Write::write_fmt(&mut io::stderr(), format_args!("gridhaul-server: {line}\n"));
}

fn check_only_thread() -> io::Result<()> {
    if std::fs::read_dir("/proc/self/task")?.count() != 1 {
        return Err(io::Error::other(
            "it must be started before any other thread",
        ));
    }
    Ok(())
}

/// Removes variables from the environment, so that programs and modules of other authors do not see them. This process must
/// have one thread.
///
/// # Errors
///
/// When there is a second thread.
pub fn remove_variables(names: &[&str]) -> io::Result<()> {
    check_only_thread()?;
    for name in names {
        // SAFETY: there is no other thread that could read the environment, as was just checked.
        unsafe { std::env::remove_var(name) };
    }
    Ok(())
}

/// The number of the first descriptor that a program is started with beside the standard ones (SD_LISTEN_FDS_START of
/// sd_listen_fds(3)).
const FIRST_PASSED: RawFd = 3;

/// Takes the `count` descriptors that this program was started with beside the standard ones. Programs that this process
/// starts do not inherit them.
///
/// # Safety
///
/// Nothing else in this process may use or close descriptors with these numbers. So it must be called once, before the process
/// opens anything.
///
/// # Errors
///
/// When one of the numbers is no open descriptor.
pub unsafe fn take_passed(count: u16) -> io::Result<Vec<OwnedFd>> {
    let numbers = (FIRST_PASSED..).take(usize::from(count));
    let take = |number: RawFd| {
        // SAFETY: the call fails if the number is no descriptor, and changes nothing but a flag.
        if unsafe { libc::fcntl(number, libc::F_SETFD, libc::FD_CLOEXEC) } == -1 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: it is open, as was just checked, and the caller guarantees that nothing else owns it.
        Ok(unsafe { OwnedFd::from_raw_fd(number) })
    };
    numbers.map(take).collect()
}

/// Executes a program in place of this one. It gets `passed` as its descriptors from number 3 on, and handles signals as by
/// default. Returns only if that fails.
///
/// # Safety
///
/// Other descriptors of this process are replaced: after an error it must end, and use and close no descriptor except the
/// standard ones.
pub unsafe fn execute(command: &mut Command, passed: &[BorrowedFd<'_>]) -> io::Error {
    for signal in ENDING.into_iter().chain([libc::SIGCHLD]) {
        // SAFETY: the default action installs no handler.
        unsafe { libc::signal(signal, libc::SIG_DFL) };
    }
    // Above all numbers that are used below, so that none is replaced before it was copied.
    let above = FIRST_PASSED + RawFd::try_from(passed.len()).unwrap_or(RawFd::MAX);
    let copy = |descriptor: &BorrowedFd<'_>| {
        rustix::io::fcntl_dupfd_cloexec(descriptor, above).map_err(io::Error::from)
    };
    let copies: Vec<OwnedFd> = match passed.iter().map(copy).collect() {
        Ok(copies) => copies,
        Err(error) => return error,
    };
    for (number, copy) in (FIRST_PASSED..).zip(&copies) {
        // SAFETY: the caller guarantees that a descriptor that is replaced is not used any more.
        if unsafe { libc::dup2(copy.as_raw_fd(), number) } == -1 {
            return io::Error::last_os_error();
        }
    }
    command.exec()
}

/// Names this process for `ps`: the short name, of which 15 bytes are kept, and the command line, which is replaced by
/// `gridhaul-server: TITLE`. Must be called while the process may still open its own memory. Errors are harmless.
pub fn set_name(short: &str, title: &str) {
    /// TASK_COMM_LEN of the kernel.
    const LONGEST: usize = 15;

    let short = &short[..short.floor_char_boundary(LONGEST)];
    if let Ok(short) = CString::new(short) {
        let _ = rustix::thread::set_name(&short);
    }
    let _ = set_command_line(&format!("gridhaul-server: {title}"));
}

/// Overwrites the arguments in the memory of this process, which `/proc/PID/cmdline` shows. The command line of the server's
/// children would be that of the server.
fn set_command_line(line: &str) -> io::Result<()> {
    // proc_pid_stat(5): arg_start and arg_end. The name in parentheses may contain anything.
    let stat = std::fs::read_to_string("/proc/self/stat")?;
    let numbers = stat.rsplit(')').next().unwrap_or_default();
    let mut numbers = numbers.split_whitespace().skip(45);
    let mut next = || numbers.next()?.parse::<u64>().ok();
    let (Some(start), Some(end)) = (next(), next()) else {
        return Err(io::ErrorKind::InvalidData.into());
    };
    let room = usize::try_from(end.saturating_sub(start)).unwrap_or(0);
    // The last byte stays zero: otherwise the kernel takes the environment for a part of the line.
    let mut bytes = line.as_bytes().to_vec();
    bytes.truncate(room.saturating_sub(1));
    bytes.resize(room, 0);
    let memory = std::fs::OpenOptions::new()
        .write(true)
        .open("/proc/self/mem")?;
    memory.write_all_at(&bytes, start)
}

/// A descriptor that becomes readable when a child of this process ends.
///
/// # Errors
///
/// Before Linux 5.3, or when the limit of descriptors is reached.
pub fn watch(child: Pid) -> io::Result<OwnedFd> {
    // The pid is not reused before the child was waited for.
    Ok(pidfd_open(child, PidfdFlags::empty())?)
}

/// The signals that administrators send to the server, and that would end other processes.
const ENDING: [libc::c_int; 4] = [libc::SIGHUP, libc::SIGINT, libc::SIGTERM, libc::SIGUSR2];

/// Ignores SIGHUP, SIGINT, SIGTERM and SIGUSR2, also in children: signals to the service or terminal are for the server, which
/// finishes its transfers.
pub fn ignore_signals() {
    for signal in ENDING {
        ignore(signal);
    }
}

/// Ignores SIGCHLD, so that the kernel reaps child processes.
pub(crate) fn leave_children_to_the_kernel() {
    ignore(libc::SIGCHLD);
}

fn ignore(signal: libc::c_int) {
    // SAFETY: ignoring a signal installs no handler, and the signals of the callers can be ignored.
    unsafe { libc::signal(signal, libc::SIG_IGN) };
}

/// Makes programs that this process starts inherit standard input, output and error only.
///
/// # Errors
///
/// When `/proc` cannot be read, or a system call fails.
pub fn close_on_exec() -> io::Result<()> {
    for entry in std::fs::read_dir("/proc/self/fd")? {
        let name = entry?.file_name();
        let descriptor = name.to_str().and_then(|name| name.parse::<RawFd>().ok());
        let Some(descriptor) = descriptor.filter(|descriptor| *descriptor > libc::STDERR_FILENO)
        else {
            continue;
        };
        // SAFETY: the flag changes only which descriptors are inherited by other programs.
        if unsafe { libc::fcntl(descriptor, libc::F_SETFD, libc::FD_CLOEXEC) } == -1 {
            return Err(io::Error::last_os_error());
        }
    }
    Ok(())
}

/// Closes all descriptors except standard input, output and error, and `kept`.
///
/// # Errors
///
/// When `/proc` cannot be read.
///
/// # Safety
///
/// Other descriptors must not be used or closed after this.
pub unsafe fn close_all_but(kept: &[BorrowedFd<'_>]) -> io::Result<()> {
    let kept: Vec<RawFd> = kept.iter().map(|fd| fd.as_raw_fd()).collect();
    let mut open = Vec::new();
    for entry in std::fs::read_dir("/proc/self/fd")? {
        let name = entry?.file_name();
        open.extend(name.to_str().and_then(|name| name.parse::<RawFd>().ok()));
    }
    let standard = [libc::STDIN_FILENO, libc::STDOUT_FILENO, libc::STDERR_FILENO];
    for descriptor in open {
        if !kept.contains(&descriptor) && !standard.contains(&descriptor) {
            // SAFETY: the caller guarantees that the descriptors are not used. That of the directory is closed already, and
            // the error is ignored.
            unsafe { libc::close(descriptor) };
        }
    }
    Ok(())
}

/// The day on which an account expires, in days since 1970, from the shadow database. `None` if it has no entry or no date, or
/// if this process may not read it.
pub(crate) fn expiry_day(account: &str) -> Option<i64> {
    /// The maximum length of an entry, which is a line.
    const LONGEST: usize = 16 * 1024;

    let account = CString::new(account).ok()?;
    let mut buffer = vec![0; LONGEST];
    // SAFETY: the structure consists of integers and pointers, for which zero is valid.
    let mut entry: libc::spwd = unsafe { std::mem::zeroed() };
    let mut found = std::ptr::null_mut();
    // SAFETY: the name has a terminating zero, the length is that of the buffer, and all arguments outlive the call.
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
    // shadow(5): an empty field is returned as -1.
    known.then_some(entry.sp_expire).filter(|&day| day >= 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_with_threads_is_not_copied() {
        // The main thread of the test runner is a second thread.
        let error = fork(|| unreachable!("no child")).expect_err("two threads");
        assert!(error.to_string().contains("thread"), "{error}");
    }

    #[test]
    fn unknown_accounts_do_not_expire() {
        assert_eq!(expiry_day("no such account"), None);
        assert_eq!(expiry_day("a\0b"), None);
    }
}
