//! Requests that the kernel accepts late.

use std::fs::File;
use std::os::fd::AsFd as _;
use std::os::unix::fs::FileExt as _;

use super::*;
use crate::queue::{IoQueue as _, PieceQueue as _, Queue};
use crate::request::{Files, Request, Way};
use crate::target::Pieces;

/// Fails some times, as the kernel does that has no memory for a request (io_uring_enter(2), EAGAIN).
struct Refusing {
    refusals: usize,
}

impl Enter for Refusing {
    fn enter(&mut self, queues: &IoUring, wanted: usize) -> io::Result<usize> {
        if self.refusals > 0 {
            self.refusals -= 1;
            return Err(Errno::AGAIN.into());
        }
        Kernel.enter(queues, wanted)
    }
}

/// `None` where io_uring is not available.
fn refusing_ring(refusals: usize) -> Option<Ring<Refusing>> {
    let Ring { queues, .. } = Ring::open()
        .inspect_err(|error| eprintln!("skipped: io_uring: {error}"))
        .ok()?;
    Some(Ring {
        queues,
        enter: Refusing { refusals },
        has_unsubmitted: false,
        fixed: FixedBuffers::default(),
    })
}

fn file() -> File {
    let file = tempfile::tempfile().unwrap();
    file.write_all_at(b"content", 0).unwrap();
    file
}

fn files(file: &File) -> Files<'_> {
    Files {
        direct: file.as_fd(),
        cached: file.as_fd(),
    }
}

const REQUEST: Request = Request {
    call: Call::Read,
    way: Way::Cached,
    offset: 1,
    start: 0,
    length: 4,
};

/// Nothing is in flight, so the descriptor does not become readable: without the time a caller would sleep until its deadline.
#[test]
fn a_caller_knows_when_to_poll_for_a_request_that_was_not_accepted() {
    let Some(mut ring) = refusing_ring(3) else {
        return;
    };
    let (file, mut memory) = (file(), [0; 4]);
    let mut queue = Queue::new(&mut ring, files(&file), Pieces::new(vec![&mut memory]), 1);
    assert_eq!(queue.retry_in(), None);
    queue.submit(0, REQUEST);
    for _ in 0..2 {
        assert_eq!(queue.retry_in(), Some(RETRY_DELAY));
        queue.poll();
        assert_eq!(queue.result(0), None);
    }
    assert_eq!(queue.retry_in(), Some(RETRY_DELAY));
    queue.poll();
    assert_eq!(queue.retry_in(), None, "it was accepted");
    assert_eq!(queue.complete(0), Ok(4));
    assert_eq!(queue.memory(0), b"onte");
}

#[test]
fn waiting_for_a_request_submits_it_until_the_kernel_accepts_it() {
    let Some(mut ring) = refusing_ring(5) else {
        return;
    };
    let (file, mut memory) = (file(), [0; 4]);
    let mut queue = Queue::new(&mut ring, files(&file), Pieces::new(vec![&mut memory]), 1);
    queue.submit(0, REQUEST);
    assert_eq!(queue.complete(0), Ok(4));
    assert_eq!(queue.memory(0), b"onte");
    drop(queue);
    assert_eq!(ring.enter.refusals, 0);
}
