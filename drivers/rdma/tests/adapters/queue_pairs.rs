//! The number of queue pairs, their interrupts, and their replacement.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use crate::channel::{Outcome, detail, transfer};
use crate::fabric::{Adapter, recorded, with_adapters};

const BYTES: usize = 2 << 20;

/// IBV_EVENT_LID_CHANGE
const LID_CHANGE: u8 = 11;

/// IBV_EVENT_GID_CHANGE
const GID_CHANGE: u8 = 18;

#[test]
fn a_fast_port_has_several_queue_pairs() {
    with_adapters(&[Adapter::roce("mlx5_0", 1)], || {
        for (stack, expected) in [("rdma:provider=verbs", "2"), ("rdma:qps=1", "1")] {
            let [sender, receiver] = transfer(stack, "rdma", BYTES);
            assert_eq!(detail(&sender, "queue-pairs"), expected, "100 Gb/s");
            assert_eq!(detail(&receiver, "queue-pairs"), expected);
        }
    });
}

/// One READ of 4 KiB in a round trip is far less than the port carries, however short the path is.
#[test]
fn an_adapter_with_few_reads_has_more_queue_pairs() {
    let adapter = Adapter::roce("mlx5_0", 1).with("max_reads", 1);
    with_adapters(&[adapter], || {
        for (mode, expected) in [("put", "2"), ("get", "8")] {
            let stack = format!("rdma:provider=verbs;slab=64K;message=4K;mode={mode}");
            for end in transfer(&stack, &stack, BYTES) {
                assert_eq!(detail(&end, "queue-pairs"), expected, "{mode}");
            }
        }
    });
}

/// It promises more requests than it has memory for.
#[test]
fn an_adapter_with_short_queues_is_used() {
    let adapter = Adapter::roce("mlx5_0", 1).with("created_qp_wr", 200);
    with_adapters(&[adapter], || {
        let stack = "rdma:provider=verbs;message=4K";
        let [sender, receiver] = transfer(stack, stack, BYTES);
        assert_eq!(detail(&sender, "depth"), "128");
        assert_eq!(detail(&receiver, "depth"), "128");
    });
}

/// A ring of the usual length has 192 messages in flight.
#[test]
fn an_adapter_with_few_receive_buffers_is_used() {
    let adapter = Adapter::roce("mlx5_0", 1).with("created_recv_wr", 150);
    with_adapters(&[adapter], || {
        for mode in ["put", "get"] {
            let stack = format!("rdma:provider=verbs;message=4K;immediate=off;mode={mode}");
            let [sender, _] = transfer(&stack, &stack, BYTES);
            assert_eq!(detail(&sender, "provider"), "verbs");
        }
    });
}

#[test]
fn an_adapter_with_too_short_queues_is_refused() {
    let adapter = Adapter::roce("mlx5_0", 1).with("created_qp_wr", 100);
    with_adapters(&[adapter], || {
        let [sender, _] = transfer("rdma:provider=verbs", "rdma:provider=verbs", BYTES);
        let words = sender.expect_err("too few for any channel");
        assert!(words.contains("queue pair"), "{words}");
    });
}

#[test]
fn channels_use_every_interrupt_of_an_adapter() {
    let adapter = Adapter::roce("mlx5_0", 1).with("comp_vectors", 4);
    with_adapters(&[adapter], || {
        for _ in 0..3 {
            let [sender, _] = transfer("rdma", "rdma", 1000);
            assert_eq!(detail(&sender, "provider"), "verbs");
        }
        let vectors: BTreeSet<_> = recorded("mlx5_0", "vectors").into_iter().collect();
        assert_eq!(
            vectors,
            BTreeSet::from([0, 1, 2, 3]),
            "three channels with two ends"
        );
    });
}

/// The threads of channels are on the node of their adapter.
#[test]
fn channels_use_interrupts_near_their_adapter() {
    let adapter = Adapter::roce("mlx5_0", 1).interrupts(&[0, 9, 1, 12]);
    with_adapters(&[adapter], || {
        for _ in 0..2 {
            let [sender, _] = transfer("rdma", "rdma", 1000);
            assert_eq!(detail(&sender, "provider"), "verbs");
        }
        let vectors: BTreeSet<_> = recorded("mlx5_0", "vectors").into_iter().collect();
        assert_eq!(
            vectors,
            BTreeSet::from([1, 3]),
            "on the processors 9 and 12"
        );
    });
}

/// One channel uses both, and the next one other interrupts of both.
#[test]
fn channels_over_two_adapters_use_every_interrupt_of_both() {
    let adapters = [Adapter::roce("mlx5_0", 1), Adapter::roce("mlx5_1", 2)];
    with_adapters(
        &adapters.map(|adapter| adapter.with("comp_vectors", 2)),
        || {
            let stack = "rdma:device=mlx5_0+mlx5_1;provider=verbs";
            let [sender, _] = transfer(stack, stack, 1000);
            assert_eq!(detail(&sender, "rails"), "2");
            for device in ["mlx5_0", "mlx5_1"] {
                let vectors: BTreeSet<_> = recorded(device, "vectors").into_iter().collect();
                assert_eq!(vectors, BTreeSet::from([0, 1]), "{device}, two ends");
            }
        },
    );
}

#[test]
fn a_receiver_with_a_new_lid_is_reached_again() {
    the_new_lid_is_used(1);
}

#[test]
fn a_sender_with_a_new_lid_is_reached_again() {
    the_new_lid_is_used(0);
}

