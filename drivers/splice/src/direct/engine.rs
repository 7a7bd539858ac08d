//! The engines for asynchronous direct I/O: io_uring, or helper threads.
//!
//! io_uring is often unavailable: before Linux 5.6, with `kernel.io_uring_disabled`, and under seccomp filters (the default
//! one of containers, and the server's own unless it was started with `direct=1`).

use std::io;
use std::os::fd::BorrowedFd;

use gridhaul_stack::StackError;
use gridhaul_stack::options::{Audience, OptionDoc, OptionKind, Options};

use super::io_queue::IoQueue;
use super::ring::Ring;
use super::threads;

/// The option of the driver `splice`.
pub(crate) const OPTION: OptionDoc = OptionDoc {
    name: "direct",
    meaning: "moves files past the page cache: 1 over io_uring where the kernel has it, threads without",
    example: "1",
    kind: OptionKind::Word,
    // Each channel has its own buffers and its own ring or threads, and popular files are read from the disk each time.
    audience: Audience::Administrator("it takes memory, threads and the disk from other users"),
};

/// Which engine the stack asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum EngineChoice {
    /// io_uring if it is available, helper threads otherwise.
    Best,
    /// Helper threads.
    Threads,
}

impl EngineChoice {
    /// Reads the option; `None` means the page cache.
    pub(crate) fn parse(options: &Options<'_>) -> Result<Option<Self>, StackError> {
        let choice = options.value(OPTION.name, |text| match text {
            "0" => Ok(None),
            "1" => Ok(Some(Self::Best)),
            "threads" => Ok(Some(Self::Threads)),
            _ => Err("it is none of 0, 1 and threads".to_owned()),
        })?;
        Ok(choice.flatten())
    }
}

#[derive(Debug)]
pub(crate) enum Engine {
    Ring(Box<Ring>),
    /// With the error that opening a ring returned, if it was tried.
    Threads(Option<io::Error>),
}

impl Engine {
    pub(crate) fn open(choice: EngineChoice) -> Self {
        match choice {
            EngineChoice::Threads => Self::Threads(None),
            EngineChoice::Best => match Ring::open() {
                Ok(ring) => Self::Ring(Box::new(ring)),
                Err(error) => Self::Threads(Some(error)),
            },
        }
    }

    /// Calls `work` with a queue.
    ///
    /// # Errors
    ///
    /// When no helper thread can be started.
    pub(crate) fn with_queue<R>(
        &mut self,
        file: BorrowedFd<'_>,
        pieces: Vec<&mut [u8]>,
        work: impl FnOnce(&mut dyn IoQueue) -> R,
    ) -> io::Result<R> {
        match self {
            Self::Ring(ring) => Ok(ring.with_queue(file, pieces, work)),
            Self::Threads(_) => threads::with_queue(file, pieces, work),
        }
    }
}
