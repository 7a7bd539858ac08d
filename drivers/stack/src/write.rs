//! Writing to a file at an offset.

use std::io;
use std::os::fd::BorrowedFd;
use std::sync::atomic::{AtomicU64, Ordering};

use rustix::io::Errno;

use crate::{ChannelError, WriteLock};

/// Writes all of `bytes` to a file at `offset`, and adds the bytes written to `moved`.
///
/// # Errors
///
/// [`ChannelError::File`] with the operating system's error.
pub fn write_all_at(
    file: BorrowedFd<'_>,
    mut bytes: &[u8],
    mut offset: u64,
    moved: &AtomicU64,
) -> Result<(), ChannelError> {
    while !bytes.is_empty() {
        let _lock = WriteLock::acquire(file);
        match rustix::io::pwrite(file, bytes, offset) {
            Ok(0) => return Err(ChannelError::File(io::ErrorKind::WriteZero.into())),
            Ok(written) => {
                bytes = &bytes[written..];
                offset += written as u64;
                moved.fetch_add(written as u64, Ordering::Release);
            }
            Err(Errno::INTR) => {}
            Err(error) => return Err(ChannelError::File(error.into())),
        }
    }
    Ok(())
}
