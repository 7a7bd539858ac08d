//! Sends from a file to a socket with `sendfile`.

use std::sync::atomic::Ordering;

use gridhaul_stack::{ChannelError, FileRange, Operation};
use gridhaul_tcp::TcpChannel;
use rustix::fs::sendfile;
use rustix::io::Errno;

use crate::progress::Progress;

/// The most that one call moves, so that a cancelled call ends in time on a network that never blocks it.
const CALL_BYTES: u64 = 1024 * 1024;

/// Sends a range, until it is complete or the kernel refuses. The head was sent before.
///
/// # Errors
///
/// As those of [`gridhaul_stack::Channel::send`], except errors of the file.
pub(crate) fn send(
    channel: &mut TcpChannel,
    range: &FileRange<'_>,
    operation: &Operation<'_>,
) -> Result<Progress, ChannelError> {
    let mut done = 0;
    while done < range.length {
        channel.check(operation)?;
        let mut offset = range.offset + done;
        let wanted = CALL_BYTES.min(range.length - done);
        let wanted = usize::try_from(wanted).unwrap_or(usize::MAX);
        match sendfile(channel.socket(), range.file, Some(&mut offset), wanted) {
            // The file is too short. `read` will find its end.
            Ok(0) => return Ok(Progress::Refused(done, None)),
            Ok(sent) => {
                done += sent as u64;
                range.moved.fetch_add(sent as u64, Ordering::Release);
            }
            Err(Errno::AGAIN) => operation.wait_writable(channel.socket())?,
            Err(Errno::INTR) => {}
            Err(errno) if may_be_of_the_file(errno) => {
                return Ok(Progress::Refused(done, Some(errno)));
            }
            Err(errno) => return Err(channel.fail(errno)),
        }
    }
    Ok(Progress::Complete)
}

/// Errors that a socket does not return. Either the file system does not support `sendfile` (sendfile(2): "applications
/// may wish to fall back to read(2)/write(2) in the case where sendfile() fails with EINVAL or ENOSYS"), or `read` will
/// fail with the actual error.
fn may_be_of_the_file(errno: Errno) -> bool {
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
