//! Second descriptors of open files, which bypass the page cache.
//!
//! `O_DIRECT` is a flag of the open file description and cannot transfer partial blocks. So a file that is transferred past
//! the page cache is open twice. The path is not resolved again, because it could lead to another file.

use rustix::fs::OFlags;

use super::reopen::by_descriptor;
use crate::OpenedFile;

/// Shorter files, in bytes, are read with one call through the page cache, and a second descriptor would only cost time.
pub(super) const LEAST_BYTES: u64 = 64 << 10;

/// Opens a file a second time, with `O_DIRECT`. Direct I/O is an optimization, so these failures are ignored: a file system
/// without direct I/O (`EINVAL`, open(2)), a machine without `/proc`, and a new file whose permission bits do not allow to
/// open it again.
pub(super) fn opened_twice(file: OpenedFile, access: OFlags) -> OpenedFile {
    match by_descriptor(&file, access | OFlags::DIRECT) {
        Ok(direct) => file.with_direct(direct),
        Err(_) => file,
    }
}
