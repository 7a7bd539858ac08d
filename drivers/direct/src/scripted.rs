//! A simulated queue for the tests of the drivers: a file in memory, and requests that fail as a script says.

use std::collections::VecDeque;
use std::os::fd::BorrowedFd;
use std::time::Duration;

use rustix::io::Errno;

use crate::queue::{IoQueue, PieceQueue};
use crate::request::{Call, Request, Way};

/// Moves bytes between memory and a file in memory.
#[derive(Debug)]
pub struct ScriptedQueue {
    /// The content of the file.
    pub file: Vec<u8>,
    /// The result of each request in the order of submission: the most bytes that it moves, or an error. Requests after the
    /// end of the list move all bytes.
    pub script: VecDeque<Result<usize, Errno>>,
    /// All requests so far.
    pub requests: Vec<Request>,
    /// Requests complete when they are waited for, or when [`ScriptedQueue::finish`] is called, and not at once.
    pub is_slow: bool,
    memory: Memory,
    in_flight: Vec<Option<Flight>>,
}

#[derive(Debug)]
enum Memory {
    Pieces(Vec<Vec<u8>>),
    Shared(Vec<u8>),
}

#[derive(Debug, Clone, Copy)]
struct Flight {
    request: Request,
    most: Result<usize, Errno>,
    is_done: bool,
}

impl ScriptedQueue {
    /// A queue with a piece of memory for each slot.
    pub fn new(file: Vec<u8>, pieces: usize, piece_bytes: usize) -> Self {
        Self::over(
            file,
            pieces,
            Memory::Pieces(vec![vec![0; piece_bytes]; pieces]),
        )
    }

    /// A queue with memory that all slots share.
    pub fn sharing(file: Vec<u8>, slots: usize, memory_bytes: usize) -> Self {
        Self::over(file, slots, Memory::Shared(vec![0; memory_bytes]))
    }

    fn over(file: Vec<u8>, slots: usize, memory: Memory) -> Self {
        Self {
            file,
            script: VecDeque::new(),
            requests: Vec::new(),
            is_slow: false,
            memory,
            in_flight: vec![None; slots],
        }
    }

    /// The memory that all slots share.
    pub fn shared(&mut self) -> &mut [u8] {
        match &mut self.memory {
            Memory::Shared(memory) => memory,
            Memory::Pieces(_) => panic!("each slot has its own memory"),
        }
    }

    /// Whether a request that has not completed uses any of these bytes of the shared memory.
    pub fn uses(&self, start: usize, length: usize) -> bool {
        let flights = self
            .in_flight
            .iter()
            .flatten()
            .filter(|flight| !flight.is_done);
        let mut used = flights.map(|flight| flight.request);
        used.any(|used| used.start < start + length && start < used.start + used.length)
    }

    /// Completes the request of a slot, if one is in flight.
    pub fn finish(&mut self, slot: usize) {
        let Some(flight) = self.in_flight[slot]
            .as_mut()
            .filter(|flight| !flight.is_done)
        else {
            return;
        };
        flight.is_done = true;
        let Flight { request, most, .. } = *flight;
        let Ok(most) = most else {
            return;
        };
        let memory = match &mut self.memory {
            Memory::Pieces(pieces) => &mut pieces[slot],
            Memory::Shared(memory) => memory,
        };
        let memory = &mut memory[request.start..][..request.length];
        let offset = usize::try_from(request.offset).expect("a short file");
        let count = most.min(memory.len());
        let moved = match request.call {
            Call::Read => {
                let there = self.file.get(offset..).unwrap_or(&[]);
                let count = count.min(there.len());
                memory[..count].copy_from_slice(&there[..count]);
                count
            }
            Call::Write => {
                let size = self.file.len().max(offset + count);
                self.file.resize(size, 0);
                self.file[offset..][..count].copy_from_slice(&memory[..count]);
                count
            }
        };
        flight.most = Ok(moved);
    }

    fn finish_all(&mut self) {
        for slot in 0..self.in_flight.len() {
            self.finish(slot);
        }
    }

    /// How many requests went this way.
    pub fn count(&self, way: Way) -> usize {
        let requests = self.requests.iter();
        requests.filter(|request| request.way == way).count()
    }
}

impl IoQueue for ScriptedQueue {
    fn slots(&self) -> usize {
        self.in_flight.len()
    }

    fn submit(&mut self, slot: usize, request: Request) {
        assert!(self.in_flight[slot].is_none(), "a request is in flight");
        self.requests.push(request);
        let most = self.script.pop_front().unwrap_or(Ok(usize::MAX));
        self.in_flight[slot] = Some(Flight {
            request,
            most,
            is_done: false,
        });
    }

    fn poll(&mut self) {
        if !self.is_slow {
            self.finish_all();
        }
    }

    fn wait(&mut self, slot: usize) {
        self.finish(slot);
    }

    fn result(&mut self, slot: usize) -> Option<Result<usize, Errno>> {
        let flight = self.in_flight[slot].take_if(|flight| flight.is_done)?;
        Some(flight.most)
    }

    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        None
    }

    fn retry_in(&self) -> Option<Duration> {
        None
    }
}

impl PieceQueue for ScriptedQueue {
    fn memory(&mut self, piece: usize) -> &mut [u8] {
        assert!(self.in_flight[piece].is_none(), "a request is in flight");
        match &mut self.memory {
            Memory::Pieces(pieces) => &mut pieces[piece],
            Memory::Shared(_) => panic!("the slots share memory"),
        }
    }
}
