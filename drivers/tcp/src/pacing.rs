//! The one socket option that `rustix` does not have.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};

/// Limits how fast the kernel sends, in bytes per second (`SO_MAX_PACING_RATE`, socket(7)). TCP paces
/// by itself since Linux 4.13; the `fq` queueing discipline is not needed.
pub(crate) fn set_max_pacing_rate(socket: BorrowedFd<'_>, rate: u64) -> io::Result<()> {
    let rate = libc::c_ulong::try_from(rate).unwrap_or(libc::c_ulong::MAX);
    let size = libc::socklen_t::try_from(size_of_val(&rate)).expect("an integer is small");
    // SAFETY: the kernel reads `size` bytes from the pointer, which are those of `rate`, and keeps
    // neither; the descriptor is open for as long as it is borrowed.
    let status = unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_MAX_PACING_RATE,
            std::ptr::from_ref(&rate).cast(),
            size,
        )
    };
    match status {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}
