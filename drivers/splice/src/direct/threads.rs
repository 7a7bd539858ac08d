//! A lane over helper threads, where there is no io_uring. They live as long as the lane, which is one
//! call of a channel.

use std::io;
use std::os::fd::BorrowedFd;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Mutex, PoisonError};
use std::thread;

use rustix::io::Errno;

use super::lane::{Call, Lane, Request};

/// So many requests are under way at most.
const MOST_THREADS: usize = 4;

/// Helpers make one system call after another.
const STACK_BYTES: usize = 64 * 1024;

/// Does `work` with a lane for `file` in pieces of memory.
///
/// # Errors
///
/// When the system has no thread left; `work` was not begun.
pub(crate) fn with_lane<R>(
    file: BorrowedFd<'_>,
    pieces: Vec<&mut [u8]>,
    work: impl FnOnce(&mut dyn Lane) -> R,
) -> io::Result<R> {
    let (jobs, waiting) = channel();
    let (results, ended) = channel();
    let waiting = Mutex::new(waiting);
    thread::scope(|scope| {
        // When it is dropped, the helpers find no more jobs and end, and the scope waits for them.
        let mut lane = ThreadsLane {
            jobs,
            ended,
            pieces: pieces.into_iter().map(Piece::Free).collect(),
        };
        for helper in 0..lane.pieces.len().min(MOST_THREADS) {
            let (waiting, results) = (&waiting, results.clone());
            let started = thread::Builder::new()
                .name("direct".to_owned())
                .stack_size(STACK_BYTES)
                .spawn_scoped(scope, move || help(file, waiting, &results));
            match started {
                Ok(_) => {}
                Err(error) if helper == 0 => return Err(error),
                // Fewer do as well.
                Err(_) => break,
            }
        }
        Ok(work(&mut lane))
    })
}

struct ThreadsLane<'a> {
    jobs: Sender<Job<'a>>,
    ended: Receiver<(usize, Piece<'a>)>,
    pieces: Vec<Piece<'a>>,
}

enum Piece<'a> {
    Free(&'a mut [u8]),
    UnderWay,
    Ended(&'a mut [u8], Result<usize, Errno>),
}

struct Job<'a> {
    piece: usize,
    memory: &'a mut [u8],
    request: Request,
}

impl Lane for ThreadsLane<'_> {
    fn pieces(&self) -> usize {
        self.pieces.len()
    }

    fn memory(&mut self, piece: usize) -> &mut [u8] {
        match &mut self.pieces[piece] {
            Piece::Free(memory) | Piece::Ended(memory, _) => memory,
            Piece::UnderWay => panic!("a helper has this memory"),
        }
    }

    fn begin(&mut self, piece: usize, request: Request) {
        match std::mem::replace(&mut self.pieces[piece], Piece::UnderWay) {
            Piece::Free(memory) | Piece::Ended(memory, _) => {
                let job = Job {
                    piece,
                    memory,
                    request,
                };
                self.jobs
                    .send(job)
                    .expect("helpers live as long as the lane");
            }
            Piece::UnderWay => panic!("a helper has this memory"),
        }
    }

    fn end(&mut self, piece: usize) -> Result<usize, Errno> {
        while matches!(self.pieces[piece], Piece::UnderWay) {
            let (piece, ended) = self.ended.recv().expect("helpers live as long as the lane");
            self.pieces[piece] = ended;
        }
        match std::mem::replace(&mut self.pieces[piece], Piece::UnderWay) {
            Piece::Ended(memory, result) => {
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
        // The receiver is gone if the caller has failed.
        let _ = results.send((job.piece, Piece::Ended(job.memory, result)));
    }
}
