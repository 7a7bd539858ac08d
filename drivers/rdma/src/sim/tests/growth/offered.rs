//! Rings that are announced and offered, and perhaps cannot be prepared or are not used.

use std::time::Duration;

use super::{Channels, Grown, MIB, SOON, USUAL};
use crate::engine::Message;
use crate::handshake::Mode;
use crate::provider::{Endpoint as _, Request, Work};

/// A channel whose sender has memory for another ring only so long after it has asked for it, after it has sent enough for the
/// receiver to offer one, and the bytes that each end had registered before.
fn offered(takes: Duration) -> (Grown, [u64; 2]) {
    let round_trip = Duration::from_millis(100);
    let mut grown = Grown::with(Channels {
        mode: Mode::Put,
        count: 1,
        rails: &[10],
        round_trip,
        pools: [64 << 30; 2],
        takes: [takes, SOON],
        fails_once_in: [0; 2],
    });
    let before = grown.registered();
    grown.have(128 * MIB);
    grown.run.run_until(Duration::from_secs(30)).unwrap();
    assert_eq!(grown.received(), [128 * MIB]);
    let [sends, receives] = grown.registered();
    assert!(sends == before[0] && receives > before[1], "it is offered");
    (grown, before)
}

impl Grown {
    fn registered(&self) -> [u64; 2] {
        [0, 1].map(|end| self.run.channels[0][end].endpoint.registered_bytes())
    }

    /// The sender has so many bytes in all.
    fn have(&mut self, bytes: u64) {
        let now = self.run.now;
        self.run.channels[0][0].have(bytes, now);
    }
}

/// The peer answers when its memory is there, 100 seconds later.
#[test]
fn an_offered_ring_that_the_stream_does_not_use_is_taken_back() {
    let (mut grown, before) = offered(Duration::from_secs(100));
    grown.run.run_until(Duration::from_secs(150)).unwrap();
    assert_eq!(grown.registered(), before);
    assert_eq!(grown.moves(), [0, 0]);
    // The stream goes on, and another ring is offered.
    grown.have(256 * MIB);
    grown.run.run_until(Duration::from_secs(170)).unwrap();
    assert_eq!(grown.received(), [256 * MIB]);
    assert!(grown.registered()[1] > before[1]);
}

/// It may be idle, or hostile. It gets no other ring before it answers.
#[test]
fn an_offered_ring_is_deregistered_if_the_peer_does_not_answer() {
    let (mut grown, before) = offered(Duration::MAX);
    grown.run.run_until(Duration::from_secs(300)).unwrap();
    assert!(grown.registered()[1] > before[1], "it may have moved");
    grown.run.run_until(Duration::from_secs(400)).unwrap();
    assert_eq!(grown.registered(), before);
    grown.have(256 * MIB);
    grown.run.run_until(Duration::from_secs(500)).unwrap();
    assert_eq!(grown.received(), [256 * MIB]);
    assert_eq!(grown.registered(), before);
}

/// The rings of each end take a second.
#[test]
fn both_ends_prepare_their_rings_at_the_same_time() {
    for mode in [Mode::Put, Mode::Get] {
        let mut grown = Grown::with(Channels {
            mode,
            count: 1,
            rails: &[10],
            round_trip: Duration::from_millis(100),
            pools: [64 << 30; 2],
            takes: [Duration::from_secs(1); 2],
            fails_once_in: [0; 2],
        });
        grown.run.run_until(Duration::from_millis(900)).unwrap();
        assert_eq!(grown.moves(), [0, 0], "{mode:?}");
        // The rings, and some round trips before and after.
        grown.run.run_until(Duration::from_millis(1800)).unwrap();
        assert_eq!(grown.moves(), [1, 1], "{mode:?}");
    }
}

/// A channel over which 128 MiB are sent, and one ring of so many of each end cannot be prepared. Returns the most bytes that each end
/// had registered beyond the first rings, and has at the end.
fn with_failures(fails_once_in: [u64; 2]) -> (Grown, [[u64; 2]; 2]) {
    let mut grown = Grown::with(Channels {
        mode: Mode::Put,
        count: 1,
        rails: &[10],
        round_trip: Duration::from_millis(100),
        pools: [64 << 30; 2],
        takes: [SOON; 2],
        fails_once_in,
    });
    let first = grown.registered();
    grown.have(128 * MIB);
    let further = |grown: &Grown| [0, 1].map(|end| grown.registered()[end] - first[end]);
    let mut most = [0; 2];
    while grown.run.step(Duration::from_secs(30)).unwrap() {
        let now = further(&grown);
        most = [0, 1].map(|end| now[end].max(most[end]));
    }
    assert_eq!(grown.received(), [128 * MIB]);
    let last = further(&grown);
    (grown, [most, last])
}

/// The sender has prepared its own by then.
#[test]
fn a_ring_that_the_receiver_cannot_prepare_changes_nothing() {
    let (grown, [most, last]) = with_failures([0, 1]);
    assert!(most[0] > USUAL && most[1] == 0, "{most:?}");
    assert_eq!((grown.moves(), last), ([0, 0], [0, 0]));
}

#[test]
fn a_sender_that_cannot_prepare_a_ring_keeps_its_own() {
    let (grown, [most, last]) = with_failures([1, 0]);
    assert!(most[0] == 0 && last[1] > 0, "{most:?} {last:?}");
    assert_eq!(grown.moves(), [1, 1]);
}

/// The peer may never offer it. A ring of ours has at most fourteen times what the peer has taken.
#[test]
fn an_announced_ring_is_prepared_for_only_as_far_as_the_peer_takes_data() {
    let mut grown = Grown::new(10, Duration::from_millis(100), 1, [64 << 30; 2]);
    let [first, _] = grown.registered();
    // Half of the ring is no reason for a longer one.
    grown.have(8 * MIB);
    grown.run.run_until(Duration::from_secs(1)).unwrap();
    let now = grown.run.now;
    let peer = &mut grown.run.channels[0][1];
    let queue_pair = peer.exchange.sender.reserve(now).unwrap();
    let announced = Message::Preparing {
        number: 1,
        bytes: 32 << 30,
    };
    let work = Work::Send(announced.encode());
    let request = Request { id: 0, work };
    peer.endpoint.post(queue_pair, request).unwrap();
    peer.endpoint.ring_doorbell();
    grown.run.run_until(Duration::from_secs(90)).unwrap();
    let further = grown.registered()[0] - first;
    assert!((1..=14 * 8 * MIB).contains(&further), "{further}");
    // The stream goes on in the rings that it has.
    grown.have(16 * MIB);
    grown.run.run_until(Duration::from_secs(91)).unwrap();
    assert_eq!((grown.received(), grown.moves()), (vec![16 * MIB], [0, 0]));
}
