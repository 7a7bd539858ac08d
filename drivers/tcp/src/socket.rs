//! Socket calls that `rustix` does not have.

use std::io;
use std::mem::zeroed;
use std::os::fd::{AsRawFd, BorrowedFd};

use libc::c_int;
use rustix::io::Errno;

/// Limits the send rate, in bytes per second (`SO_MAX_PACING_RATE`, socket(7)). TCP does the pacing since Linux 4.13, so the
/// `fq` queueing discipline is not needed.
pub(crate) fn set_max_pacing_rate(socket: BorrowedFd<'_>, rate: u64) -> io::Result<()> {
    let rate = libc::c_ulong::try_from(rate).unwrap_or(libc::c_ulong::MAX);
    set_option(socket, libc::SO_MAX_PACING_RATE, &rate)
}

/// Enables sends without a copy on a TCP socket (`SO_ZEROCOPY`, Documentation/networking/msg_zerocopy.rst of Linux). The memory
/// of a call with `MSG_ZEROCOPY` must not change until [`crate::TcpChannel::next_zerocopy_completion`] returns the call.
///
/// # Errors
///
/// The kernel's error if it does not support that.
pub fn enable_zerocopy(socket: BorrowedFd<'_>) -> io::Result<()> {
    // asm-generic/socket.h; libc leaves it out.
    const SO_ZEROCOPY: c_int = 60;
    set_option(socket, SO_ZEROCOPY, &1_i32)
}

fn set_option<T>(socket: BorrowedFd<'_>, name: c_int, number: &T) -> io::Result<()> {
    let size = libc::socklen_t::try_from(size_of::<T>()).expect("an integer is small");
    // SAFETY: the kernel reads `size` bytes from the pointer, which are those of `number`, and keeps no reference to them;
    // the descriptor is open while it is borrowed.
    let status = unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            name,
            std::ptr::from_ref(number).cast(),
            size,
        )
    };
    match status {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Calls with `MSG_ZEROCOPY` whose memory the kernel has released.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ZeroCopyCompletion {
    /// The number of the first call. The kernel numbers the calls of a socket from 0.
    pub first: u32,
    /// The number of the last call.
    pub last: u32,
    /// The kernel made a copy nevertheless.
    pub was_copied: bool,
}

/// A message of the error queue, with space for an address.
#[repr(C)]
struct ErrorMessage {
    header: libc::cmsghdr,
    error: libc::sock_extended_err,
    address: [u8; 32],
}

/// The next completion in the error queue, if there is one.
pub(crate) fn next_zerocopy_completion(socket: BorrowedFd<'_>) -> Option<ZeroCopyCompletion> {
    // linux/errqueue.h; libc leaves them out.
    const SO_EE_ORIGIN_ZEROCOPY: u8 = 5;
    const SO_EE_CODE_ZEROCOPY_COPIED: u8 = 1;
    loop {
        // SAFETY: both consist of integers and pointers, for which zero is valid.
        let (mut error_message, mut message): (ErrorMessage, libc::msghdr) = unsafe { zeroed() };
        message.msg_control = (&raw mut error_message).cast();
        message.msg_controllen = size_of::<ErrorMessage>();
        let flags = libc::MSG_ERRQUEUE | libc::MSG_DONTWAIT;
        // SAFETY: the kernel writes only to `error_message`, within its size, and any bytes are valid there; the descriptor is
        // open while it is borrowed.
        let status = unsafe { libc::recvmsg(socket.as_raw_fd(), &raw mut message, flags) };
        if status < 0 {
            return None;
        }
        let ErrorMessage { header, error, .. } = error_message;
        // The level depends on the socket's address family.
        let is_error = [
            (libc::SOL_IP, libc::IP_RECVERR),
            (libc::SOL_IPV6, libc::IPV6_RECVERR),
        ]
        .contains(&(header.cmsg_level, header.cmsg_type));
        if is_error && error.ee_origin == SO_EE_ORIGIN_ZEROCOPY {
            return Some(ZeroCopyCompletion {
                first: error.ee_info,
                last: error.ee_data,
                was_copied: error.ee_code & SO_EE_CODE_ZEROCOPY_COPIED != 0,
            });
        }
    }
}

/// Bytes that were sent and not acknowledged by the peer's host (`SIOCOUTQ`, tcp(7)). The kernel keeps the number when the
/// peer resets the connection, though it drops the bytes.
pub(crate) fn unacknowledged_bytes(socket: BorrowedFd<'_>) -> Result<u64, Errno> {
    let mut bytes: c_int = 0;
    // SAFETY: the kernel writes one integer to `bytes`; the descriptor is open while it is borrowed.
    let status = unsafe { libc::ioctl(socket.as_raw_fd(), libc::TIOCOUTQ, &raw mut bytes) };
    match (status, u64::try_from(bytes)) {
        (0, Ok(bytes)) => Ok(bytes),
        (0, Err(_)) => Err(Errno::INVAL),
        _ => Err(Errno::from_io_error(&io::Error::last_os_error()).unwrap_or(Errno::IO)),
    }
}

/// The bytes of `struct tcp_info` (linux/tcp.h) up to the times of Linux 4.10.
pub(crate) const TCP_INFO_BYTES: usize = 192;

/// The state of a connection as the kernel writes it, and how many bytes it has written.
pub(crate) fn tcp_info(socket: BorrowedFd<'_>) -> Result<([u8; TCP_INFO_BYTES], usize), Errno> {
    let mut info = [0_u8; TCP_INFO_BYTES];
    let mut length = libc::socklen_t::try_from(info.len()).expect("a short structure");
    // SAFETY: the kernel writes at most `length` bytes, which are those of `info`; the descriptor is open while it is
    // borrowed.
    let status = unsafe {
        libc::getsockopt(
            socket.as_raw_fd(),
            libc::IPPROTO_TCP,
            libc::TCP_INFO,
            info.as_mut_ptr().cast(),
            &raw mut length,
        )
    };
    match (status, usize::try_from(length)) {
        (0, Ok(length)) => Ok((info, length)),
        _ => Err(Errno::from_io_error(&io::Error::last_os_error()).unwrap_or(Errno::IO)),
    }
}

/// Whether the socket has an upper-layer protocol in the kernel (`TCP_ULP` of linux/tcp.h): TLS.
pub(crate) fn has_upper_layer_protocol(socket: BorrowedFd<'_>) -> bool {
    let mut name = [0_u8; 16];
    let mut length = libc::socklen_t::try_from(name.len()).expect("a name is short");
    // SAFETY: the kernel writes at most `length` bytes, which are those of `name`; the descriptor is open while it is
    // borrowed.
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
