//! Standard input, standard output, a device or a pipe as an end of a transfer.

use std::io;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use gridhaul_storage::{Checksum, ChecksumAlgorithm, StorageError};
use gridhaul_transfer::{ByteSink, LineSource, Task};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::pipe::{PipeFlags, pipe_with};

/// The bytes that are read at a time.
const PIECE_BYTES: usize = 256 * 1024;

/// `PIPE_BUF` of Linux.
const PIPE_BYTES: usize = 4096;

/// How often a wait for input looks whether the transfer goes on.
const TICK: Timespec = Timespec {
    tv_sec: 0,
    tv_nsec: 100_000_000,
};

/// Standard input, standard output, a device or an end of a pipe, for one transfer.
#[derive(Debug, Clone)]
pub struct ByteStream {
    way: Way,
    state: Arc<State>,
}

#[derive(Debug, Clone, Copy)]
enum Way {
    Input,
    Output,
}

#[derive(Default)]
struct State {
    /// A device or the end of a pipe, in place of standard input or standard output; `None` after [`ByteStream::close`].
    pipe: Option<Mutex<Option<Arc<OwnedFd>>>>,
    /// The transfer has ended.
    is_over: AtomicBool,
    /// The program at the other end sends or reads no bytes now.
    waits: AtomicBool,
    /// Bytes were taken, which cannot be taken again.
    is_used: AtomicBool,
    /// The reader of standard output has gone.
    is_closed: AtomicBool,
    sum: Mutex<Option<Checksum>>,
    /// The bytes that may still be read; `None` is all.
    left: Mutex<Option<u64>>,
}

impl std::fmt::Debug for State {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("State").finish_non_exhaustive()
    }
}

impl ByteStream {
    /// Standard input. Its checksum is computed, if one is wanted.
    pub fn input(sum: Option<ChecksumAlgorithm>) -> Self {
        Self::new(Way::Input, None, sum)
    }

    /// Standard output. Its checksum is computed, if one is wanted.
    pub fn output(sum: Option<ChecksumAlgorithm>) -> Self {
        Self::new(Way::Output, None, sum)
    }

    /// A device or a pipe that is read, at most so many bytes: some devices have no end.
    pub fn reading(file: Arc<OwnedFd>, most: Option<u64>, sum: Option<ChecksumAlgorithm>) -> Self {
        let stream = Self::new(Way::Input, Some(file), sum);
        *locked(&stream.state.left) = most;
        stream
    }

    /// A device or a pipe that is written to.
    pub fn writing(file: Arc<OwnedFd>, sum: Option<ChecksumAlgorithm>) -> Self {
        Self::new(Way::Output, Some(file), sum)
    }

    /// A pipe between two transfers: the end that receives bytes, and the one that sends them.
    ///
    /// # Errors
    ///
    /// When the process has too many open files.
    pub(super) fn pipe() -> io::Result<[Self; 2]> {
        let (reader, writer) = pipe_with(PipeFlags::CLOEXEC)?;
        Ok([
            Self::new(Way::Output, Some(Arc::new(writer)), None),
            Self::new(Way::Input, Some(Arc::new(reader)), None),
        ])
    }

    fn new(way: Way, pipe: Option<Arc<OwnedFd>>, sum: Option<ChecksumAlgorithm>) -> Self {
        let state = State {
            pipe: pipe.map(|end| Mutex::new(Some(end))),
            sum: Mutex::new(sum.map(Checksum::new)),
            ..State::default()
        };
        Self {
            way,
            state: Arc::new(state),
        }
    }

    /// Whether bytes were read or written, so that the transfer cannot begin again.
    pub fn is_used(&self) -> bool {
        self.state.is_used.load(Ordering::Relaxed)
    }

    /// Whether the reader of standard output has gone.
    pub fn is_closed(&self) -> bool {
        self.state.is_closed.load(Ordering::Relaxed)
    }

    /// The checksum of all bytes, once.
    pub fn take_sum(&self) -> Option<String> {
        locked(&self.state.sum).take().map(Checksum::finish)
    }

    /// What the transfer does on this machine.
    pub(super) fn task(&self) -> Task {
        let state = Arc::clone(&self.state);
        match self.way {
            Way::Input => Task::SendLines(LineSource {
                open: Arc::new(move |_| {
                    let state = Arc::clone(&state);
                    Ok(Box::new(std::iter::from_fn(move || {
                        state.read().transpose()
                    })))
                }),
            }),
            Way::Output => Task::ReceiveBytes(ByteSink {
                take: Arc::new(move |bytes| state.write(bytes)),
            }),
        }
    }

