//! Pipes for `splice`, which are made once and used by one channel after the other.

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

/// So many are kept: each takes two descriptors, and a part of what an account's pipes may hold
/// (`fs.pipe-user-pages-soft`).
const MOST_IDLE: usize = 32;

/// The default of `fs.pipe-max-size`, and as much as a socket usually has at once.
pub(crate) const WANTED_BYTES: usize = 1024 * 1024;

/// With less, the calls cost more than the copies that they save.
const LEAST_BYTES: usize = 64 * 1024;

/// A pipe that is empty between two calls of a channel, or is thrown away.
#[derive(Debug)]
pub(crate) struct Pipe {
    /// Taken when the pipe is dropped.
    ends: Option<Ends>,
    held: usize,
}

/// A channel that may take pipes. As long as there is one they are kept, since a channel takes one for each mebibyte.
#[derive(Debug)]
pub(crate) struct Keeper(());

/// None is kept without channels: an idle server holds no descriptors of them.
#[derive(Debug)]
struct Pool {
    /// Unused pipes.
    idle: Vec<Empty>,
    /// Channels that may take one.
    channels: usize,
}

/// A pipe in which there is nothing: one channel after the other may have it.
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
    /// When descriptors or the room for pipes are used up.
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

    /// How many bytes are in it.
    pub(crate) fn held(&self) -> usize {
        self.held
    }

    /// How many bytes it can hold.
    pub(crate) fn capacity(&self) -> usize {
        self.ends().capacity
    }

    /// The end to take bytes from; [`Pipe::note_taken`] is told how many.
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

    /// Bytes have left the pipe.
    pub(crate) fn note_taken(&mut self, count: usize) {
        self.held -= count;
    }

    fn ends(&self) -> &Ends {
        self.ends.as_ref().expect("only drop takes them")
    }
}

/// A pipe with bytes of one channel in it never comes to another.
impl Drop for Pipe {
    fn drop(&mut self) {
        if let Some(empty) = self.ends.take().and_then(Empty::new) {
            pool().keep(empty);
        }
    }
}

impl Empty {
    /// The pipe, if nothing is in it. The kernel says so: what is left there by a wrong count would be written to another
    /// session's file.
    fn new(ends: Ends) -> Option<Self> {
        (ioctl_fionread(&ends.reader) == Ok(0)).then_some(Self(ends))
    }
}

impl Keeper {
    pub(crate) fn new() -> Self {
        pool().channels += 1;
        Self(())
    }
}

impl Drop for Keeper {
    fn drop(&mut self) {
        pool().channel_closed();
    }
}

impl Pool {
    fn keep(&mut self, empty: Empty) {
        if self.channels > 0 && self.idle.len() < MOST_IDLE {
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
        // The kernel refuses what is over fs.pipe-max-size, or over what the account may have.
        let mut wanted = WANTED_BYTES;
        while wanted >= LEAST_BYTES && fcntl_setpipe_size(&writer, wanted).is_err() {
            wanted /= 2;
        }
        let capacity = fcntl_getpipe_size(&writer)?;
        if capacity < LEAST_BYTES {
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
    fn a_pipe_with_bytes_in_it_is_not_empty_whatever_was_counted() {
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
        for _ in 0..=MOST_IDLE {
            pool.keep(empty());
        }
        assert_eq!(pool.idle.len(), MOST_IDLE);
        pool.channel_closed();
        assert_eq!(pool.idle.len(), MOST_IDLE);
        pool.channel_closed();
        assert!(pool.idle.is_empty());
    }
}
