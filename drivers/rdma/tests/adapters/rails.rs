//! A channel over several adapters.

use std::thread;
use std::time::{Duration, Instant};

use gridhaul_rdma::memory_load;

use crate::channel::{Outcome, detail, transfer, transfer_and_look};
use crate::fabric::{Adapter, let_go, recorded, with_adapters};

const BYTES: usize = 5 << 20;

/// IBV_EVENT_DEVICE_FATAL
const DEVICE_FATAL: u8 = 8;

/// IBV_EVENT_PORT_ERR
const PORT_DOWN: u8 = 10;

const OPTIONS: &str = "provider=verbs;slab=64K;message=4K";

/// The first two are those of the connecting end, the others those of the accepting end.
fn four() -> [Adapter; 4] {
    [
        Adapter::roce("mlx5_0", 1),
        Adapter::roce("mlx5_1", 2),
        Adapter::roce("mlx5_2", 3),
        Adapter::roce("mlx5_3", 4),
    ]
}

fn transfer_between_pairs(options: &str) -> [Outcome; 2] {
    transfer(
        &format!("rdma:device=mlx5_0+mlx5_1;{OPTIONS}{options}"),
        &format!("rdma:device=mlx5_2+mlx5_3;{OPTIONS}{options}"),
        BYTES,
    )
}

#[track_caller]
fn expect_rails(outcomes: &[Outcome; 2], rails: &str) {
    let found = [0, 1].map(|end: usize| detail(&outcomes[end], "rails"));
    assert_eq!(found, [rails; 2]);
}

#[test]
fn one_channel_uses_two_adapters() {
    with_adapters(&four(), || {
        // More for READs, of which a device takes few.
        for (options, queue_pairs) in [("", "4"), (";mode=get;qps=6", "6")] {
            let outcomes = transfer_between_pairs(options);
            expect_rails(&outcomes, "2");
            let [sender, receiver] = &outcomes;
            assert_eq!(detail(sender, "device"), "mlx5_0/1+mlx5_1/1");
            assert_eq!(detail(receiver, "device"), "mlx5_2/1+mlx5_3/1");
            assert_eq!(detail(sender, "queue-pairs"), queue_pairs);
        }
    });
}

#[test]
fn infiniband_has_rails_too() {
    let adapters = [
        Adapter::infiniband("mlx5_0", 5),
        Adapter::infiniband("mlx5_1", 6),
        Adapter::infiniband("mlx5_2", 9),
        Adapter::infiniband("mlx5_3", 10),
    ];
    with_adapters(&adapters, || {
        let outcomes = transfer_between_pairs(";qps=3");
        expect_rails(&outcomes, "2");
        assert_eq!(detail(&outcomes[0], "protocol"), "InfiniBand");
    });
}

#[test]
fn adapters_are_named_by_address() {
    with_adapters(&four(), || {
        let outcomes = transfer(
            "rdma:device=127.0.0.1+127.0.0.2;provider=verbs",
            "rdma:device=mlx5_2+127.0.0.4;provider=verbs",
            BYTES,
        );
        expect_rails(&outcomes, "2");
        assert_eq!(detail(&outcomes[1], "device"), "mlx5_2/1+mlx5_3/1");
    });
}

#[test]
fn an_adapter_with_a_smaller_mtu_has_shorter_packets() {
    let [first, second, third, fourth] = four();
    let adapters = [first, second.with("path_mtu", 3), third, fourth];
    with_adapters(&adapters, || {
        let outcomes = transfer_between_pairs("");
        expect_rails(&outcomes, "2");
        // Of the rail with the shortest packets.
        let mtus = [0, 1].map(|end: usize| detail(&outcomes[end], "mtu-bytes"));
        assert_eq!(mtus, ["1024", "1024"]);
    });
}

#[test]
fn a_slow_adapter_does_not_hold_up_a_fast_one() {
    let [first, second, third, fourth] = four();
    let adapters = [first, second.with("delay_us", 2000), third, fourth];
    with_adapters(&adapters, || expect_rails(&transfer_between_pairs(""), "2"));
}

#[test]
fn a_device_of_the_sender_that_breaks_down_leaves_the_other() {
    the_other_carries_on(1, DEVICE_FATAL);
}

#[test]
fn a_device_of_the_receiver_that_breaks_down_leaves_the_other() {
    the_other_carries_on(3, DEVICE_FATAL);
}

