//! Payloads that are received straight into their place, several with one call where they can be
//! predicted.

use std::io;
use std::os::fd::BorrowedFd;
use std::sync::Arc;

use super::incoming::{Incoming, Sink};
use super::staging::{STAGING_BYTES, Staging};
use crate::buffer::{Buffer, Span};
use crate::mpa::fpdu::MAX_TRAILER_BYTES;
use crate::prediction::{Begun, Guess, HEAD_BYTES, MAX_GUESSES, Predictor};
use crate::segment::Tagged;
use crate::socket::{self, Place};

/// The most payload predicted in one call: if the prediction is wrong, all of it is staged.
const GUESSED_BYTES: usize = STAGING_BYTES - 64 * 1024;

/// Bytes received beyond the payload of a large segment: its trailer, often a short message, the
/// header of the next large one, and some of its payload, which is copied.
pub(super) const BEYOND_BYTES: usize = 256;

/// The rest of a tagged segment.
#[derive(Debug)]
pub(super) struct Direct {
    begun: Begun,
    memory: Arc<dyn Buffer>,
    span: Span,
    /// The padding and checksum that follow.
    trailer_bytes: usize,
    /// The length of its payload, and of earlier segments that were not reported yet.
    bytes: usize,
}

/// How far a segment was received.
#[derive(Debug)]
pub(super) enum Progress {
    /// It is complete.
    Complete(Incoming),
    /// Its payload is complete; this many bytes of its trailer must be staged.
    Trailer(usize),
    /// The socket is empty for now, or was read often enough.
    Waiting,
    /// The peer has closed the connection.
    Ended,
}

impl Direct {
    /// Copies the staged part of a segment's payload to its place; the rest will be received there.
    pub(super) fn begin(
        begun: Begun,
        sink: Sink,
        trailer_bytes: usize,
        staging: &mut Staging,
    ) -> Self {
        let Sink { memory, span, .. } = sink;
        let there = span.first(staging.staged().len());
        memory.copy_in(there.offset, &staging.staged()[..there.length]);
        staging.consume(there.length);
        Self {
            begun,
            memory,
            span: span.skip(there.length),
            trailer_bytes,
            bytes: span.length,
        }
    }

    /// Receives the rest of the segment and its trailer.
    ///
    /// # Errors
    ///
    /// Those of recvmsg(2).
    pub(super) fn receive(
        &mut self,
        socket: BorrowedFd<'_>,
        staging: &mut Staging,
        predictor: &mut Predictor,
    ) -> io::Result<Progress> {
        while self.span.length > 0 {
            // Everything staged was placed.
            if !staging.may_call() {
                return Ok(Progress::Waiting);
            }
            match self.receive_ahead(socket, staging, predictor) {
                Ok(0) => return Ok(Progress::Ended),
                Ok(_) => {}
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    return Ok(Progress::Waiting);
                }
                Err(error) => return Err(error),
            }
        }
        if staging.staged().len() < self.trailer_bytes {
            return Ok(Progress::Trailer(self.trailer_bytes));
        }
        staging.consume(self.trailer_bytes);
        Ok(Progress::Complete(self.event()))
    }

    /// The event to report when it is complete.
    fn event(&self) -> Incoming {
        match self.begun.kind {
            // The rest of the last segment is empty, and all segments are contiguous.
            Tagged::Write => {
                let start = Span::new(self.span.offset - self.bytes, self.bytes);
                Incoming::Written(start.addresses_in(self.memory.as_ref()))
            }
            Tagged::ReadResponse => Incoming::Response {
                bytes: self.bytes,
                last: self.begun.last,
            },
        }
    }

    /// Receives the rest of a segment and the predicted ones, and continues with the last segment that
    /// has begun to arrive. Bytes after that are staged. Returns the count of bytes.
    fn receive_ahead(
        &mut self,
        socket: BorrowedFd<'_>,
        staging: &mut Staging,
        predictor: &mut Predictor,
    ) -> io::Result<usize> {
        let guesses = predictor.guesses(self.begun, GUESSED_BYTES);
        // The bytes between the payloads.
        let mut between = [0; MAX_GUESSES * (MAX_TRAILER_BYTES + HEAD_BYTES) + BEYOND_BYTES];
        let received = {
            let memory = &*self.memory;
            let mut places = Vec::with_capacity(2 * guesses.len() + 2);
            places.push(Place::Buffer(memory, self.span));
            let (mut rest, mut trailer_bytes) = (&mut between[..], self.trailer_bytes);
            for guess in &guesses {
                let (gap, others) = rest.split_at_mut(trailer_bytes + HEAD_BYTES);
                places.extend([Place::Bytes(gap), Place::Buffer(memory, guess.span)]);
                (rest, trailer_bytes) = (others, guess.trailer_bytes);
            }
            places.push(Place::Bytes(&mut rest[..BEYOND_BYTES]));
            let asked: usize = places.iter().map(Place::bytes).sum();
            let received = socket::receive(socket, &mut places)?;
            staging.called(received, asked);
            received
        };
        self.sort(&guesses, &between, received, staging, predictor);
        Ok(received)
    }

    /// Compares the received headers with the predicted ones. Rightly predicted segments are in
    /// their places; from the first wrong one on, none is.
    fn sort(
        &mut self,
        guesses: &[Guess],
        mut between: &[u8],
        mut count: usize,
        staging: &mut Staging,
        predictor: &mut Predictor,
    ) {
        count -= self.take(count);
        for (number, guess) in guesses.iter().enumerate() {
            let (gap, behind) = between.split_at(self.trailer_bytes + HEAD_BYTES);
            if count < gap.len() || !gap.ends_with(&guess.head) {
                self.stage_wrong(&guesses[number..], between, count, staging);
                return;
            }
            count -= gap.len();
            between = behind;
            predictor.note(guess.span.length, guess.begun.last);
            self.follow(guess);
            count -= self.take(count);
        }
        staging.add(&between[..count]);
    }

    /// Up to `count` bytes of the payload have arrived; returns how many belong to it.
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

    /// Stages `count` bytes from the places of wrong predictions.
    fn stage_wrong(
        &self,
        guesses: &[Guess],
        mut between: &[u8],
        mut count: usize,
        staging: &mut Staging,
    ) {
        let mut trailer_bytes = self.trailer_bytes;
        for guess in guesses {
            let (gap, behind) = between.split_at(trailer_bytes + HEAD_BYTES);
            let there = &gap[..gap.len().min(count)];
            staging.add(there);
            count -= there.len();
            let misplaced = guess.span.first(count);
            self.memory
                .copy_out(misplaced.offset, staging.room(misplaced.length));
            count -= misplaced.length;
            (between, trailer_bytes) = (behind, guess.trailer_bytes);
        }
        staging.add(&between[..count]);
    }
}
