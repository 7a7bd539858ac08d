//! Predicts the next segments of a connection: a message is usually cut like the one before.
//!
//! An FPDU is shorter than 64 KiB. One call for each would wake the receiver and make TCP
//! acknowledge for each, which costs the sender as well. So one call receives as many segments as
//! the message probably still has, each into the place where it would belong. Their headers are
//! received between them and checked afterwards; from the first wrong prediction on, the bytes are
//! taken out of the memory again. This module does no I/O.

use crate::buffer::Span;
use crate::mpa::fpdu::{LENGTH_BYTES, trailer_bytes};
use crate::segment::{Header, TAGGED_BYTES, Tagged};

/// The length field and the header of a tagged segment.
pub(crate) const HEAD_BYTES: usize = LENGTH_BYTES + TAGGED_BYTES;

/// The most segments that are predicted at a time.
pub(crate) const MAX_GUESSES: usize = 15;

/// How the messages of a connection are cut into segments.
#[derive(Debug, Default)]
pub(crate) struct Predictor {
    /// The last complete message.
    last_cut: Cut,
    /// The present message, as far as its segments have begun.
    present: Cut,
}

/// How a message is cut.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
struct Cut {
    segments: usize,
    /// The payload of each segment but the last, if all are equal.
    payload: Option<usize>,
    last_payload: usize,
}

/// A tagged segment whose header was received.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Begun {
    pub(crate) kind: Tagged,
    pub(crate) last: bool,
    pub(crate) key: u32,
    /// The peer's address of its end.
    pub(crate) address: u64,
    /// The offset of its end in our memory.
    pub(crate) end: usize,
    /// How many bytes beyond its end may be overwritten.
    pub(crate) spare: usize,
}

/// A predicted segment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Guess {
    /// The place of its payload.
    pub(crate) span: Span,
    /// The expected bytes before its payload.
    pub(crate) head: [u8; HEAD_BYTES],
    pub(crate) trailer_bytes: usize,
    /// Its state if the prediction is right.
    pub(crate) begun: Begun,
}

impl Predictor {
    /// A tagged segment has begun.
    pub(crate) fn note(&mut self, payload: usize, last: bool) {
        let present = &mut self.present;
        if present.segments == 0 {
            present.payload = Some(payload);
        }
        present.segments += 1;
        if last {
            present.last_payload = payload;
            self.last_cut = std::mem::take(present);
        } else if present.payload != Some(payload) {
            present.payload = None;
        }
    }

    /// The segments that probably follow the last one noted, with at most `most` bytes of payload
    /// in all.
    pub(crate) fn guesses(&self, mut begun: Begun, most: usize) -> Vec<Guess> {
        let usual = match (self.present.payload, self.last_cut.payload) {
            (Some(present), Some(last)) if present == last => last,
            _ => return Vec::new(),
        };
        let mut guesses = Vec::with_capacity(MAX_GUESSES);
        let mut left = most;
        for number in self.present.segments + 1..=self.last_cut.segments {
            let last = number == self.last_cut.segments;
            let payload = if last {
                self.last_cut.last_payload
            } else {
                usual
            };
            if guesses.len() == MAX_GUESSES || payload > begun.spare.min(left) {
                break;
            }
            let guess = begun.followed_by(payload, last);
            begun = guess.begun;
            left -= payload;
            guesses.push(guess);
        }
        guesses
    }
}

impl Begun {
    /// The next segment of the message, if it has this much payload.
    fn followed_by(self, payload: usize, last: bool) -> Guess {
        let header = Header::Tagged {
            kind: self.kind,
            last,
            key: self.key,
            address: self.address,
        };
        let length = TAGGED_BYTES + payload;
        let mut head = [0; HEAD_BYTES];
        let (before, after) = head.split_at_mut(LENGTH_BYTES);
        let prefix = u16::try_from(length).expect("another segment had such a payload");
        before.copy_from_slice(&prefix.to_be_bytes());
        after.copy_from_slice(header.encode().as_bytes());
        Guess {
            span: Span::new(self.end, payload),
            head,
            trailer_bytes: trailer_bytes(length),
            begun: Self {
                last,
                address: self.address.wrapping_add(payload as u64),
                end: self.end + payload,
                spare: self.spare - payload,
                ..self
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BEGUN: Begun = Begun {
        kind: Tagged::Write,
        last: false,
        key: 7,
        address: 1100,
        end: 100,
        spare: 1000,
    };

    fn payloads(predictor: &Predictor, begun: Begun, most: usize) -> Vec<(usize, usize, bool)> {
        let guesses = predictor.guesses(begun, most);
        let guesses = guesses.iter();
        guesses
            .map(|guess| (guess.span.offset, guess.span.length, guess.begun.last))
            .collect()
    }

    #[test]
    fn a_message_is_cut_like_the_one_before() {
        let mut predictor = Predictor::default();
        for (payload, last) in [(100, false), (100, false), (90, true)] {
            assert_eq!(payloads(&predictor, BEGUN, 1000), []);
            predictor.note(payload, last);
        }
        predictor.note(100, false);
        let both = [(100, 100, false), (200, 90, true)];
        assert_eq!(payloads(&predictor, BEGUN, 1000), both);
        assert_eq!(payloads(&predictor, BEGUN, 189), both[..1]);
        let begun = Begun { spare: 99, ..BEGUN };
        assert_eq!(payloads(&predictor, begun, 1000), []);
        let guesses = predictor.guesses(BEGUN, 1000);
        let header = Header::decode(&guesses[1].head[LENGTH_BYTES..]).unwrap();
        let expected = Header::Tagged {
            kind: Tagged::Write,
            last: true,
            key: 7,
            address: 1200,
        };
        assert_eq!(header, expected);
        assert_eq!(guesses[1].head[..LENGTH_BYTES], [0, 104]);
        predictor.note(100, false);
        assert_eq!(payloads(&predictor, BEGUN, 1000), [(100, 90, true)]);
        predictor.note(100, false);
        assert_eq!(payloads(&predictor, BEGUN, 1000), [], "it is longer");
    }

    #[test]
    fn nothing_is_guessed_of_messages_that_are_cut_unevenly() {
        let mut predictor = Predictor::default();
        for (payload, last) in [
            (100, false),
            (90, false),
            (90, true),
            (100, false),
            (80, false),
        ] {
            predictor.note(payload, last);
            assert_eq!(payloads(&predictor, BEGUN, 1000), []);
        }
    }
}