#[test]
fn the_first_device_of_the_sender_may_break_down() {
    the_other_carries_on(0, DEVICE_FATAL);
}

#[test]
fn the_first_device_of_the_receiver_may_break_down() {
    the_other_carries_on(2, DEVICE_FATAL);
}

#[test]
fn a_port_of_the_sender_that_goes_down_leaves_the_other() {
    the_other_carries_on(1, PORT_DOWN);
}

#[test]
fn a_port_of_the_receiver_that_goes_down_leaves_the_other() {
    the_other_carries_on(3, PORT_DOWN);
}

/// An adapter has this event after it has carried out some requests, and then carries out none. A receiver has many requests
/// where it READs.
fn the_other_carries_on(broken: usize, event: u8) {
    let mode = if broken < 2 { "put" } else { "get" };
    let mut adapters = four();
    adapters[broken] = adapters[broken]
        .clone()
        .with("event_after", 100)
        .with("event", event);
    with_adapters(&adapters, || {
        let outcomes = transfer_between_pairs(&format!(";qps=2;mode={mode}"));
        expect_rails(&outcomes, "1");
    });
}

/// The switch of the second path fails. Then the kernel waits for the neighbour whenever a queue pair is connected.
#[test]
fn a_neighbour_that_does_not_answer_any_more_does_not_hold_up_the_others() {
    let [first, second, third, fourth] = four();
    let second = second
        .with("event_after", 100)
        .with("event", PORT_DOWN)
        .with("rtr_errno", libc::ETIMEDOUT)
        .with("rtr_after", 100)
        .with("rtr_ms", 2000);
    with_adapters(&[first, second, third, fourth], || {
        let start = Instant::now();
        let outcomes = transfer_between_pairs(";qps=4");
        expect_rails(&outcomes, "1");
        // Waiting for each generation of each queue pair takes two minutes.
        assert!(start.elapsed() < Duration::from_secs(15));
    });
}

#[test]
fn all_adapters_that_break_down_end_the_channel() {
    let [first, second, third, fourth] = four();
    let broken = |adapter: Adapter| {
        let adapter = adapter.with("event_after", 100);
        adapter.with("event", DEVICE_FATAL)
    };
    let adapters = [broken(first), broken(second), third, fourth];
    with_adapters(&adapters, || {
        let words = transfer_between_pairs("").map(|outcome| outcome.expect_err("both are broken"));
        let is_named = |words: &String| words.contains("local catastrophic error");
        assert!(words.iter().any(is_named), "{words:?}");
    });
}

/// Nothing gets through on the second path, although both of its ports are active.
#[test]
fn a_path_that_carries_nothing_is_left_out() {
    let [first, second, third, fourth] = four();
    let adapters = [first, second, third, fourth.with("path_mtu", 0)];
    with_adapters(&adapters, || {
        // The first channel tests the path for three seconds.
        let times = [(); 2].map(|()| {
            let start = Instant::now();
            let [sender, receiver] = transfer_between_pairs("");
            assert_eq!(detail(&sender, "device"), "mlx5_0/1");
            assert_eq!(detail(&receiver, "device"), "mlx5_2/1");
            assert_eq!(detail(&sender, "queue-pairs"), "2");
            // The two rings, of four slabs each, at one adapter.
            let pinned = [&sender, &receiver].map(|end| detail(end, "pinned-bytes"));
            assert_eq!(pinned, ["524288"; 2]);
            start.elapsed()
        });
        assert!(times[1] < times[0], "{times:?}");
    });
}

