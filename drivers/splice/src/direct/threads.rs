//! An I/O queue over helper threads, for systems without io_uring. The threads live as long as the queue, which is one call
//! of a channel.

use std::io;
use std::os::fd::BorrowedFd;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Mutex, PoisonError};
use std::thread;

use rustix::io::Errno;

use super::io_queue::{Call, IoQueue, Request};

/// The most requests in flight.
const MAX_THREADS: usize = 4;

/// The stack of a helper, which only makes system calls.
const STACK_BYTES: usize = 64 * 1024;

/// Calls `work` with a queue for `file` over pieces of memory.
///
/// # Errors
///
/// When no thread can be started; `work` was not called.
pub(crate) fn with_queue<R>(
    file: BorrowedFd<'_>,
    pieces: Vec<&mut [u8]>,
    work: impl FnOnce(&mut dyn IoQueue) -> R,
) -> io::Result<R> {
    let (jobs, waiting) = channel();
    let (results, ended) = channel();
    let waiting = Mutex::new(waiting);
    thread::scope(|scope| {
        // Its drop closes the channel of jobs, so the helpers end, and the scope waits for them.
        let mut queue = ThreadQueue {
            jobs,
            ended,
            pieces: pieces.into_iter().map(Piece::Free).collect(),
        };
        for helper in 0..queue.pieces.len().min(MAX_THREADS) {
            let (waiting, results) = (&waiting, results.clone());
            let started = thread::Builder::new()
                .name("direct".to_owned())
                .stack_size(STACK_BYTES)
                .spawn_scoped(scope, move || help(file, waiting, &results));
            match started {
                Ok(_) => {}
                Err(error) if helper == 0 => return Err(error),
                // Fewer helpers are enough.
                Err(_) => break,
            }
        }
        Ok(work(&mut queue))
    })
}

struct ThreadQueue<'a> {
    jobs: Sender<Job<'a>>,
    ended: Receiver<(usize, Piece<'a>)>,
    pieces: Vec<Piece<'a>>,
}

enum Piece<'a> {
    Free(&'a mut [u8]),
    InFlight,
    Completed(&'a mut [u8], Result<usize, Errno>),
}

struct Job<'a> {
    piece: usize,
    memory: &'a mut [u8],
    request: Request,
}

impl IoQueue for ThreadQueue<'_> {
    fn pieces(&self) -> usize {
        self.pieces.len()
    }

    fn memory(&mut self, piece: usize) -> &mut [u8] {
        match &mut self.pieces[piece] {
            Piece::Free(memory) | Piece::Completed(memory, _) => memory,
            Piece::InFlight => panic!("a request is in flight"),
        }
    }

    fn submit(&mut self, piece: usize, request: Request) {
        match std::mem::replace(&mut self.pieces[piece], Piece::InFlight) {
            Piece::Free(memory) | Piece::Completed(memory, _) => {
                let job = Job {
                    piece,
                    memory,
                    request,
                };
                self.jobs
                    .send(job)
                    .expect("helpers live as long as the queue");
            }
            Piece::InFlight => panic!("a request is in flight"),
        }
    }

    fn complete(&mut self, piece: usize) -> Result<usize, Errno> {
        while matches!(self.pieces[piece], Piece::InFlight) {
            let (piece, ended) = self
                .ended
                .recv()
                .expect("helpers live as long as the queue");
            self.pieces[piece] = ended;
        }
        match std::mem::replace(&mut self.pieces[piece], Piece::InFlight) {
            Piece::Completed(memory, result) => {
                self.pieces[piece] = Piece::Free(memory);
                result
            }
            other => {
                self.pieces[piece] = other;
                Ok(0)
            }
        }
    }
}

fn help<'a>(
    file: BorrowedFd<'_>,
    jobs: &Mutex<Receiver<Job<'a>>>,
    results: &Sender<(usize, Piece<'a>)>,
) {
    loop {
        let job = jobs.lock().unwrap_or_else(PoisonError::into_inner).recv();
        let Ok(job) = job else {
            return;
        };
        let memory = &mut job.memory[job.request.start..][..job.request.length];
        let result = rustix::io::retry_on_intr(|| match job.request.call {
            Call::Read => rustix::io::pread(file, &mut *memory, job.request.offset),
            Call::Write => rustix::io::pwrite(file, memory, job.request.offset),
        });
        // The receiver is closed if the caller has failed.
        let _ = results.send((job.piece, Piece::Completed(job.memory, result)));
    }
}
