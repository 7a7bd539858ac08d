//! Two engines with a wire between them; a seed chooses order and losses.

mod ends;
mod fabric;
mod script;

use proptest::prelude::*;

use self::fabric::{Fabric, Nature};
use crate::memory::Span;
use crate::provider::Work;

#[derive(Debug, Clone)]
enum Event {
    Fill(usize),
    FillFrom(usize),
    /// Positions without bytes.
    Pad(usize),
    Flush,
    Step(usize),
    Take(usize),
    Lose(usize),
    Restore(usize),
    Change(u64, bool),
}

fn events() -> impl Strategy<Value = Vec<Event>> {
    let event = prop_oneof![
        4 => (0..300_usize).prop_map(Event::Fill),
        2 => (0..300_usize).prop_map(Event::FillFrom),
        2 => (0..60_usize).prop_map(Event::Pad),
        1 => Just(Event::Flush),
        8 => (0..3_usize).prop_map(Event::Step),
        3 => (0..200_usize).prop_map(Event::Take),
        1 => (0..3_usize).prop_map(Event::Lose),
        1 => (0..3_usize).prop_map(Event::Restore),
        1 => (16_u64..600, any::<bool>()).prop_map(|(ring, own)| Event::Change(ring, own)),
    ];
    proptest::collection::vec(event, 0..400)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    /// In any order, with any loss and any changes of rings, the stream arrives once, whole and in order. No
    /// place is written to before its bytes were taken, and none of a ring that was left.
    #[test]
    fn the_stream_arrives(
        events in events(),
        ring in 16_u64..300,
        piece in 1_u64..100,
        message in 1_u64..50,
        pieces in 1_usize..20,
        completes_early: bool,
        immediate: bool,
        inline_bytes in 0_u64..200,
    ) {
        let nature = Nature { completes_early, immediate, inline_bytes };
        let mut fabric = Fabric::with(ring, piece.min(ring), message, 3, pieces, nature);
        let stream: Vec<u8> = (0..20_000_u32).map(|n| (n % 251) as u8).collect();
        let mut filled = 0;
        for event in events {
            match event {
                Event::Fill(count) => filled += fabric.fill(&stream[filled..filled + count]),
                Event::FillFrom(count) => {
                    filled += fabric.fill_from(&stream[filled..filled + count]);
                }
                Event::Pad(count) => {
                    let room = fabric.sender.room().first(count);
                    fabric.sender.pad(room.length);
                }
                Event::Flush => fabric.sender.flush(),
                Event::Step(queue_pair) => fabric.step(queue_pair),
                Event::Take(count) => fabric.take(count),
                Event::Lose(queue_pair) => fabric.lose(queue_pair),
                Event::Restore(queue_pair) => fabric.restore(queue_pair),
                Event::Change(ring, has_own) => fabric.change(ring, has_own),
            }
            fabric.take_away();
            fabric.post();
        }
        fabric.sender.finish();
        fabric.restore(0);
        // Each round makes progress, so the number of rounds is bounded.
        for _ in 0..100_000 {
            if fabric.receiver.is_finished() {
                break;
            }
            fabric.post();
            for queue_pair in 0..3 {
                fabric.step(queue_pair);
            }
            fabric.take(usize::MAX);
            fabric.take_away();
        }
        prop_assert!(fabric.receiver.is_finished(), "it stalls: {:?}", fabric.sender);
        prop_assert!(fabric.delivered == stream[..filled]);
    }
}

/// Each loss takes the notice with it that was sent last.
#[test]
fn a_ring_is_not_left_before_the_peer_knows_of_the_next_one() {
    let mut fabric = Fabric::new(100, 50, 50, 1, 8);
    fabric.change(200, true);
    for _ in 0..4 {
        // The first notice is posted, then the rings can be left.
        fabric.post();
        fabric.post();
        fabric.lose(0);
        fabric.restore(0);
    }
    let stream = [7; 150];
    assert_eq!(fabric.fill(&stream), 150);
    fabric.sender.finish();
    for _ in 0..100 {
        fabric.post();
        fabric.step(0);
        fabric.take(usize::MAX);
    }
    assert!(fabric.receiver.is_finished());
    assert_eq!(fabric.delivered, stream);
    assert!(!fabric.receiver.is_moving());
}

