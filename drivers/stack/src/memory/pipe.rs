//! One direction of a channel: a bounded queue of bytes.

use std::collections::VecDeque;
use std::sync::{Condvar, Mutex};

use super::{lock, wait};
use crate::{ChannelError, Operation};

#[derive(Debug)]
pub(super) struct Pipe {
    capacity: usize,
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    bytes: VecDeque<u8>,
    is_finished: bool,
    has_no_reader: bool,
    is_aborted: bool,
}

impl Pipe {
    pub(super) fn new(capacity: usize) -> Self {
        Self {
            capacity,
            state: Mutex::default(),
            changed: Condvar::new(),
        }
    }

    /// Writes all bytes, and calls `moved` with the number of bytes that it has queued each time.
    pub(super) fn write(
        &self,
        mut bytes: &[u8],
        operation: &Operation<'_>,
        moved: impl Fn(usize),
    ) -> Result<(), ChannelError> {
        let mut state = lock(&self.state);
        while !bytes.is_empty() {
            state.check_writable()?;
            let room = self.capacity - state.bytes.len();
            if room == 0 {
                state = wait(&self.changed, state, operation)?;
                continue;
            }
            operation.check()?;
            let (now, later) = bytes.split_at(room.min(bytes.len()));
            state.bytes.extend(now);
            moved(now.len());
            self.changed.notify_all();
            bytes = later;
        }
        Ok(())
    }

    /// Reads the available bytes, at least one; returns 0 at the end of the stream.
    pub(super) fn read(
        &self,
        buffer: &mut [u8],
        operation: &Operation<'_>,
    ) -> Result<usize, ChannelError> {
        let mut state = lock(&self.state);
        loop {
            if state.is_aborted {
                return Err(ChannelError::Aborted);
            }
            let count = state.bytes.len().min(buffer.len());
            if count > 0 {
                state.take(&mut buffer[..count]);
                self.changed.notify_all();
            }
            if count > 0 || state.is_finished || buffer.is_empty() {
                return Ok(count);
            }
            state = wait(&self.changed, state, operation)?;
        }
    }

    /// Ends the stream.
    pub(super) fn finish(&self) -> Result<(), ChannelError> {
        let mut state = lock(&self.state);
        state.is_finished = true;
        self.changed.notify_all();
        if state.is_aborted {
            return Err(ChannelError::Aborted);
        }
        Ok(())
    }

    /// Closes the reading end.
    pub(super) fn close_reader(&self) {
        let mut state = lock(&self.state);
        state.has_no_reader = true;
        state.bytes = VecDeque::new();
        self.changed.notify_all();
    }

    pub(super) fn abort(&self) {
        let mut state = lock(&self.state);
        state.is_aborted = true;
        state.bytes = VecDeque::new();
        self.changed.notify_all();
    }
}

impl State {
    fn check_writable(&self) -> Result<(), ChannelError> {
        if self.is_aborted {
            Err(ChannelError::Aborted)
        } else if self.has_no_reader || self.is_finished {
            Err(ChannelError::PeerClosed)
        } else {
            Ok(())
        }
    }

    /// Fills `buffer`, which must not be longer than the queued bytes.
    fn take(&mut self, buffer: &mut [u8]) {
        let (first, second) = self.bytes.as_slices();
        let split = first.len().min(buffer.len());
        buffer[..split].copy_from_slice(&first[..split]);
        let rest = buffer.len() - split;
        buffer[split..].copy_from_slice(&second[..rest]);
        self.bytes.drain(..buffer.len());
    }
}
