//! Socket options that `rustix` does not have.

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

/// Whether the kernel does a protocol above TCP on the socket (`TCP_ULP` of linux/tcp.h): TLS.
pub(crate) fn has_protocol_above(socket: BorrowedFd<'_>) -> bool {
    let mut name = [0_u8; 16];
    let mut length = libc::socklen_t::try_from(name.len()).expect("a name is short");
    // SAFETY: the kernel writes at most `length` bytes, which are those of `name`; the descriptor is open for as long as
    // it is borrowed.
    let status = unsafe {
        libc::getsockopt(
            socket.as_raw_fd(),
            libc::SOL_TCP,
            libc::TCP_ULP,
            name.as_mut_ptr().cast(),
            &raw mut length,
        )
    };
    status == 0 && length > 0
}
