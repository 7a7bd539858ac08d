//! Copies the beginning of a file, for a restart that continues it under another name.

use std::fs::File;
use std::io::{self, Read as _, Seek as _, SeekFrom};
use std::os::fd::AsFd as _;

use gridhaul_storage::{OpenedFile, StorageError};
use rustix::io::Errno;

use crate::context::Context;
use crate::error::TransferError;

/// The length of one call. The kernel copies it, on some file systems without moving a byte.
const PIECE_BYTES: u64 = 64 * 1024 * 1024;

/// Copies `length` bytes, until the transfer is cancelled. No data moves on the network meanwhile.
pub(super) fn copy_beginning(
    context: &Context,
    from: &OpenedFile,
    to: &OpenedFile,
    length: u64,
) -> Result<(), TransferError> {
    let failed = |error: io::Error| StorageError::from_io("write", &error);
    let handle = |file: &OpenedFile| file.as_fd().try_clone_to_owned().map(File::from);
    let mut source = handle(from).map_err(failed)?;
    let mut target = handle(to).map_err(failed)?;
    target.seek(SeekFrom::Start(0)).map_err(failed)?;
    let mut left = length;
    while left > 0 {
        if context.running.cancel.is_cancelled() {
            return Err(StorageError::new("write", Errno::CANCELED).into());
        }
        let wanted = left.min(PIECE_BYTES);
        let copied = io::copy(&mut (&mut source).take(wanted), &mut target).map_err(failed)?;
        if copied == 0 {
            // The file was cut meanwhile.
            return Err(StorageError::new("read", Errno::IO).into());
        }
        left -= copied;
    }
    Ok(())
}
