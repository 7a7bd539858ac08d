//! Every state of a receiver with a small ring that a peer can reach, compared with a model of each
//! byte.

use std::collections::{BTreeSet, HashSet, VecDeque};
use std::num::NonZeroU64;

use super::*;

const RING_BYTES: u64 = 3;

/// The stream is explored up to this position: a little more than two rings.
const STREAM_BYTES: u64 = 7;

/// The state of each byte.
#[derive(Debug, Clone, Default)]
struct Model {
    /// Bytes that arrived in accepted pieces.
    arrived: BTreeSet<u64>,
    /// The accepted pieces: start and end.
    pieces: BTreeSet<(u64, u64)>,
    consumed: u64,
    credited: u64,
}

/// Why the model refuses a piece.
#[derive(Debug, PartialEq, Eq)]
enum Violation {
    Empty,
    BeyondCredit,
    AcrossTheEnd,
    Overlap,
    NotWritten,
    TooMany,
}

impl Model {
    /// The first byte that has not arrived.
    fn ready(&self) -> u64 {
        (0..).find(|byte| !self.arrived.contains(byte)).unwrap()
    }

    fn announce(
        &mut self,
        (start, length): (u64, u64),
        is_written: bool,
        most: usize,
    ) -> Result<(), Violation> {
        let end = start.saturating_add(length);
        let piece = (start, end);
        let ready = self.ready();
        if length == 0 {
            return Err(Violation::Empty);
        }
        if end > self.credited + RING_BYTES {
            return Err(Violation::BeyondCredit);
        }
        if start / RING_BYTES != (end - 1) / RING_BYTES {
            return Err(Violation::AcrossTheEnd);
        }
        let known = |byte: &u64| self.arrived.contains(byte);
        if end <= ready || self.pieces.contains(&piece) {
            return Ok(());
        }
        // Whether bytes were written is checked only where no other piece begins.
        let is_known_place = start < ready || self.pieces.iter().any(|&(other, _)| other == start);
        if !is_written && !is_known_place {
            return Err(Violation::NotWritten);
        }
        if (start..end).any(|byte| known(&byte)) {
            return Err(Violation::Overlap);
        }
        let waiting = self.pieces.iter().filter(|(start, _)| *start >= ready);
        if waiting.count() + 1 > most {
            return Err(Violation::TooMany);
        }
        self.arrived.extend(start..end);
        self.pieces.insert(piece);
        Ok(())
    }
}

fn violation(error: ReceiverError) -> Violation {
    match error {
        ReceiverError::Empty => Violation::Empty,
        ReceiverError::BeyondCredit { .. } => Violation::BeyondCredit,
        ReceiverError::AcrossTheEnd => Violation::AcrossTheEnd,
        ReceiverError::Overlap { .. } => Violation::Overlap,
        ReceiverError::NotWritten { .. } => Violation::NotWritten,
        ReceiverError::TooManyPieces(_) => Violation::TooMany,
        other => panic!("the peer did nothing of this: {other}"),
    }
}

/// The offsets of these places in the ring.
fn offsets(spans: impl IntoIterator<Item = Span>) -> Vec<usize> {
    let spans = spans.into_iter();
    spans
        .flat_map(|span| span.offset..span.offset + span.length)
        .collect()
}

/// The offsets in the ring of a part of the stream.
fn offsets_of(stream: std::ops::Range<u64>) -> Vec<usize> {
    stream
        .map(|byte| usize::try_from(byte % RING_BYTES).unwrap())
        .collect()
}

fn compare(receiver: &Receiver, model: &Model) {
    let ready = model.ready();
    let turn = model.consumed.next_multiple_of(RING_BYTES);
    let turn = if turn == model.consumed {
        turn + RING_BYTES
    } else {
        turn
    };
    let there = offsets_of(model.consumed..ready.min(turn));
    assert_eq!(offsets([receiver.ready()]), there, "{model:?}");
    let window = offsets_of(ready..model.credited + RING_BYTES);
    let (_, parts) = receiver.window();
    assert_eq!(offsets(parts), window, "{model:?}");
    let freed = offsets_of(model.credited..model.consumed);
    let places = receiver.freed().map(|(_, place)| place);
    assert_eq!(offsets(places), freed, "{model:?}");
    assert!(there.iter().all(|byte| !window.contains(byte)));
}

/// All possible next states.
fn followers(receiver: &Receiver, model: &Model, most: usize) -> Vec<(Receiver, Model)> {
    let mut followers = Vec::new();
    let places = (0..=STREAM_BYTES).flat_map(|start| (0..=RING_BYTES + 1).map(move |n| (start, n)));
    for (start, length) in places.chain([(u64::MAX, 1), (u64::MAX, u64::MAX), (1, u64::MAX)]) {
        for is_written in [false, true] {
            let (mut receiver, mut model) = (receiver.clone(), model.clone());
            let piece = (start, start.saturating_add(length));
            let expected = model.announce((start, length), is_written, most);
            let outcome = receiver.announced(start, length, |_, place| {
                assert_eq!(offsets([place]), offsets_of(piece.0..piece.1));
                is_written
            });
            assert_eq!(
                outcome.map_err(violation),
                expected,
                "{piece:?} after {model:?}"
            );
            // A violation ends the channel.
            if expected.is_ok() {
                followers.push((receiver, model));
            }
        }
    }
    let (mut consuming, mut after) = (receiver.clone(), model.clone());
    if receiver.ready().length > 0 {
        consuming.consume(1);
        after.consumed += 1;
        followers.push((consuming, after));
    }
    let (mut crediting, mut after) = (receiver.clone(), model.clone());
    crediting.credit();
    after.credited = after.consumed;
    followers.push((crediting, after));
    followers
}

#[test]
fn a_receiver_accepts_exactly_what_the_model_accepts() {
    for most in 1..=3 {
        let ring = Ring::new(NonZeroU64::new(RING_BYTES).unwrap());
        let mut seen = HashSet::new();
        let mut coming = VecDeque::from([(Receiver::new(ring, most), Model::default())]);
        while let Some((receiver, model)) = coming.pop_front() {
            compare(&receiver, &model);
            for (receiver, model) in followers(&receiver, &model, most) {
                if model.ready() <= STREAM_BYTES && seen.insert(format!("{receiver:?} {model:?}")) {
                    coming.push_back((receiver, model));
                }
            }
        }
        assert!(seen.len() > 100, "{} states", seen.len());
        eprintln!("{} states with up to {most} pieces", seen.len());
    }
}
