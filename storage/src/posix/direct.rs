//! Second descriptors of opened files, past the page cache.
//!
//! `O_DIRECT` belongs to what was opened, not to the file, and parts of a file that are no whole blocks
//! cannot be moved with it. So a file that is moved past the page cache is open twice. The path is not
//! resolved again, which could meet another file.

use rustix::fs::OFlags;

use super::reopen::by_descriptor;
use crate::OpenedFile;

/// Opens a file once more, with `O_DIRECT`. Without is as correct, so what stands in the way is no
/// error: a file system that has no direct I/O (`EINVAL`, open(2)), a machine without `/proc`, or a file
/// that was made with permission bits which forbid to open it again.
pub(super) fn opened_twice(file: OpenedFile, access: OFlags) -> OpenedFile {
    match by_descriptor(&file, access | OFlags::DIRECT) {
        Ok(direct) => file.with_direct(direct),
        Err(_) => file,
    }
}
