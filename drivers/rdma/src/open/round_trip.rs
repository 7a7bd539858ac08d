//! The round trip time to the peer, as TCP has measured it on the data connection.

use std::mem::{MaybeUninit, size_of};
use std::os::fd::{AsRawFd, OwnedFd};
use std::time::Duration;

/// The round trip time of a connection; zero while TCP has not measured it.
pub(crate) fn round_trip(socket: &OwnedFd) -> Duration {
    let mut info = MaybeUninit::<libc::tcp_info>::zeroed();
    let mut length = libc::socklen_t::try_from(size_of::<libc::tcp_info>())
        .expect("a structure of some hundred bytes");
    // SAFETY: the kernel writes at most `length` bytes, which is the size of the buffer.
    let code = unsafe {
        libc::getsockopt(
            socket.as_raw_fd(),
            libc::IPPROTO_TCP,
            libc::TCP_INFO,
            info.as_mut_ptr().cast(),
            &raw mut length,
        )
    };
    if code != 0 {
        return Duration::ZERO;
    }
    // SAFETY: all fields are integers and were initialised with zeros.
    let info = unsafe { info.assume_init() };
    Duration::from_micros(u64::from(info.tcpi_rtt))
}
