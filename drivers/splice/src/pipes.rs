//! A pool of pipes for `splice`, which channels reuse.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Mutex, MutexGuard, PoisonError};

use rustix::io::{Errno, ioctl_fionread};
use rustix::pipe::{
    PipeFlags, SpliceFlags, fcntl_getpipe_size, fcntl_setpipe_size, pipe_with, splice,
};

/// The pipes of this process.
static POOL: Mutex<Pool> = Mutex::new(Pool {
    idle: Vec::new(),
    channels: 0,
});

/// The maximum number of idle pipes. Each takes two descriptors, and counts towards the pipe memory of the account
/// (`fs.pipe-user-pages-soft`).
const MAX_IDLE: usize = 32;

/// The default of `fs.pipe-max-size`, and about as much as a socket usually has ready.
pub(crate) const WANTED_BYTES: usize = 1024 * 1024;

/// With smaller pipes, the calls cost more than the copies that they save.
const MIN_BYTES: usize = 64 * 1024;

/// A pipe that a channel uses for one call.
#[derive(Debug)]
pub(crate) struct Pipe {
    /// `None` only during drop.
    ends: Option<Ends>,
    held: usize,
}

/// Registers a channel that may take pipes. The pool keeps idle pipes while any channel exists, because a channel takes
/// one for each mebibyte.
#[derive(Debug)]
pub(crate) struct PipeUser(());

/// The idle pipes. The pool is emptied when the last channel closes, so an idle server holds no descriptors of pipes.
#[derive(Debug)]
struct Pool {
    /// Idle pipes.
    idle: Vec<Empty>,
    /// Channels that may take one.
    channels: usize,
}

/// A pipe that is known to be empty, so that another channel may use it.
#[derive(Debug)]
struct Empty(Ends);

#[derive(Debug)]
struct Ends {
    reader: OwnedFd,
    writer: OwnedFd,
    capacity: usize,
}

impl Pipe {
    /// An empty pipe.
    ///
    /// # Errors
    ///
    /// When descriptors or the memory for pipes are exhausted.
    pub(crate) fn take() -> Result<Self, Errno> {
        let idle = pool().idle.pop();
        let ends = match idle {
            Some(Empty(ends)) => ends,
            None => Ends::open()?,
        };
        Ok(Self {
            ends: Some(ends),
            held: 0,
        })
    }

    /// The number of bytes in the pipe.
    pub(crate) fn held(&self) -> usize {
        self.held
    }

    /// Its capacity in bytes.
    pub(crate) fn capacity(&self) -> usize {
        self.ends().capacity
    }

    /// The end to read from. The caller then calls [`Pipe::note_taken`].
    pub(crate) fn reader(&self) -> BorrowedFd<'_> {
        self.ends().reader.as_fd()
    }

    /// Moves bytes from a socket into the pipe, which must be empty.
    pub(crate) fn fill(&mut self, socket: BorrowedFd<'_>, wanted: usize) -> Result<usize, Errno> {
        debug_assert_eq!(self.held, 0);
        let ends = self.ends();
        let wanted = wanted.min(ends.capacity);
        let flags = SpliceFlags::MOVE | SpliceFlags::NONBLOCK;
        let count = splice(socket, None, &ends.writer, None, wanted, flags)?;
        self.held = count;
        Ok(count)
    }

    /// Subtracts bytes that were read from the pipe.
    pub(crate) fn note_taken(&mut self, count: usize) {
        self.held -= count;
    }

    fn ends(&self) -> &Ends {
        self.ends.as_ref().expect("only drop takes them")
    }
}

/// A pipe that holds bytes of one channel is never given to another.
impl Drop for Pipe {
    fn drop(&mut self) {
        if let Some(empty) = self.ends.take().and_then(Empty::new) {
            pool().keep(empty);
        }
    }
}

impl Empty {
    /// The pipe, if it is empty. The kernel is asked (`FIONREAD`): if our count were wrong, the remaining bytes would be
    /// written to the file of another session.
    fn new(ends: Ends) -> Option<Self> {
        (ioctl_fionread(&ends.reader) == Ok(0)).then_some(Self(ends))
    }
}

impl PipeUser {
    pub(crate) fn new() -> Self {
        pool().channels += 1;
        Self(())
    }
}

impl Drop for PipeUser {
    fn drop(&mut self) {
        pool().channel_closed();
    }
}

impl Pool {
    fn keep(&mut self, empty: Empty) {
        if self.channels > 0 && self.idle.len() < MAX_IDLE {
            self.idle.push(empty);
        }
    }

    fn channel_closed(&mut self) {
        self.channels -= 1;
        if self.channels == 0 {
            self.idle.clear();
        }
    }
}

fn pool() -> MutexGuard<'static, Pool> {
    POOL.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Ends {
    fn open() -> Result<Self, Errno> {
        let (reader, writer) = pipe_with(PipeFlags::CLOEXEC)?;
        // The kernel refuses sizes over fs.pipe-max-size, or over the limit of the account.
        let mut wanted = WANTED_BYTES;
        while wanted >= MIN_BYTES && fcntl_setpipe_size(&writer, wanted).is_err() {
            wanted /= 2;
        }
        let capacity = fcntl_getpipe_size(&writer)?;
        if capacity < MIN_BYTES {
            return Err(Errno::NOMEM);
        }
        Ok(Self {
            reader,
            writer,
            capacity,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn empty() -> Empty {
        Empty::new(Ends::open().unwrap()).unwrap()
    }

    #[test]
    fn a_pipe_with_bytes_is_never_reused() {
        let ends = Ends::open().unwrap();
        assert_eq!(rustix::io::write(&ends.writer, b"a"), Ok(1));
        assert!(Empty::new(ends).is_none());
        assert!(Empty::new(Ends::open().unwrap()).is_some());
    }

    #[test]
    fn pipes_are_kept_for_channels_only() {
        let mut pool = Pool {
            idle: Vec::new(),
            channels: 0,
        };
        pool.keep(empty());
        assert!(pool.idle.is_empty());
        pool.channels = 2;
        for _ in 0..=MAX_IDLE {
            pool.keep(empty());
        }
        assert_eq!(pool.idle.len(), MAX_IDLE);
        pool.channel_closed();
        assert_eq!(pool.idle.len(), MAX_IDLE);
        pool.channel_closed();
        assert!(pool.idle.is_empty());
    }
}
