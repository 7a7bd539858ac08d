//! Asynchronous reads and writes of one file: one request in flight for each slot.

use std::os::fd::{AsRawFd as _, BorrowedFd};
use std::time::Duration;

use rustix::io::Errno;

use crate::backend::{Backend, RawRequest};
use crate::request::{Call, Files, Request, Way};
use crate::target::{Pieces, Target};

/// Requests of one file, at most one in flight for each slot.
pub trait IoQueue {
    /// The number of slots.
    fn slots(&self) -> usize;

    /// Submits a request for a slot without one in flight.
    ///
    /// # Panics
    ///
    /// When a request is in flight, or its bytes are outside the memory.
    fn submit(&mut self, slot: usize, request: Request);

    /// Notes the requests that have completed, without waiting.
    fn poll(&mut self);

    /// Waits until the request of a slot has completed, if one is in flight. One that the kernel does not accept for a while is carried
    /// out with a blocking call.
    fn wait(&mut self, slot: usize);

    /// Takes the result of a completed request: the number of bytes moved. `None` while it is in flight, and if there was none.
    fn result(&mut self, slot: usize) -> Option<Result<usize, Errno>>;

    /// Readable when a request has completed and [`IoQueue::poll`] has not noted it. `None` for a queue whose requests complete
    /// at once.
    fn descriptor(&self) -> Option<BorrowedFd<'_>>;

    /// How soon to call [`IoQueue::poll`] again, also if the descriptor does not become readable: the kernel has not accepted a
    /// request, for lack of memory for example. `None` if it has accepted all of them.
    fn retry_in(&self) -> Option<Duration>;

    /// Waits for the request of a slot, and returns the number of bytes moved.
    ///
    /// # Errors
    ///
    /// Those of the call.
    fn complete(&mut self, slot: usize) -> Result<usize, Errno> {
        self.wait(slot);
        self.result(slot).unwrap_or(Ok(0))
    }
}

/// A queue in which each slot has its own piece of memory. All pieces have the same length.
pub trait PieceQueue: IoQueue {
    /// The memory of a piece.
    ///
    /// # Panics
    ///
    /// When a request is in flight.
    fn memory(&mut self, piece: usize) -> &mut [u8];
}

/// The states of the slots of a queue.
#[derive(Debug)]
struct Slots(Vec<State>);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Free,
    /// The kernel uses the memory.
    InFlight,
    Completed(Result<usize, Errno>),
}

impl Slots {
    fn is_in_flight(&self, slot: usize) -> bool {
        self.0[slot] == State::InFlight
    }
}

/// A queue over a backend. It is used by reference only and dropped by the function that made it; the drop waits for all
/// requests that have begun, and gives up the others.
pub(crate) struct Queue<'a, T> {
    backend: &'a mut dyn Backend,
    files: Files<'a>,
    target: T,
    slots: Slots,
}

impl<'a, T: Target> Queue<'a, T> {
    pub(crate) fn new(
        backend: &'a mut dyn Backend,
        files: Files<'a>,
        target: T,
        slots: usize,
    ) -> Self {
        Self {
            backend,
            files,
            target,
            slots: Slots(vec![State::Free; slots]),
        }
    }
}

impl<T> Queue<'_, T> {
    fn reap(&mut self, waits: bool) {
        let slots = &mut self.slots;
        self.backend.reap(waits, &mut |slot, result| {
            slots.0[slot] = State::Completed(result);
        });
    }

    fn wait_for(&mut self, slot: usize) {
        while self.slots.is_in_flight(slot) {
            self.reap(true);
        }
    }
}

impl<T: Target> IoQueue for Queue<'_, T> {
    fn slots(&self) -> usize {
        self.slots.0.len()
    }

    fn submit(&mut self, slot: usize, request: Request) {
        assert!(!self.slots.is_in_flight(slot), "a request is in flight");
        let file = match request.way {
            Way::Direct => self.files.direct,
            Way::Cached => self.files.cached,
        };
        let raw = RawRequest {
            slot,
            call: request.call,
            file: file.as_raw_fd(),
            offset: request.offset,
            start: self.target.pointer(slot, &request),
            length: request.length,
            takes_turn: (request.call, request.way) == (Call::Write, Way::Cached),
        };
        self.slots.0[slot] = State::InFlight;
        // SAFETY: the queue borrows the files and owns the target, which keeps the memory. The drop of the queue waits for the
        // completion.
        unsafe { self.backend.submit(raw) };
    }

    fn poll(&mut self) {
        self.reap(false);
    }

    fn wait(&mut self, slot: usize) {
        self.wait_for(slot);
    }

    fn result(&mut self, slot: usize) -> Option<Result<usize, Errno>> {
        match self.slots.0[slot] {
            State::Completed(result) => {
                self.slots.0[slot] = State::Free;
                Some(result)
            }
            State::Free | State::InFlight => None,
        }
    }

    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        Some(self.backend.descriptor())
    }

    fn retry_in(&self) -> Option<Duration> {
        self.backend.retry_in()
    }
}

impl PieceQueue for Queue<'_, Pieces<'_>> {
    fn memory(&mut self, piece: usize) -> &mut [u8] {
        assert!(!self.slots.is_in_flight(piece), "a request is in flight");
        // SAFETY: no request is in flight, and none can be submitted before the reference ends, because it borrows the queue.
        unsafe { self.target.memory(piece) }
    }
}

impl<T> Drop for Queue<'_, T> {
    fn drop(&mut self) {
        let slots = &mut self.slots;
        self.backend.withdraw(&mut |slot, result| {
            slots.0[slot] = State::Completed(result);
        });
        for slot in 0..self.slots.0.len() {
            self.wait_for(slot);
        }
    }
}
