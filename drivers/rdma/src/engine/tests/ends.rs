//! Each end alone: what a receiver refuses, and what a sender posts, when and for how long it needs memory.

use std::num::NonZeroU64;
use std::time::Duration;

use proptest::prelude::*;

use super::fabric::{ADDRESS, Fabric, fabric_settings, remote};
use crate::engine::receiver::ReceiverError;
use crate::engine::ring::place_of_immediate;
use crate::engine::sender::{Post, SenderError};
use crate::engine::{Receiver, Ring, Sender, SenderSettings, immediate};
use crate::memory::Span;
use crate::pacing::{Pacer, Pacers, Path, Rate};
use crate::provider::Work;

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    /// Any message of a peer is either applied or refused, without another effect.
    #[test]
    fn a_receiver_validates_every_message(
        messages in proptest::collection::vec((0_u64..200, 0_u64..120, 0..5_u8), 0..40),
    ) {
        let ring = Ring::new(NonZeroU64::new(100).unwrap());
        let mut receiver = Receiver::new(ring, 8);
        receiver.take_immediates();
        receiver.take_inline(50);
        for (start, length, kind) in messages {
            let _ = match kind {
                0 => receiver.ended(start),
                2 => receiver.carried(start, length).map(|_| ()),
                3 => receiver.padded(start, length / 2, length / 3).map(|_| ()),
                1 => receiver.written(immediate(start.wrapping_sub(50)), length),
                _ => receiver.arrived(start, length),
            };
            let ready = receiver.ready();
            prop_assert!(ready.offset + ready.length <= 100);
            receiver.consume(ready.length / 2);
            if receiver.owes_credit() {
                receiver.credit();
            }
        }
    }
}

#[test]
fn violations_are_named() {
    let ring = Ring::new(NonZeroU64::new(100).unwrap());
    let mut receiver = Receiver::new(ring, 2);
    assert_eq!(receiver.arrived(0, 0), Err(ReceiverError::Empty));
    let beyond = ReceiverError::BeyondCredit {
        end: 101,
        limit: 100,
    };
    assert_eq!(receiver.arrived(1, 100), Err(beyond));
    receiver.arrived(50, 10).unwrap();
    receiver.arrived(50, 10).unwrap();
    let overlap = ReceiverError::Overlap { start: 55, end: 56 };
    assert_eq!(receiver.arrived(55, 1), Err(overlap));
    receiver.arrived(70, 10).unwrap();
    assert_eq!(
        receiver.arrived(90, 10),
        Err(ReceiverError::TooManyPieces(2))
    );
    assert_eq!(receiver.ended(60), Err(ReceiverError::End { at: 60 }));
    assert_eq!(receiver.written(10, 10), Err(ReceiverError::Immediate));
    let inline = ReceiverError::Inline {
        length: 10,
        most: 0,
    };
    assert_eq!(receiver.carried(10, 10), Err(inline));
}

#[test]
fn a_peer_cannot_make_a_receiver_remember_more_padding_than_pieces() {
    let ring = Ring::new(NonZeroU64::new(1000).unwrap());
    let mut receiver = Receiver::new(ring, 3);
    assert_eq!(receiver.padded(0, 0, 0), Err(ReceiverError::Empty));
    let inline = ReceiverError::Inline { length: 1, most: 0 };
    assert_eq!(receiver.padded(0, 1, 5), Err(inline));
    // The first byte is not taken out, so nothing is passed.
    receiver.arrived(0, 1).unwrap();
    for start in [1, 2, 3] {
        receiver.padded(start, 0, 1).unwrap();
    }
    let refused = receiver.padded(4, 0, 1);
    assert_eq!(refused, Err(ReceiverError::TooManyPieces(3)));
    assert_eq!(receiver.ready(), Span::new(0, 1));
    receiver.consume(1);
    assert_eq!(receiver.consumed(), 4);
    // A repeated piece has no effect.
    assert_eq!(receiver.padded(2, 0, 1), Ok(None));
    assert_eq!(receiver.ready().length, 0);
}

#[test]
fn numbers_of_32_bits_name_places_of_long_streams() {
    let mark = 1_u64 << 32;
    for (start, least) in [
        (0, 0),
        (mark - 1, mark - 100),
        (mark, mark - 100),
        (7 * mark + 5, 7 * mark - (1 << 31)),
        (9 * mark - 1, 8 * mark),
    ] {
        assert_eq!(place_of_immediate(immediate(start), least), start);
    }
}

