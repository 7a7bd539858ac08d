//! From a file to a socket: `sendfile`.

use std::sync::atomic::Ordering;

use gridhaul_stack::{ChannelError, FileRange, Operation};
use gridhaul_tcp::TcpChannel;
use rustix::fs::sendfile;
use rustix::io::Errno;

use crate::channel::Part;

/// One call moves at most so much, so that a cancelled call ends in time where the network never makes
/// it wait.
const CALL_BYTES: u64 = 1024 * 1024;

/// Sends a range, until it is done or the kernel finds that it cannot do it. The head has gone before.
///
/// # Errors
///
/// As those of [`gridhaul_stack::Channel::send`], but for those of the file.
pub(crate) fn send(
    channel: &mut TcpChannel,
    range: &FileRange<'_>,
    operation: &Operation<'_>,
) -> Result<Part, ChannelError> {
    let mut done = 0;
    while done < range.length {
        channel.check(operation)?;
        let mut offset = range.offset + done;
        let wanted = CALL_BYTES.min(range.length - done);
        let wanted = usize::try_from(wanted).unwrap_or(usize::MAX);
        match sendfile(channel.socket(), range.file, Some(&mut offset), wanted) {
            // The file is shorter than promised. Reading tells where it ends.
            Ok(0) => return Ok(Part::Refused(done, None)),
            Ok(sent) => {
                done += sent as u64;
                range.moved.fetch_add(sent as u64, Ordering::Release);
            }
            Err(Errno::AGAIN) => operation.wait_writable(channel.socket())?,
            Err(Errno::INTR) => {}
            Err(errno) if may_be_the_files(errno) => return Ok(Part::Refused(done, Some(errno))),
            Err(errno) => return Err(channel.fail(errno)),
        }
    }
    Ok(Part::Whole)
}

/// Errors that no socket has. Either `sendfile` does not know the file system (sendfile(2): "applications may
/// wish to fall back to read(2)/write(2) in the case where sendfile() fails with EINVAL or ENOSYS"),
/// or reading will fail in the same way, and tell why.
fn may_be_the_files(errno: Errno) -> bool {
    matches!(
        errno,
        Errno::INVAL
            | Errno::NOSYS
            | Errno::OPNOTSUPP
            | Errno::BADF
            | Errno::ISDIR
            | Errno::IO
            | Errno::NODATA
            | Errno::STALE
            | Errno::OVERFLOW
            | Errno::NOMEM
            | Errno::ACCESS
            | Errno::PERM
    )
}
