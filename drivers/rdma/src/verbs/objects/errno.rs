//! Results of the libraries' functions.

use std::ffi::c_int;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};

use rustix::fs::OFlags;

/// Functions of libibverbs return an errno value, or -1 and set errno.
pub(in crate::verbs) fn check(code: c_int) -> io::Result<()> {
    match code {
        0 => Ok(()),
        1.. => Err(io::Error::from_raw_os_error(code)),
        _ => Err(io::Error::last_os_error()),
    }
}

pub(in crate::verbs) fn set_nonblocking(descriptor: BorrowedFd<'_>) -> io::Result<()> {
    let flags = rustix::fs::fcntl_getfl(descriptor.as_fd())?;
    Ok(rustix::fs::fcntl_setfl(
        descriptor,
        flags | OFlags::NONBLOCK,
    )?)
}