#[test]
fn credit_for_bytes_that_were_not_sent_is_refused() {
    let mut fabric = Fabric::new(100, 10, 10, 1, 4);
    fabric.fill(&[1; 30]);
    fabric.post();
    let refused = fabric.sender.credited(30);
    let excess = SenderError::Credit {
        claimed: 30,
        sent: 20,
    };
    // Depth 5: two pieces were announced; of the third only the WRITE was posted.
    assert_eq!(refused, Err(excess));
    fabric.sender.credited(20).unwrap();
    // A message that was overtaken on a quicker queue pair has no effect.
    fabric.sender.credited(10).unwrap();
    assert_eq!(fabric.sender.credited(30), refused);
}

#[test]
fn memory_outside_the_ring_is_needed_until_its_requests_complete() {
    let mut fabric = Fabric::new(100, 100, 10, 1, 4);
    fabric.fill(&[1; 5]);
    fabric.fill_from(&[2; 12]);
    fabric.sender.flush();
    let posts: Vec<Post> = std::iter::from_fn(|| fabric.sender.next(fabric.now)).collect();
    let writes = posts.iter().filter_map(|post| match post.request.work {
        Work::Write {
            region, span, to, ..
        } => Some((region, span, to.address - ADDRESS)),
        _ => None,
    });
    let expected = [
        (0, Span::new(0, 5), 0),
        (1, Span::new(0, 10), 5),
        (1, Span::new(10, 2), 15),
    ];
    assert_eq!(writes.collect::<Vec<_>>(), expected);
    fabric.sender.credited(17).unwrap();
    assert_eq!(fabric.sender.needed_from(), 0);
    for post in posts {
        fabric.sender.completed(0, post.request.id, fabric.now);
    }
    assert_eq!(fabric.sender.needed_from(), 17);
}

/// Posts everything that the sender has, with its queue pairs.
fn posts(sender: &mut Sender) -> Vec<Post> {
    std::iter::from_fn(|| sender.next(Duration::ZERO)).collect()
}

/// One poll reads the notice of a loss from one queue, and then what had completed before the loss from another.
#[test]
fn a_completion_that_is_read_after_the_loss_does_not_free_the_place_of_a_piece() {
    let mut fabric = Fabric::new(100, 10, 10, 2, 8);
    fabric.fill(&[1; 10]);
    let first = posts(&mut fabric.sender);
    let lost = first[0].queue_pair;
    assert!(fabric.sender.lost(lost));
    for post in first {
        fabric.sender.completed(lost, post.request.id, fabric.now);
    }
    let again = posts(&mut fabric.sender);
    // The peer has the first copy, and the second one is on its way to the same place.
    fabric.sender.credited(10).unwrap();
    assert_eq!(fabric.sender.needed_from(), 0);
    for post in again {
        assert_ne!(post.queue_pair, lost);
        fabric
            .sender
            .completed(post.queue_pair, post.request.id, fabric.now);
    }
    assert_eq!(fabric.sender.needed_from(), 10);
}

/// The peer notices the loss first, and reports it together with credit for what it had fetched.
#[test]
fn credit_for_a_fetched_piece_after_a_loss_leaves_nothing_to_announce() {
    let fabric = Fabric::new(1000, 1000, 1000, 2, 4);
    let settings = SenderSettings {
        is_fetched: true,
        queue_pairs: 2,
        remote: remote(2),
        piece_bytes: 100,
        ..fabric_settings(&fabric)
    };
    let pacers = Pacers::new(&[Path::new(Rate::Any, 0), Path::new(Rate::Any, 0)], 0);
    let mut sender = Sender::new(settings, pacers);
    sender.fill(200);
    sender.flush();
    let announced = posts(&mut sender);
    let [first, second] = [announced[0].queue_pair, announced[1].queue_pair];
    assert_ne!(first, second);
    sender.lost(first);
    sender.credited(100).unwrap();
    posts(&mut sender);
    assert!(sender.is_posted());
}

#[test]
fn messages_leave_at_the_rate_of_the_path() {
    let mut fabric = Fabric::new(1000, 1000, 10, 1, 4);
    fabric.sender = {
        let pacer = Pacer::new(Path::new(Rate::Fixed(100), 10), 1);
        Sender::new(fabric_settings(&fabric), pacer)
    };
    fabric.fill(&[1; 30]);
    fabric.sender.flush();
    for round in 0..3 {
        let post = fabric.sender.next(fabric.now).expect("its time has come");
        assert!(matches!(post.request.work, Work::Write { .. }));
        if round < 2 {
            assert_eq!(fabric.sender.next(fabric.now), None);
            let at = fabric
                .sender
                .next_at(fabric.now)
                .expect("the pacer holds it back");
            assert_eq!(at, fabric.now + Duration::from_millis(100));
            fabric.now = at;
        }
    }
    assert_eq!(fabric.sender.next_at(fabric.now), None);
}