/// The adapter of the peer has acknowledged the WRITE, but the queue pair was lost before the peer knew of it. With relaxed ordering the
/// bytes need not be visible then.
#[test]
fn acknowledged_bytes_are_sent_again_if_their_announcement_is_lost() {
    let mut fabric = Fabric::new(100, 50, 50, 1, 8);
    let stream: Vec<u8> = (0..150).collect();
    let mut filled = fabric.fill(&stream[..50]);
    fabric.sender.flush();
    fabric.post();
    // Only the announcement is left.
    fabric.step(0);
    let left = fabric.on_the_way(0);
    assert!(matches!(left[..], [Work::Send(_)]), "{left:?}");
    // The place of the bytes is not free: something else would be sent from there.
    filled += fabric.fill(&stream[filled..]);
    assert_eq!(filled, 100);
    assert_eq!(fabric.sender.room().length, 0);
    fabric.lose(0);
    fabric.hide_unannounced();
    fabric.restore(0);
    fabric.post();
    let again = fabric.on_the_way(0);
    assert!(
        matches!(again[0], Work::Write { span, .. } if span == Span::new(0, 50)),
        "{again:?}"
    );
    for _ in 0..100 {
        filled += fabric.fill(&stream[filled..]);
        if filled == stream.len() {
            fabric.sender.finish();
        }
        fabric.post();
        fabric.step(0);
        fabric.take(usize::MAX);
    }
    assert!(fabric.receiver.is_finished());
    assert_eq!(fabric.delivered, stream);
}

/// The head of a block travels with the announcement of the padding, and the block begins at a multiple.
#[test]
fn the_bytes_after_padding_begin_where_the_sender_wants_them() {
    let nature = Nature {
        inline_bytes: 20,
        ..Nature::default()
    };
    let mut fabric = Fabric::with(1024, 256, 256, 1, 8, nature);
    let stream: Vec<u8> = (0..217).collect();
    fabric.fill(&stream[..17]);
    fabric.sender.pad(64 - 17);
    fabric.fill(&stream[17..]);
    fabric.sender.flush();
    fabric.post();
    let requests = fabric.on_the_way(0);
    assert!(matches!(requests[0], Work::Carry { span, .. } if span == Span::new(0, 17)));
    assert!(matches!(requests[1], Work::Write { span, .. } if span == Span::new(64, 192)));
    fabric.step(0);
    let stretch = fabric.receiver.ready_from(0);
    assert_eq!((stretch.span, stretch.is_whole), (Span::new(0, 17), true));
    fabric.step(0);
    fabric.step(0);
    // The bytes after the padding are seen before those before it were taken out.
    let stretch = fabric.receiver.ready_from(17);
    assert_eq!((stretch.position, stretch.span), (64, Span::new(64, 192)));
    fabric.take(17);
    assert_eq!(fabric.receiver.consumed(), 64);
    fabric.take(usize::MAX);
    assert_eq!(fabric.delivered, stream[..17 + 192]);
}

/// A sender whose ring is full, or ends, announces padding in parts, and a part of it after the bytes before it were taken out.
#[test]
fn padding_that_arrives_late_is_passed_by_a_reader_that_was_ahead() {
    let mut fabric = Fabric::new(1024, 256, 256, 1, 8);
    fabric.fill(&[1; 17]);
    fabric.sender.flush();
    fabric.post();
    fabric.step(0);
    fabric.step(0);
    fabric.take(17);
    // A reader remembers where it goes on.
    let next = fabric.receiver.consumed();
    fabric.sender.pad(64 - 17);
    fabric.fill(&[2; 10]);
    fabric.sender.flush();
    for _ in 0..4 {
        fabric.post();
        fabric.step(0);
    }
    let stretch = fabric.receiver.ready_from(next);
    assert_eq!((stretch.position, stretch.span), (64, Span::new(64, 10)));
}
