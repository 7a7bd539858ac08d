//! The two engines.

use std::io;
use std::os::fd::BorrowedFd;
use std::time::Duration;

use crate::backend::{Backend, MAX_REQUESTS};
use crate::queue::{IoQueue, PieceQueue, Queue};
use crate::request::Files;
use crate::ring::{Retired, Ring};
use crate::target::{Pieces, Target};
use crate::threads;

/// Which engine the stack asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EngineChoice {
    /// io_uring if it is available, helper threads otherwise.
    Best,
    /// Helper threads.
    Threads,
}

/// Carries out requests.
#[derive(Debug)]
pub struct Engine {
    kind: Kind,
    /// The processor time of helper threads since it was last asked for.
    helper_time: Duration,
}

#[derive(Debug)]
enum Kind {
    Ring(Box<Ring>),
    /// With the error that opening a ring returned, if it was tried.
    Threads(Option<io::Error>),
}

impl Engine {
    /// Opens the best engine that the choice allows.
    pub fn open(choice: EngineChoice) -> Self {
        let kind = match choice {
            EngineChoice::Threads => Kind::Threads(None),
            EngineChoice::Best => match Ring::open() {
                Ok(ring) => Kind::Ring(Box::new(ring)),
                Err(error) => Kind::Threads(Some(error)),
            },
        };
        Self {
            kind,
            helper_time: Duration::ZERO,
        }
    }

    /// The processor time that helper threads have taken since the last call of this function. That of io_uring is the caller's own, or
    /// the kernel's.
    pub fn take_helper_time(&mut self) -> Duration {
        std::mem::take(&mut self.helper_time)
    }

    /// What moves files past the page cache, for the log.
    pub fn way(&self) -> &'static str {
        match &self.kind {
            Kind::Ring(ring) => ring.way(),
            Kind::Threads(_) => "direct (threads)",
        }
    }

    /// Why it is not io_uring, although the choice allowed that.
    pub fn without_ring(&self) -> Option<&io::Error> {
        match &self.kind {
            Kind::Threads(error) => error.as_ref(),
            Kind::Ring(_) => None,
        }
    }

    /// Calls `work` with a queue whose slots have these pieces of memory, at most [`MAX_REQUESTS`]. All requests use `file`.
    ///
    /// # Errors
    ///
    /// When no helper thread can be started; `work` was not called.
    pub fn with_pieces<R>(
        &mut self,
        file: BorrowedFd<'_>,
        pieces: Vec<&mut [u8]>,
        work: impl FnOnce(&mut dyn PieceQueue) -> R,
    ) -> io::Result<R> {
        let files = Files {
            direct: file,
            cached: file,
        };
        self.renew();
        let pieces = Pieces::new(pieces);
        let slots = pieces.count();
        self.with_backend(slots, |backend| {
            work(&mut Queue::new(backend, files, pieces, slots))
        })
    }

    /// Calls `work` with a queue of this many slots over shared memory, at most [`MAX_REQUESTS`], which will move about `bytes`
    /// bytes. Where the kernel allows it, [`Target::lasting`] memory is registered once enough bytes are moved to pay for that.
    ///
    /// # Errors
    ///
    /// As [`Engine::with_pieces`].
    pub fn with_memory<R>(
        &mut self,
        files: Files<'_>,
        memory: impl Target,
        slots: usize,
        bytes: u64,
        work: impl FnOnce(&mut dyn IoQueue) -> R,
    ) -> io::Result<R> {
        self.renew();
        if let Kind::Ring(ring) = &mut self.kind
            && let Some(lasting) = memory.lasting()
        {
            ring.prepare(&lasting, bytes);
        }
        self.with_backend(slots, |backend| {
            work(&mut Queue::new(backend, files, memory, slots))
        })
    }

    /// Takes the place of a ring that submits nothing any more. No request is in flight.
    fn renew(&mut self) {
        if let Kind::Ring(ring) = &mut self.kind
            && let Some(retired) = ring.take_retired()
        {
            self.kind = match retired {
                Retired::Withdrawn => Self::open(EngineChoice::Best).kind,
                Retired::Refused(error) => Kind::Threads(Some(error)),
            };
        }
    }

    /// Gives up registered memory that only the engine still keeps. The rest stays registered.
    pub fn release(&mut self) {
        if let Kind::Ring(ring) = &mut self.kind {
            ring.release();
        }
    }

    fn with_backend<R>(
        &mut self,
        slots: usize,
        work: impl FnOnce(&mut dyn Backend) -> R,
    ) -> io::Result<R> {
        assert!(slots <= MAX_REQUESTS, "a queue has few slots");
        match &mut self.kind {
            Kind::Ring(ring) => Ok(work(ring.as_mut())),
            Kind::Threads(_) => {
                let (done, spent) = threads::with_threads(slots, |threads| work(threads))?;
                self.helper_time += spent;
                Ok(done)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd as _;
    use std::os::unix::fs::FileExt as _;

    use super::*;
    use crate::request::{Call, Request, Way};

    /// Reads the bytes 1 to 4 of a file; returns the way.
    fn read(engine: &mut Engine, file: &std::fs::File) -> &'static str {
        let mut memory = [0; 4];
        let pieces: Vec<&mut [u8]> = vec![&mut memory];
        let read = engine.with_pieces(file.as_fd(), pieces, |queue| {
            let request = Request {
                call: Call::Read,
                way: Way::Cached,
                offset: 1,
                start: 0,
                length: 4,
            };
            queue.submit(0, request);
            queue.complete(0)
        });
        assert_eq!(read.unwrap(), Ok(4));
        assert_eq!(&memory, b"onte");
        engine.way()
    }

    #[test]
    fn another_engine_takes_the_place_of_a_ring_that_submits_nothing_any_more() {
        let file = tempfile::tempfile().unwrap();
        file.write_all_at(b"content", 0).unwrap();
        let mut engine = Engine::open(EngineChoice::Best);
        if let Some(error) = engine.without_ring() {
            gridhaul_skip::skipped(&format!("io_uring: {error}"));
            return;
        }
        let retire = |engine: &mut Engine, retired| match &mut engine.kind {
            Kind::Ring(ring) => ring.retire(retired),
            Kind::Threads(_) => panic!("it is a ring"),
        };
        assert_eq!(read(&mut engine, &file), "direct (io_uring)");
        retire(&mut engine, Retired::Withdrawn);
        assert_eq!(read(&mut engine, &file), "direct (io_uring)");
        retire(
            &mut engine,
            Retired::Refused(io::ErrorKind::OutOfMemory.into()),
        );
        assert_eq!(read(&mut engine, &file), "direct (threads)");
        let reason = engine.without_ring().map(io::Error::kind);
        assert_eq!(reason, Some(io::ErrorKind::OutOfMemory));
    }
}
