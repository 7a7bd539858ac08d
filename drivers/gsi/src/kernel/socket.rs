//! The system calls of kernel TLS (Documentation/networking/tls.rst of Linux), which `rustix` does not have.

use std::io;
use std::mem::{offset_of, zeroed};
use std::os::fd::{AsRawFd, BorrowedFd};

use gridhaul_security::tls::{Direction, RecordCipher, RecordKeys, RecordVersion};
use libc::{c_int, c_void, socklen_t};
use rustix::io::Errno;
use zeroize::Zeroize;

/// Type of the records that carry data (RFC 8446 5.1).
pub(crate) const APPLICATION_DATA: u8 = 23;

// linux/tls.h; the level is in linux/socket.h.
const SOL_TLS: c_int = 282;
const TLS_TX: c_int = 1;
const TLS_RX: c_int = 2;
const TLS_SET_RECORD_TYPE: c_int = 1;
const TLS_GET_RECORD_TYPE: c_int = 2;

/// `struct tls12_crypto_info_aes_gcm_128` and `_256` of linux/tls.h, which differ only in the length of the key.
#[repr(C)]
struct CryptoInfo<const KEY: usize> {
    version: u16,
    cipher: u16,
    iv: [u8; 8],
    key: [u8; KEY],
    salt: [u8; 4],
    record_number: [u8; 8],
}

impl<const KEY: usize> CryptoInfo<KEY> {
    fn new(cipher: u16, keys: &RecordKeys<'_>) -> Option<Self> {
        let (salt, iv) = keys.iv.split_first_chunk::<4>()?;
        Some(Self {
            version: match keys.version {
                RecordVersion::Tls12 => 0x0303,
                RecordVersion::Tls13 => 0x0304,
            },
            cipher,
            iv: iv.try_into().ok()?,
            key: keys.key.try_into().ok()?,
            salt: *salt,
            record_number: keys.sequence.to_be_bytes(),
        })
    }
}

impl<const KEY: usize> Drop for CryptoInfo<KEY> {
    fn drop(&mut self) {
        self.key.zeroize();
    }
}

const AES_GCM_128: u16 = 51;
const AES_GCM_256: u16 = 52;

/// Attaches kernel TLS to a connected TCP socket, if it is not attached. Without keys the socket works as before.
pub(crate) fn attach(socket: BorrowedFd<'_>) -> io::Result<()> {
    match set_option(socket, libc::SOL_TCP, libc::TCP_ULP, b"tls") {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        attached => attached,
    }
}

/// Gives the kernel the keys of a direction, which it protects from then on. A second call changes the keys (since Linux
/// 6.14; older kernels return EBUSY).
pub(crate) fn set_keys(
    socket: BorrowedFd<'_>,
    direction: Direction,
    keys: &RecordKeys<'_>,
) -> io::Result<()> {
    let name = match direction {
        Direction::Sending => TLS_TX,
        Direction::Receiving => TLS_RX,
    };
    let unknown = || io::Error::from(io::ErrorKind::Unsupported);
    match keys.cipher {
        RecordCipher::Aes128Gcm => {
            let info = CryptoInfo::<16>::new(AES_GCM_128, keys).ok_or_else(unknown)?;
            set_option(socket, SOL_TLS, name, &info)
        }
        RecordCipher::Aes256Gcm => {
            let info = CryptoInfo::<32>::new(AES_GCM_256, keys).ok_or_else(unknown)?;
            set_option(socket, SOL_TLS, name, &info)
        }
        RecordCipher::ChaCha20Poly1305 => Err(unknown()),
    }
}

fn set_option<T: ?Sized>(
    socket: BorrowedFd<'_>,
    level: c_int,
    name: c_int,
    value: &T,
) -> io::Result<()> {
    // SAFETY: the kernel reads the bytes of `value`, all of which are initialized (the types above have no padding),
    // and keeps no pointer; the descriptor is open while it is borrowed.
    let status = unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            level,
            name,
            std::ptr::from_ref(value).cast(),
            length_of(size_of_val(value)),
        )
    };
    checked(status).map(drop)
}

/// The sequence number of the next record that the kernel sends.
pub(crate) fn next_record(socket: BorrowedFd<'_>, cipher: RecordCipher) -> io::Result<u64> {
    // The kernel requires the exact length of the cipher's structure.
    let (length, place) = match cipher {
        RecordCipher::Aes128Gcm => (
            size_of::<CryptoInfo<16>>(),
            offset_of!(CryptoInfo<16>, record_number),
        ),
        RecordCipher::Aes256Gcm | RecordCipher::ChaCha20Poly1305 => (
            size_of::<CryptoInfo<32>>(),
            offset_of!(CryptoInfo<32>, record_number),
        ),
    };
    let mut info = [0; size_of::<CryptoInfo<32>>()];
    get_option(socket, SOL_TLS, TLS_TX, &mut info[..length])?;
    let number = number_at(&info, place, u64::from_be_bytes);
    // The structure contains the key as well.
    info.zeroize();
    Ok(number)
}

/// The progress of TCP's send queue.
pub(crate) struct TcpProgress {
    /// The bytes handed to TCP since the connection began, plus a constant.
    pub(crate) bytes: u64,
    /// The connection is closed.
    pub(crate) is_closed: bool,
}