/// The subnet manager gives the adapter of one end another LID during a transfer.
fn the_new_lid_is_used(end: usize) {
    let mut adapters = [
        Adapter::infiniband("mlx5_0", 5),
        Adapter::infiniband("mlx5_1", 9),
    ];
    adapters[end] = adapters[end]
        .clone()
        // After the two tests of the path. A busy receiver may answer only sixteen times in all: once for two slabs.
        .with("event_after", 6)
        .with("event", LID_CHANGE)
        .with("new_lid", 77);
    with_adapters(&adapters, || {
        let stack =
            |device| format!("rdma:device={device};provider=verbs;qps=1;slab=64K;message=4K");
        let outcomes = transfer(&stack("mlx5_0"), &stack("mlx5_1"), BYTES);
        let restored = [0, 1].map(|end: usize| detail(&outcomes[end], "restored"));
        assert!(restored.contains(&"1"), "{restored:?}");
    });
}

/// An adapter whose port gets another prefix, and with it another GID and LID, during a transfer. The path record has the
/// service level 3.
fn with_a_new_prefix(path: &'static str) -> Adapter {
    Adapter::infiniband("mlx5_0", 5)
        .behind_loopback(0xffff)
        .path(path)
        .with("event_after", 50)
        .with("event", LID_CHANGE)
        .with("new_lid", 77)
        .with("new_prefix", 1)
}

#[track_caller]
fn expect_restored(outcomes: &[Outcome; 2]) {
    let restored = [0, 1].map(|end: usize| detail(&outcomes[end], "restored"));
    assert!(restored.iter().any(|count| *count != "0"), "{restored:?}");
}

/// Switches have buffers for the service level of the path record only.
#[test]
fn the_path_to_a_new_address_is_asked_for_again() {
    let adapter = with_a_new_prefix("3 4 0 5").with("service_level", 3);
    with_adapters(&[adapter], || {
        let stack = "rdma:provider=verbs;qps=2;slab=64K;message=4K";
        expect_restored(&transfer(stack, stack, BYTES));
    });
}

/// Both ends have both adapters. The second one is slow, so that the first is used again.
#[test]
fn the_path_of_one_of_two_adapters_is_asked_for_again() {
    let adapters = [
        with_a_new_prefix("3 4 0 5").with("service_level", 3),
        Adapter::infiniband("mlx5_1", 9).with("delay_us", 2000),
    ];
    with_adapters(&adapters, || {
        let stack = "rdma:device=mlx5_0+mlx5_1;provider=verbs;qps=2;slab=64K;message=4K";
        let outcomes = transfer(stack, stack, BYTES);
        let rails = [0, 1].map(|end: usize| detail(&outcomes[end], "rails"));
        assert_eq!(rails, ["2", "2"]);
        expect_restored(&outcomes);
    });
}

/// ibacm has answered both ends when the channel opened. The other adapter carries the data while the path is searched for.
#[test]
fn a_search_for_a_path_does_not_hold_up_other_adapters() {
    let adapters = [
        with_a_new_prefix("3 4 0 5").ibacm("2 90000"),
        Adapter::infiniband("mlx5_1", 9),
    ];
    with_adapters(&adapters, || {
        let stack = "rdma:device=mlx5_0+mlx5_1;provider=verbs;qps=2;slab=64K;message=4K";
        let start = Instant::now();
        let outcomes = transfer(stack, stack, BYTES);
        assert!(start.elapsed() < Duration::from_secs(30));
        for outcome in &outcomes {
            assert_eq!(detail(outcome, "provider"), "verbs");
        }
    });
}

/// The subnet manager has answered both ends when the channel opened, and is gone. Within a subnet the LID is enough.
#[test]
fn a_path_that_is_not_found_again_is_not_waited_for() {
    with_adapters(&[with_a_new_prefix("3 4 0 5 2")], || {
        let stack = "rdma:provider=verbs;qps=2;slab=64K;message=4K";
        expect_restored(&transfer(stack, stack, BYTES));
    });
}

/// The first link of a bond fails. Its address comes back with the other link, some time after requests were lost.
#[test]
fn an_address_that_is_absent_for_a_moment_is_waited_for() {
    let adapter = Adapter::roce("mlx5_0", 1)
        .with("event_after", 50)
        .with("event", GID_CHANGE)
        .with("absent_ms", 1200);
    with_adapters(&[adapter], || {
        let stack = "rdma:provider=verbs;qps=1;slab=64K;message=4K";
        let outcomes = transfer(stack, stack, BYTES);
        let restored = [0, 1].map(|end: usize| detail(&outcomes[end], "restored"));
        assert!(restored.contains(&"1"), "{restored:?}");
    });
}

/// Both ends report why, and do not wait for each other.
#[test]
fn an_address_that_stays_absent_ends_the_channel() {
    let adapter = Adapter::roce("mlx5_0", 1)
        .with("event_after", 50)
        .with("event", GID_CHANGE)
        .with("absent_ms", 60_000);
    with_adapters(&[adapter], || {
        let stack = "rdma:provider=verbs;qps=2;slab=64K;message=4K";
        let outcomes = transfer(stack, stack, BYTES);
        let words = outcomes.map(|outcome| outcome.expect_err("no address"));
        let is_named = |words: &String| words.contains("has no address 127.0.0.1 any more");
        assert!(words.iter().any(is_named), "{words:?}");
    });
}