    /// Whether the program at the other end is what the transfer waits for.
    pub(super) fn waits(&self) -> bool {
        self.state.waits.load(Ordering::Relaxed)
    }

    /// Closes the end of a pipe after its transfer, so that the other one sees the end of the bytes.
    pub(super) fn close(&self) {
        if let Some(pipe) = &self.state.pipe {
            *locked(pipe) = None;
        }
    }

    /// Ends a wait for input or for the reader of the output.
    pub(super) fn end(&self) {
        self.state.is_over.store(true, Ordering::Relaxed);
    }
}

/// The values behind these locks are whole at any time.
fn locked<T>(lock: &Mutex<T>) -> MutexGuard<'_, T> {
    lock.lock().unwrap_or_else(PoisonError::into_inner)
}

impl State {
    /// Does something with the descriptor of the stream, which is `standard` unless this is a pipe.
    fn with<T>(
        &self,
        standard: BorrowedFd<'_>,
        act: impl FnOnce(BorrowedFd<'_>) -> Result<T, Errno>,
    ) -> Result<T, Errno> {
        let Some(pipe) = &self.pipe else {
            return act(standard);
        };
        let end = locked(pipe).clone();
        act(end.ok_or(Errno::CANCELED)?.as_fd())
    }

    /// The next piece; `None` at the end.
    fn read(&self) -> Result<Option<Vec<u8>>, StorageError> {
        let failed = |errno| StorageError::new("read", errno);
        let stdin = io::stdin();
        let mut left = locked(&self.left);
        let most = left.map_or(PIECE_BYTES, |left| {
            usize::try_from(left).map_or(PIECE_BYTES, |left| left.min(PIECE_BYTES))
        });
        if most == 0 {
            return Ok(None);
        }
        let mut piece = vec![0; most];
        loop {
            let read = self.with(stdin.as_fd(), |stream| {
                self.wait_for(PollFd::new(&stream, PollFlags::IN))?;
                rustix::io::read(stream, &mut piece)
            });
            match read {
                Ok(0) => return Ok(None),
                Err(Errno::INTR | Errno::AGAIN) => {}
                read => {
                    piece.truncate(read.map_err(failed)?);
                    self.count(&piece);
                    if let Some(left) = &mut *left {
                        *left = left.saturating_sub(piece.len() as u64);
                    }
                    return Ok(Some(piece));
                }
            }
        }
    }

    fn write(&self, bytes: &[u8]) -> Result<(), StorageError> {
        let failed = |errno| StorageError::new("write", errno);
        let stdout = io::stdout();
        let mut left = bytes;
        // Before the first byte: a transfer that ends while a part of a piece is written must not be repeated.
        self.is_used.store(true, Ordering::Relaxed);
        while !left.is_empty() {
            // pipe(7): a pipe that is ready takes so many bytes at once. More would wait for the reader, and see no end.
            let piece = &left[..left.len().min(PIPE_BYTES)];
            let written = self.with(stdout.as_fd(), |stream| {
                self.wait_for(PollFd::new(&stream, PollFlags::OUT))?;
                rustix::io::write(stream, piece)
            });
            match written {
                Ok(count) => {
                    self.count(&left[..count]);
                    left = &left[count..];
                }
                Err(Errno::INTR | Errno::AGAIN) => {}
                Err(errno) => {
                    if errno == Errno::PIPE {
                        self.is_closed.store(true, Ordering::Relaxed);
                    }
                    return Err(failed(errno));
                }
            }
        }
        Ok(())
    }

    /// Waits until a stream is ready; `ECANCELED` when the transfer is over.
    fn wait_for(&self, stream: PollFd<'_>) -> Result<(), Errno> {
        let mut stream = [stream];
        loop {
            if self.is_over.load(Ordering::Relaxed) {
                return Err(Errno::CANCELED);
            }
            match poll(&mut stream, Some(&TICK)) {
                Ok(0) => self.waits.store(true, Ordering::Relaxed),
                Err(Errno::INTR) => {}
                polled => {
                    self.waits.store(false, Ordering::Relaxed);
                    return polled.map(drop);
                }
            }
        }
    }

    fn count(&self, bytes: &[u8]) {
        self.is_used.store(true, Ordering::Relaxed);
        if let Some(sum) = &mut *locked(&self.sum) {
            sum.update(bytes);
        }
    }
}
