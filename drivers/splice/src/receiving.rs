//! From a socket to a file: `splice` through a pipe.
//!
//! What was taken from the socket is written before anything else happens, so that a pipe holds bytes
//! only while a call lasts.

use std::sync::atomic::Ordering;

use gridhaul_stack::{ChannelError, FileRange, Operation, WriteLock};
use gridhaul_tcp::TcpChannel;
use rustix::io::Errno;
use rustix::pipe::{SpliceFlags, splice};

use crate::channel::Part;
use crate::pipes::Pipe;

/// Receives a range, until it is done or the kernel finds that it cannot do it, or has nothing more: that is the
/// end of the stream, or urgent data, which only `recv` can tell apart.
///
/// # Errors
///
/// As those of [`gridhaul_stack::Channel::receive_into`].
pub(crate) fn receive(
    channel: &mut TcpChannel,
    range: &mut FileRange<'_>,
    operation: &Operation<'_>,
) -> Result<Part, ChannelError> {
    let mut pipe = match Pipe::take() {
        Ok(pipe) => pipe,
        Err(errno) => return Ok(Part::Refused(0, Some(errno))),
    };
    let mut done = 0;
    while done < range.length {
        channel.check(operation)?;
        let wanted = usize::try_from(range.length - done).unwrap_or(usize::MAX);
        match pipe.fill(channel.socket(), wanted) {
            Ok(0) => return Ok(Part::Refused(done, None)),
            Ok(_) => match drain(&mut pipe, range, &mut done) {
                Ok(()) => {}
                Err(errno) if is_not_supported(errno) => {
                    drain_through_memory(&mut pipe, range, &mut done)?;
                    return Ok(Part::Refused(done, Some(errno)));
                }
                Err(errno) => return Err(ChannelError::File(errno.into())),
            },
            Err(Errno::AGAIN) => operation.wait_readable(channel.socket())?,
            Err(Errno::INTR) => {}
            Err(errno) if is_not_supported(errno) => return Ok(Part::Refused(done, Some(errno))),
            Err(errno) => return Err(channel.fail(errno)),
        }
    }
    Ok(Part::Whole)
}

/// Moves everything from the pipe to its place in the file.
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
            // A file that takes nothing and names no reason: writing names it.
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

/// Writes what is in the pipe to a file that `splice` does not know.
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

/// splice(2): EINVAL where a file system, or a file that is open for appending, cannot; ENOSYS and
/// EOPNOTSUPP from others. Writing will do, or fail in the same way and tell why: a directory is EBADF here
/// or there.
fn is_not_supported(errno: Errno) -> bool {
    matches!(
        errno,
        Errno::INVAL | Errno::NOSYS | Errno::OPNOTSUPP | Errno::BADF | Errno::ISDIR
    )
}
