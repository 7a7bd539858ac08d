//! Payloads that are received straight into their place, several with one call where they can be
//! predicted.

use std::io;
use std::os::fd::BorrowedFd;
use std::sync::Arc;

use super::{BEYOND_BYTES, Incoming, Receive, ReceiveError, STAGING_BYTES, Sink, Step};
use crate::memory::{Memory, Span};
use crate::soft::mpa::MAX_TRAILER_BYTES;
use crate::soft::prediction::{Begun, Guess, HEAD_BYTES, MAX_GUESSES};
use crate::soft::segment::Tagged;
use crate::soft::socket::{self, Place};

/// The most payload predicted in one call: if the prediction is wrong, all of it is staged.
const GUESSED_BYTES: usize = STAGING_BYTES - 64 * 1024;

/// The rest of a tagged segment.
#[derive(Debug)]
pub(super) struct Direct {
    begun: Begun,
    memory: Arc<Memory>,
    span: Span,
    /// The padding and checksum that follow.
    trailer_bytes: usize,
    /// Its payload, and that of earlier segments that were not reported yet.
    bytes: usize,
}

impl Direct {
    /// This much of the payload has arrived, or more than it is; returns its share.
    fn take(&mut self, count: usize) -> usize {
        let taken = self.span.first(count).length;
        self.span = self.span.skip(taken);
        taken
    }

    /// It is complete, and the next segment is the predicted one.
    fn follow(&mut self, guess: &Guess) {
        self.begun = guess.begun;
        self.span = guess.span;
        self.trailer_bytes = guess.trailer_bytes;
        self.bytes += guess.span.length;
    }

    /// What to report when it is complete.
    fn event(&self) -> Incoming {
        match self.begun.kind {
            // The rest of the last segment is empty, and all segments are contiguous.
            Tagged::Write => {
                Incoming::Written(Span::new(self.span.offset - self.bytes, self.bytes))
            }
            Tagged::ReadResponse => Incoming::Answer {
                bytes: self.bytes,
                last: self.begun.last,
            },
        }
    }
}

impl Receive {
    /// Copies the staged part of a tagged segment's payload to its place; the rest will be received
    /// there.
    pub(super) fn place(&mut self, begun: Begun, sink: Sink, trailer_bytes: usize) {
        let Sink { memory, span, .. } = sink;
        let there = span.first(self.end - self.start);
        memory.copy_in(
            there.offset,
            &self.staging[self.start..self.start + there.length],
        );
        self.start += there.length;
        self.direct = Some(Direct {
            begun,
            memory,
            span: span.skip(there.length),
            trailer_bytes,
            bytes: span.length,
        });
    }

    /// Receives the rest of a tagged segment and its trailer.
    pub(super) fn receive_direct(
        &mut self,
        mut direct: Direct,
        socket: BorrowedFd<'_>,
    ) -> Result<Step, ReceiveError> {
        while direct.span.length > 0 {
            if self.calls == 0 || self.is_drained {
                self.direct = Some(direct);
                return Ok(Step::Wanted(0));
            }
            self.calls -= 1;
            // Everything staged was placed.
            (self.start, self.end) = (0, 0);
            match self.receive_ahead(&mut direct, socket) {
                Ok(0) => return Err(ReceiveError::Cut),
                Ok(_) => {}
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => {
                    self.direct = Some(direct);
                    return match error.kind() {
                        // Nothing arrived; the caller tries again.
                        io::ErrorKind::WouldBlock => Ok(Step::Wanted(0)),
                        _ => Err(error.into()),
                    };
                }
            }
        }
        if self.end - self.start < direct.trailer_bytes {
            let wanted = direct.trailer_bytes;
            self.direct = Some(direct);
            return Ok(Step::Wanted(wanted));
        }
        self.start += direct.trailer_bytes;
        Ok(Step::Event(direct.event()))
    }

    /// Receives the rest of a segment and the predicted ones, and continues with the last segment
    /// of which something has arrived. What arrives after that is staged. Returns the count of
    /// bytes.
    fn receive_ahead(&mut self, direct: &mut Direct, socket: BorrowedFd<'_>) -> io::Result<usize> {
        let guesses = self.predictor.guesses(direct.begun, GUESSED_BYTES);
        // The bytes between the payloads.
        let mut between = [0; MAX_GUESSES * (MAX_TRAILER_BYTES + HEAD_BYTES) + BEYOND_BYTES];
        let received = {
            let memory = &*direct.memory;
            let mut places = Vec::with_capacity(2 * guesses.len() + 2);
            places.push(Place::Memory(memory, direct.span));
            let (mut rest, mut trailer_bytes) = (&mut between[..], direct.trailer_bytes);
            for guess in &guesses {
                let (gap, others) = rest.split_at_mut(trailer_bytes + HEAD_BYTES);
                places.extend([Place::Bytes(gap), Place::Memory(memory, guess.span)]);
                (rest, trailer_bytes) = (others, guess.trailer_bytes);
            }
            places.push(Place::Bytes(&mut rest[..BEYOND_BYTES]));
            let asked: usize = places.iter().map(Place::bytes).sum();
            let received = socket::receive(socket, &mut places)?;
            self.is_drained = received < asked;
            received
        };
        self.sort(direct, &guesses, &between, received);
        Ok(received)
    }

    /// Compares the received headers with the predicted ones. Rightly predicted segments are in
    /// their places; from the first wrong one on, none is.
    fn sort(
        &mut self,
        direct: &mut Direct,
        guesses: &[Guess],
        mut between: &[u8],
        mut count: usize,
    ) {
        count -= direct.take(count);
        for (number, guess) in guesses.iter().enumerate() {
            let (gap, behind) = between.split_at(direct.trailer_bytes + HEAD_BYTES);
            if count < gap.len() || !gap.ends_with(&guess.head) {
                self.stage_wrong(direct, &guesses[number..], between, count);
                return;
            }
            count -= gap.len();
            between = behind;
            self.predictor.note(guess.span.length, guess.begun.last);
            direct.follow(guess);
            count -= direct.take(count);
        }
        self.stage(&between[..count]);
    }

    /// Stages `count` bytes from the places of wrong predictions.
    fn stage_wrong(
        &mut self,
        direct: &Direct,
        guesses: &[Guess],
        mut between: &[u8],
        mut count: usize,
    ) {
        let mut trailer_bytes = direct.trailer_bytes;
        for guess in guesses {
            let (gap, behind) = between.split_at(trailer_bytes + HEAD_BYTES);
            let there = &gap[..gap.len().min(count)];
            self.stage(there);
            count -= there.len();
            let misplaced = guess.span.first(count);
            let staged = self.end..self.end + misplaced.length;
            let memory = &direct.memory;
            memory.copy_out(misplaced.offset, &mut self.staging[staged.clone()]);
            self.end = staged.end;
            count -= misplaced.length;
            (between, trailer_bytes) = (behind, guess.trailer_bytes);
        }
        self.stage(&between[..count]);
    }

    fn stage(&mut self, bytes: &[u8]) {
        let end = self.end + bytes.len();
        self.staging[self.end..end].copy_from_slice(bytes);
        self.end = end;
    }
}
