//! What is likely to come next on a connection: messages are cut like the one before.
//!
//! An FPDU is shorter than 64 KiB. With a call for each, a receiver is woken and TCP acknowledges for each, and the sender
//! pays for that as well. So one call receives as many segments as the message probably still has, each at the place
//! where it belongs if that is so. Their headers come between them and are looked at afterwards; from the first that
//! says something else on, what came is taken out again. Nothing here knows of sockets.

use super::mpa::{LENGTH_BYTES, trailer_bytes};
use super::segment::{Header, TAGGED_BYTES, Tagged};
use crate::memory::Span;

/// A length and the header of a tagged segment.
pub(super) const HEAD_BYTES: usize = LENGTH_BYTES + TAGGED_BYTES;

/// Segments that are guessed at a time.
pub(super) const MAX_GUESSES: usize = 15;

/// How the messages of a connection are cut.
#[derive(Debug, Default)]
pub(super) struct Foresight {
    /// The last message that was whole.
    known: Cut,
    /// The message that is coming, as far as its segments have begun.
    coming: Cut,
}

/// How a message is cut.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
struct Cut {
    segments: usize,
    /// The payload of each but the last, if those are alike.
    payload: Option<usize>,
    last_payload: usize,
}

/// A tagged segment that has begun.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Begun {
    pub(super) kind: Tagged,
    pub(super) last: bool,
    pub(super) key: u32,
    /// Where it ends.
    pub(super) address: u64,
    /// The same place in our memory.
    pub(super) end: usize,
    /// So many bytes behind it may be overwritten.
    pub(super) spare: usize,
}

/// A segment that probably comes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Guess {
    /// Where its payload goes.
    pub(super) span: Span,
    /// What it has before its payload.
    pub(super) head: [u8; HEAD_BYTES],
    pub(super) trailer_bytes: usize,
    /// What is known of it if it comes.
    pub(super) begun: Begun,
}

impl Foresight {
    /// A tagged segment has begun.
    pub(super) fn note(&mut self, payload: usize, last: bool) {
        let coming = &mut self.coming;
        if coming.segments == 0 {
            coming.payload = Some(payload);
        }
        coming.segments += 1;
        if last {
            coming.last_payload = payload;
            self.known = std::mem::take(coming);
        } else if coming.payload != Some(payload) {
            coming.payload = None;
        }
    }

    /// The segments that probably follow the last that was noted, in all no more than `most` bytes of payload.
    pub(super) fn guesses(&self, mut begun: Begun, most: usize) -> Vec<Guess> {
        let usual = match (self.coming.payload, self.known.payload) {
            (Some(coming), Some(known)) if coming == known => known,
            _ => return Vec::new(),
        };
        let mut guesses = Vec::with_capacity(MAX_GUESSES);
        let mut left = most;
        for number in self.coming.segments + 1..=self.known.segments {
            let last = number == self.known.segments;
            let payload = if last { self.known.last_payload } else { usual };
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
    /// The next segment of the message, if it has so much payload.
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

    fn payloads(foresight: &Foresight, begun: Begun, most: usize) -> Vec<(usize, usize, bool)> {
        let guesses = foresight.guesses(begun, most);
        let guesses = guesses.iter();
        guesses
            .map(|guess| (guess.span.offset, guess.span.length, guess.begun.last))
            .collect()
    }

    #[test]
    fn a_message_is_cut_like_the_one_before() {
        let mut foresight = Foresight::default();
        for (payload, last) in [(100, false), (100, false), (90, true)] {
            assert_eq!(payloads(&foresight, BEGUN, 1000), []);
            foresight.note(payload, last);
        }
        foresight.note(100, false);
        let both = [(100, 100, false), (200, 90, true)];
        assert_eq!(payloads(&foresight, BEGUN, 1000), both);
        assert_eq!(payloads(&foresight, BEGUN, 189), both[..1]);
        let begun = Begun { spare: 99, ..BEGUN };
        assert_eq!(payloads(&foresight, begun, 1000), []);
        let guesses = foresight.guesses(BEGUN, 1000);
        let header = Header::decode(&guesses[1].head[LENGTH_BYTES..]).unwrap();
        let expected = Header::Tagged {
            kind: Tagged::Write,
            last: true,
            key: 7,
            address: 1200,
        };
        assert_eq!(header, expected);
        assert_eq!(guesses[1].head[..LENGTH_BYTES], [0, 104]);
        foresight.note(100, false);
        assert_eq!(payloads(&foresight, BEGUN, 1000), [(100, 90, true)]);
        foresight.note(100, false);
        assert_eq!(payloads(&foresight, BEGUN, 1000), [], "it is longer");
    }

    #[test]
    fn nothing_is_guessed_of_messages_that_are_cut_unevenly() {
        let mut foresight = Foresight::default();
        for (payload, last) in [
            (100, false),
            (90, false),
            (90, true),
            (100, false),
            (80, false),
        ] {
            foresight.note(payload, last);
            assert_eq!(payloads(&foresight, BEGUN, 1000), []);
        }
    }
}
