//! Receives from a socket into a file with `splice`, through a pipe.
//!
//! Bytes that were taken from the socket are written before anything else happens, so a pipe holds bytes only during a
//! call.

use std::sync::atomic::Ordering;

use gridhaul_stack::{ChannelError, FileRange, Operation, WriteLock};
use gridhaul_tcp::TcpChannel;
use rustix::io::Errno;
use rustix::pipe::{SpliceFlags, splice};

use crate::pipes::Pipe;
use crate::progress::Progress;

/// Receives a range, until it is complete, the kernel refuses, or `splice` returns 0: at the end of the stream or before
/// urgent data, which only `recv` can tell apart.
///
/// # Errors
///
/// As those of [`gridhaul_stack::Channel::receive_into`].
pub(crate) fn receive(
    channel: &mut TcpChannel,
    range: &mut FileRange<'_>,
    operation: &Operation<'_>,
) -> Result<Progress, ChannelError> {
    let mut pipe = match Pipe::take() {
        Ok(pipe) => pipe,
        Err(errno) => return Ok(Progress::Refused(0, Some(errno))),
    };
    let mut done = 0;
    while done < range.length {
        channel.check(operation)?;
        let wanted = usize::try_from(range.length - done).unwrap_or(usize::MAX);
        match pipe.fill(channel.socket(), wanted) {
            Ok(0) => return Ok(Progress::Refused(done, None)),
            Ok(_) => match drain(&mut pipe, range, &mut done) {
                Ok(()) => {}
                Err(errno) if is_not_supported(errno) => {
                    drain_through_memory(&mut pipe, range, &mut done)?;
                    return Ok(Progress::Refused(done, Some(errno)));
                }
                Err(errno) => return Err(ChannelError::File(errno.into())),
            },
            Err(Errno::AGAIN) => operation.wait_readable(channel.socket())?,
            Err(Errno::INTR) => {}
            Err(errno) if is_not_supported(errno) => {
                return Ok(Progress::Refused(done, Some(errno)));
            }
            Err(errno) => return Err(channel.fail(errno)),
        }
    }
    Ok(Progress::Complete)
}

/// Moves the content of the pipe to its place in the file.
fn drain(pipe: &mut Pipe, range: &FileRange<'_>, done: &mut u64) -> Result<(), Errno> {
    while pipe.held() > 0 {
        let mut offset = range.offset + *done;
        let (reader, held) = (pipe.reader(), pipe.held());
        let flags = SpliceFlags::MOVE;
        let taken = {
            let _lock = WriteLock::acquire(range.file);
            splice(reader, None, range.file, Some(&mut offset), held, flags)
        };
        match taken {
            // No bytes and no error: `write` will return the error.
            Ok(0) => return Err(Errno::INVAL),
            Ok(written) => {
                pipe.note_taken(written);
                *done += written as u64;
                range.moved.fetch_add(written as u64, Ordering::Release);
            }
            Err(Errno::INTR) => {}
            Err(errno) => return Err(errno),
        }
    }
    Ok(())
}

/// Writes the content of the pipe to a file that does not support `splice`.
fn drain_through_memory(
    pipe: &mut Pipe,
    range: &mut FileRange<'_>,
    done: &mut u64,
) -> Result<(), ChannelError> {
    let writer = range.writer();
    while pipe.held() > 0 {
        let wanted = pipe.held().min(range.scratch.len());
        let count = match rustix::io::read(pipe.reader(), &mut range.scratch[..wanted]) {
            Ok(count) => count,
            Err(Errno::INTR) => continue,
            Err(errno) => return Err(ChannelError::Network(errno.into())),
        };
        pipe.note_taken(count);
        writer.write(&range.scratch[..count], *done)?;
        *done += count as u64;
    }
    Ok(())
}

/// Whether `write` should be tried instead. splice(2): EINVAL if the file system, or a file that is open for appending,
/// does not support it; other file systems return ENOSYS or EOPNOTSUPP. `write` then succeeds, or returns the actual
/// error, such as EBADF for a directory.
fn is_not_supported(errno: Errno) -> bool {
    matches!(
        errno,
        Errno::INVAL | Errno::NOSYS | Errno::OPNOTSUPP | Errno::BADF | Errno::ISDIR
    )
}