/// The budget of pinned memory has room only when the kernel has.
#[test]
fn memory_counts_until_an_adapter_that_is_left_out_has_deregistered_it() {
    const LONG_BYTES: u64 = 64 << 20;
    let [first, second, third, fourth] = four();
    let second = second.with("keeps_memory", 1);
    let fourth = fourth.with("keeps_memory", 1).with("path_mtu", 0);
    with_adapters(&[first, second, third, fourth], || {
        let stack = |devices| format!("rdma:device={devices};provider=verbs;slab=16M;slabs=4");
        let left_out = ["mlx5_1", "mlx5_3"];
        let long_ones = || {
            let all = left_out.map(|device| recorded(device, "deregistered"));
            let all = all.iter().flatten();
            all.filter(|bytes| **bytes >= LONG_BYTES).count()
        };
        let look = || {
            let held = memory_load();
            if held.used_bytes < 2 * LONG_BYTES {
                eprintln!("not tested: rings of {held:?}, see `ulimit -l`");
                left_out.into_iter().for_each(let_go);
                return;
            }
            assert_eq!(long_ones(), 0);
            let twice = 2 * held.used_bytes;
            assert_eq!(held.pinned_bytes, twice, "by two adapters of each end");
            left_out.into_iter().for_each(let_go);
            let end = Instant::now() + Duration::from_secs(60);
            let counts_once = || {
                let load = memory_load();
                load.pinned_bytes == load.used_bytes
            };
            // Two rings of each end.
            while long_ones() < 4 || !counts_once() {
                assert!(Instant::now() < end, "{:?}", memory_load());
                thread::yield_now();
            }
        };
        let outcomes = transfer_and_look(
            &stack("mlx5_0+mlx5_1"),
            &stack("mlx5_2+mlx5_3"),
            BYTES,
            look,
        );
        expect_rails(&outcomes, "");
    });
}

#[test]
fn the_first_path_may_be_left_out() {
    let [first, second, third, fourth] = four();
    let adapters = [first.with("path_mtu", 0), second, third, fourth];
    with_adapters(&adapters, || {
        for options in ["", ";mode=get"] {
            let [sender, receiver] = transfer_between_pairs(options);
            assert_eq!(detail(&sender, "device"), "mlx5_1/1");
            assert_eq!(detail(&receiver, "device"), "mlx5_3/1");
        }
    });
}

/// The switch of the second path is off: the kernel gets no answer of the neighbour.
#[test]
fn a_path_without_a_neighbour_is_left_out() {
    let [first, second, third, fourth] = four();
    let fourth = fourth.with("rtr_errno", libc::ETIMEDOUT);
    with_adapters(&[first, second, third, fourth], || {
        let [sender, receiver] = transfer_between_pairs("");
        assert_eq!(detail(&sender, "device"), "mlx5_0/1");
        assert_eq!(detail(&receiver, "device"), "mlx5_2/1");
    });
}

#[test]
fn paths_that_carry_nothing_are_named() {
    let adapters = four().map(|adapter| adapter.with("path_mtu", 0));
    with_adapters(&adapters, || {
        for outcome in transfer_between_pairs("") {
            let words = outcome.expect_err("nothing gets through");
            assert!(words.contains("UDP port 4791"), "{words}");
        }
    });
}

/// A device that is not there is no reason for a failure.
#[test]
fn fewer_adapters_than_named_are_used() {
    with_adapters(&four(), || {
        let [sender, receiver] = transfer(
            "rdma:device=mlx5_0+mlx5_9;provider=verbs",
            "rdma:device=mlx5_0+mlx5_1;provider=verbs",
            BYTES,
        );
        assert_eq!(detail(&sender, "device"), "mlx5_0/1");
        assert_eq!(
            detail(&receiver, "device"),
            "mlx5_0/1",
            "its address is that of the data connection"
        );
        let reason = detail(&sender, "reason");
        assert!(reason.contains("no RDMA device mlx5_9"), "{reason}");
    });
}

#[test]
fn an_end_with_one_adapter_may_use_several_of_the_other() {
    with_adapters(&four(), || {
        // The option gid allows the addresses that the other end names.
        let several = "rdma:device=mlx5_2+mlx5_3;provider=verbs";
        let outcomes = transfer("rdma:device=mlx5_0;gid=1;provider=verbs", several, BYTES);
        expect_rails(&outcomes, "2");
        assert_eq!(detail(&outcomes[0], "device"), "mlx5_0/1");
        let [_, receiver] = transfer("rdma:provider=verbs", "rdma:device=mlx5_0+mlx5_1", BYTES);
        assert_eq!(detail(&receiver, "rails"), "", "not without it");
    });
}

#[test]
fn a_single_queue_pair_uses_a_single_adapter() {
    with_adapters(&four(), || {
        let stack = "rdma:device=mlx5_0+mlx5_1;provider=verbs;qps=1";
        let [sender, _] = transfer(stack, stack, BYTES);
        assert_eq!(detail(&sender, "device"), "mlx5_0/1");
    });
}
