//! Devices and pipes of this machine as ends of a copy.

use std::fs::{self, Metadata};
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use rustix::fs::{Mode, OFlags, major, minor};
use rustix::io::Errno;
use tokio::time::sleep;

/// How often a pipe is looked at until a program reads from it.
const TICK: Duration = Duration::from_millis(100);

/// Whether this is a device or a named pipe. Links are followed.
pub(super) fn is_special(path: &Path) -> bool {
    let is_stream = |found: &Metadata| !found.is_file() && !found.is_dir();
    fs::metadata(path).is_ok_and(|found| is_stream(&found))
}

/// Whether it is `/dev/null`, which takes bytes in any order.
pub(super) fn is_null(path: &Path) -> bool {
    let is_null = |found: &Metadata| {
        let number = found.rdev();
        found.file_type().is_char_device() && (major(number), minor(number)) == (1, 3)
    };
    fs::metadata(path).is_ok_and(|found| is_null(&found))
}

/// Whether it is the file that standard output goes to.
pub(super) fn is_stdout(path: &Path) -> bool {
    let place = |metadata: Metadata| (metadata.dev(), metadata.ino());
    let stdout = fs::metadata("/proc/self/fd/1").ok().map(place);
    stdout.is_some() && stdout == fs::metadata(path).ok().map(place)
}

/// Opens a device or a pipe. A pipe that is written to waits for its reader.
///
/// # Errors
///
/// When it cannot be opened.
pub(super) async fn open(path: &Path, writes: bool) -> io::Result<Arc<OwnedFd>> {
    let access = match writes {
        true => OFlags::WRONLY,
        false => OFlags::RDONLY,
    };
    // Without O_NONBLOCK the call would wait for the other end of a pipe, and nothing could end it.
    let flags = access | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    loop {
        match rustix::fs::open(path, flags, Mode::empty()) {
            Ok(file) => return Ok(Arc::new(file)),
            Err(Errno::NXIO) if fs::metadata(path)?.file_type().is_fifo() => sleep(TICK).await,
            Err(error) => return Err(error.into()),
        }
    }
}
