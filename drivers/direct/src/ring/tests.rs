//! Requests that the kernel accepts late.

mod registered;

use std::fs::File;
use std::os::fd::AsFd as _;
use std::os::unix::fs::FileExt as _;

use super::*;
use crate::queue::{IoQueue as _, PieceQueue as _, Queue};
use crate::request::{Files, Request, Way};
use crate::target::Pieces;

/// Accepts some entries, and then fails some times, as the kernel does that has no memory for a request (io_uring_enter(2), EAGAIN).
struct Refusing {
    accepted: usize,
    refusals: usize,
}

impl Enter for Refusing {
    fn submit(&mut self, queues: &IoUring, wanted: usize) -> io::Result<usize> {
        if self.accepted > 0 {
            self.accepted -= 1;
        } else if self.refusals > 0 {
            self.refusals -= 1;
            return Err(Errno::AGAIN.into());
        }
        Kernel.submit(queues, wanted)
    }

    fn wait(&mut self, queues: &IoUring, wanted: u32) -> io::Result<usize> {
        Kernel.wait(queues, wanted)
    }
}

/// A kernel that refuses for longer than any test takes.
const FOR_EVER: usize = usize::MAX;

/// More than any test takes.
const PATIENT: Duration = Duration::from_secs(3600);

/// `None` where io_uring is not available.
fn ring(enter: Refusing, patience: Duration) -> Option<Ring<Refusing>> {
    let Ring { queues, .. } = Ring::open()
        .inspect_err(|error| gridhaul_skip::skipped(&format!("io_uring: {error}")))
        .ok()?;
    Some(Ring::over(queues, enter, patience))
}

fn refusing_ring(refusals: usize) -> Option<Ring<Refusing>> {
    let enter = Refusing {
        accepted: 0,
        refusals,
    };
    ring(enter, PATIENT)
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

/// The kernel does not use the memory of a request that it has not accepted.
#[test]
fn the_end_of_a_queue_does_not_wait_for_requests_that_were_not_accepted() {
    let enter = Refusing {
        accepted: 1,
        refusals: FOR_EVER,
    };
    let Some(mut ring) = ring(enter, PATIENT) else {
        return;
    };
    let file = file();
    let (mut accepted, mut refused) = ([0; 4], [0; 4]);
    let pieces = Pieces::new(vec![&mut accepted, &mut refused]);
    let mut queue = Queue::new(&mut ring, files(&file), pieces, 2);
    queue.submit(0, REQUEST);
    queue.submit(1, REQUEST);
    drop(queue);
    assert_eq!((&accepted, &refused), (b"onte", &[0; 4]));

    // Its entry is still in the submission queue, and must not be submitted later.
    ring.enter.refusals = 0;
    assert!(ring.enter(0).is_ok());
    assert_eq!(refused, [0; 4]);
    let mut later = [0; 4];
    let pieces = Pieces::new(vec![&mut later]);
    let mut queue = Queue::new(&mut ring, files(&file), pieces, 1);
    queue.submit(0, REQUEST);
    assert_eq!(queue.complete(0), Ok(4));
    drop(queue);
    assert_eq!((&later, &refused), (b"onte", &[0; 4]));
    assert!(matches!(ring.take_retired(), Some(Retired::Withdrawn)));
}

#[test]
fn blocking_calls_do_what_the_kernel_refuses_for_long() {
    for waits in [true, false] {
        let enter = Refusing {
            accepted: 1,
            refusals: FOR_EVER,
        };
        let Some(mut ring) = ring(enter, Duration::ZERO) else {
            return;
        };
        let file = file();
        let mut memory = [[0; 4]; 3];
        let pieces = memory.iter_mut().map(|piece| &mut piece[..]).collect();
        let mut queue = Queue::new(&mut ring, files(&file), Pieces::new(pieces), 3);
        for slot in 0..3 {
            queue.submit(slot, REQUEST);
        }
        for slot in (0..3).rev() {
            let result = if waits {
                queue.complete(slot)
            } else {
                // Calls that do not wait, as those of a thread that looks at the network meanwhile.
                loop {
                    if let Some(result) = queue.result(slot) {
                        break result;
                    }
                    queue.poll();
                }
            };
            assert_eq!(result, Ok(4));
        }
        assert_eq!(queue.retry_in(), None);
        // A further one is not refused any more.
        queue.submit(1, REQUEST);
        assert_eq!(queue.retry_in(), Some(RETRY_DELAY), "it has a result");
        assert_eq!(queue.complete(1), Ok(4));
        drop(queue);
        assert_eq!(memory, [*b"onte"; 3]);
        let retired = ring.take_retired();
        assert!(
            matches!(&retired, Some(Retired::Refused(error)) if error.kind() == io::ErrorKind::WouldBlock),
            "{retired:?}"
        );
    }
}