/// The bytes that were handed to TCP: those acknowledged, and those queued.
pub(crate) fn tcp_progress(socket: BorrowedFd<'_>) -> io::Result<TcpProgress> {
    // `tcpi_state` and `tcpi_bytes_acked` of linux/tcp.h (since Linux 4.1).
    const STATE: usize = 0;
    const BYTES_ACKED: usize = 120;
    const TCP_CLOSE: u8 = 7;
    let mut info = [0; BYTES_ACKED + 8];
    let mut queued = queued(socket)?;
    loop {
        get_option(socket, libc::SOL_TCP, libc::TCP_INFO, &mut info)?;
        let before = std::mem::replace(&mut queued, self::queued(socket)?);
        // Bytes that were acknowledged between the two calls would be in neither number.
        if before == queued {
            let acknowledged = number_at(&info, BYTES_ACKED, u64::from_ne_bytes);
            return Ok(TcpProgress {
                bytes: acknowledged + queued,
                is_closed: info[STATE] == TCP_CLOSE,
            });
        }
    }
}

/// The number of bytes that are not acknowledged.
fn queued(socket: BorrowedFd<'_>) -> io::Result<u64> {
    let mut bytes: c_int = 0;
    // SAFETY: SIOCOUTQ (tcp(7)), which has the same number as TIOCOUTQ, writes an integer; the descriptor is open while it is
    // borrowed.
    checked(unsafe { libc::ioctl(socket.as_raw_fd(), libc::TIOCOUTQ, &raw mut bytes) })?;
    Ok(u64::from(bytes.unsigned_abs()))
}

/// The number of bytes that have arrived and were not read.
pub(crate) fn unread(socket: BorrowedFd<'_>) -> u64 {
    rustix::io::ioctl_fionread(socket).unwrap_or(0)
}

fn get_option(
    socket: BorrowedFd<'_>,
    level: c_int,
    name: c_int,
    value: &mut [u8],
) -> io::Result<()> {
    let mut length = length_of(value.len());
    // SAFETY: the kernel writes at most `length` bytes, which are those of `value`; the descriptor is open while it
    // is borrowed.
    let status = unsafe {
        libc::getsockopt(
            socket.as_raw_fd(),
            level,
            name,
            value.as_mut_ptr().cast(),
            &raw mut length,
        )
    };
    checked(status).map(drop)
}

fn number_at(bytes: &[u8], place: usize, decode: fn([u8; 8]) -> u64) -> u64 {
    bytes[place..]
        .first_chunk()
        .map_or(0, |number| decode(*number))
}

/// The type of a record: one control message (cmsg(3)), whose data follows its header.
#[repr(C)]
struct RecordType {
    header: libc::cmsghdr,
    kind: u8,
}

impl RecordType {
    /// The length up to and including the type.
    const LENGTH: usize = offset_of!(Self, kind) + 1;

    fn empty() -> Self {
        Self {
            // SAFETY: the header consists of integers, for which zero is valid.
            header: unsafe { zeroed() },
            kind: 0,
        }
    }
}

/// Sends a record of another type than data.
pub(crate) fn send_record(
    socket: BorrowedFd<'_>,
    kind: u8,
    content: &[u8],
) -> Result<usize, Errno> {
    let mut record_type = RecordType::empty();
    record_type.header.cmsg_level = SOL_TLS;
    record_type.header.cmsg_type = TLS_SET_RECORD_TYPE;
    record_type.header.cmsg_len = RecordType::LENGTH;
    record_type.kind = kind;
    let mut part = libc::iovec {
        // The kernel only reads it.
        iov_base: content.as_ptr().cast_mut().cast::<c_void>(),
        iov_len: content.len(),
    };
    let message = message(&mut part, &mut record_type);
    let flags = libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL;
    // SAFETY: everything that the message points to outlives the call; the descriptor is open while it is borrowed.
    count(unsafe { libc::sendmsg(socket.as_raw_fd(), &raw const message, flags) })
}

/// Receives the content of one or several records of one type: the type, and the number of bytes, which is 0 at the end of the
/// stream.
pub(crate) fn receive_record(
    socket: BorrowedFd<'_>,
    buffer: &mut [u8],
) -> Result<(u8, usize), Errno> {
    let mut record_type = RecordType::empty();
    let mut part = libc::iovec {
        iov_base: buffer.as_mut_ptr().cast::<c_void>(),
        iov_len: buffer.len(),
    };
    let mut message = message(&mut part, &mut record_type);
    // SAFETY: everything that the message points to outlives the call, and the kernel writes within the lengths given
    // there; the descriptor is open while it is borrowed.
    let received =
        unsafe { libc::recvmsg(socket.as_raw_fd(), &raw mut message, libc::MSG_DONTWAIT) };
    let received = count(received)?;
    let RecordType { header, kind } = record_type;
    let has_type = header.cmsg_level == SOL_TLS && header.cmsg_type == TLS_GET_RECORD_TYPE;
    Ok((if has_type { kind } else { APPLICATION_DATA }, received))
}

fn message(part: &mut libc::iovec, record_type: &mut RecordType) -> libc::msghdr {
    // SAFETY: the message consists of integers and pointers, for which zero is valid.
    let mut message: libc::msghdr = unsafe { zeroed() };
    message.msg_iov = part;
    message.msg_iovlen = 1;
    message.msg_control = std::ptr::from_mut(record_type).cast();
    message.msg_controllen = RecordType::LENGTH;
    message
}

fn length_of(bytes: usize) -> socklen_t {
    socklen_t::try_from(bytes).expect("options are short")
}

fn checked(status: c_int) -> io::Result<c_int> {
    if status < 0 {
        Err(io::Error::last_os_error())
    } else {
        Ok(status)
    }
}

fn count(outcome: isize) -> Result<usize, Errno> {
    usize::try_from(outcome).map_err(|_| {
        let error = io::Error::last_os_error();
        Errno::from_io_error(&error).unwrap_or(Errno::IO)
    })
}
