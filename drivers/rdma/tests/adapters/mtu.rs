//! Paths that discard long packets without an answer.

use std::time::{Duration, Instant};

use crate::channel::{detail, transfer};
use crate::fabric::{Adapter, recorded, with_adapters, with_adapters_and_mtu};

const BYTES: usize = 1 << 20;

#[test]
fn packets_are_as_long_as_the_path_carries() {
    // 1024 bytes, as between switches with an MTU of 1500.
    let adapter = Adapter::roce("mlx5_0", 1).with("path_mtu", 3);
    with_adapters(&[adapter], || {
        for mode in ["put", "get"] {
            let stack = format!("rdma:provider=verbs;qps=2;mode={mode}");
            let ends = transfer(&stack, &stack, BYTES);
            let mtus = [&ends[0], &ends[1]].map(|end| detail(end, "mtu-bytes"));
            assert_eq!(mtus, ["1024", "1024"], "{mode}");
            assert_eq!(detail(&ends[0], "restored"), "0");
        }
    });
}

/// The path carries long packets as well, so that only TCP tells of a shorter one. No queue pair is connected a second time.
#[test]
fn packets_are_at_first_no_longer_than_those_of_tcp() {
    let adapter = Adapter::roce("mlx5_0", 1);
    with_adapters_and_mtu(&[adapter], 1500, || {
        let stack = "rdma:provider=verbs;qps=2";
        for end in transfer(stack, stack, BYTES) {
            assert_eq!(detail(&end, "mtu-bytes"), "1024");
        }
        // 1024 bytes, for two queue pairs at each end.
        assert_eq!(recorded("mlx5_0", "mtus"), [3; 4]);
    });
}

/// Each failed test flushes all receives.
#[test]
fn completions_of_failed_tests_overrun_no_queue() {
    // 256 bytes, after five tests.
    let adapter = Adapter::roce("mlx5_0", 1)
        .with("path_mtu", 1)
        .with("keeps_completions", 1);
    with_adapters(&[adapter], || {
        let ends = transfer("rdma:provider=verbs", "rdma:provider=verbs", BYTES);
        let mtus = [&ends[0], &ends[1]].map(|end| detail(end, "mtu-bytes"));
        assert_eq!(mtus, ["256", "256"]);
        assert_eq!(detail(&ends[0], "restored"), "0");
    });
}

/// A device tries each packet eight times, and both ends have the same device: the first test of each fails.
const LOST: usize = 20;

#[test]
fn a_path_that_loses_some_packets_keeps_its_mtu() {
    let adapter = Adapter::roce("mlx5_0", 1).with("lose_first", LOST);
    with_adapters(&[adapter], the_mtu_is_that_of_the_port);
}

#[test]
fn a_path_that_loses_some_long_packets_keeps_its_mtu() {
    let adapter = Adapter::roce("mlx5_0", 1)
        .with("lose_first", LOST)
        .with("lose_above", 256);
    with_adapters(&[adapter], the_mtu_is_that_of_the_port);
}

fn the_mtu_is_that_of_the_port() {
    let stack = "rdma:provider=verbs;qps=1";
    let ends = transfer(stack, stack, BYTES);
    let mtus = [&ends[0], &ends[1]].map(|end| detail(end, "mtu-bytes"));
    assert_eq!(mtus, ["4096", "4096"]);
    assert_eq!(detail(&ends[0], "restored"), "0");
}

#[test]
fn a_path_without_roce_is_named() {
    let adapter = Adapter::roce("mlx5_0", 1).with("path_mtu", 0);
    with_adapters(&[adapter], || {
        let start = Instant::now();
        let ends = transfer("rdma:provider=verbs", "rdma:provider=verbs", BYTES);
        // Three tests of a second each, and what a busy machine adds.
        assert!(start.elapsed() < Duration::from_secs(15));
        for words in ends.map(|end| end.expect_err("nothing gets through")) {
            assert!(words.contains("UDP port 4791"), "{words}");
            assert!(words.contains("127.0.0.1"), "{words}");
        }
    });
}

#[test]
fn without_a_neighbour_a_channel_uses_tcp() {
    let adapter = Adapter::roce("mlx5_0", 1).with("rtr_errno", libc::ETIMEDOUT);
    with_adapters(&[adapter], || {
        for end in &transfer("rdma:qps=2", "rdma", BYTES) {
            assert_eq!(detail(end, "provider"), "soft");
            let reason = detail(end, "reason");
            assert!(reason.contains("finds no way"), "{reason}");
        }
    });
}

/// With the default `provider=auto` at both ends the channel needs no packets of adapters.
#[test]
fn without_roce_a_channel_uses_tcp() {
    let adapter = Adapter::roce("mlx5_0", 1).with("path_mtu", 0);
    with_adapters(&[adapter], || {
        let ends = transfer("rdma:qps=2", "rdma", BYTES);
        for end in &ends {
            assert_eq!(detail(end, "provider"), "soft");
        }
        for [connecting, accepting] in [["verbs", "auto"], ["auto", "verbs"]] {
            let stack = |provider| format!("rdma:provider={provider}");
            for end in transfer(&stack(connecting), &stack(accepting), BYTES) {
                let words = end.expect_err("one end allows nothing else");
                assert!(words.contains("UDP port 4791"), "{words}");
            }
        }
    });
}

/// The next channel relies on the test of the one before. With `provider=verbs` at one end there would be none, and the path is
/// tested again.
#[test]
fn a_path_without_roce_is_remembered() {
    let adapter = Adapter::roce("mlx5_0", 1).with("path_mtu", 0);
    with_adapters(&[adapter], || {
        let is_remembered = |connecting: &str, accepting: &str| {
            let ends = transfer(connecting, accepting, BYTES);
            let words = ends.map(|end| match end {
                Ok(_) => detail(&end, "reason").to_owned(),
                Err(words) => words,
            });
            assert!(
                words.iter().all(|words| words.contains("UDP port 4791")),
                "{words:?}"
            );
            words.map(|words| words.contains("s ago"))
        };
        assert_eq!(is_remembered("rdma", "rdma"), [false; 2]);
        assert_eq!(is_remembered("rdma", "rdma"), [true; 2]);
        let verbs = "rdma:provider=verbs";
        assert_eq!(is_remembered(verbs, "rdma"), [false; 2]);
        assert!(!is_remembered("rdma", verbs)[1]);
        // The connecting end has noticed that the other one has nothing else.
        assert_eq!(is_remembered("rdma", verbs), [false; 2]);
    });
}

#[test]
fn the_smaller_port_decides() {
    let adapters = [
        Adapter::infiniband("mlx5_0", 5).with("active_mtu", 4),
        Adapter::infiniband("mlx5_1", 9),
    ];
    with_adapters(&adapters, || {
        let ends = transfer(
            "rdma:device=mlx5_0;provider=verbs",
            "rdma:device=mlx5_1;provider=verbs",
            BYTES,
        );
        let mtus = [&ends[0], &ends[1]].map(|end| detail(end, "mtu-bytes"));
        assert_eq!(mtus, ["2048", "2048"]);
    });
}

#[test]
fn the_option_shortens_packets() {
    with_adapters(&[Adapter::roce("mlx5_0", 1)], || {
        let ends = transfer("rdma:provider=verbs;mtu=512", "rdma:provider=verbs", BYTES);
        let mtus = [&ends[0], &ends[1]].map(|end| detail(end, "mtu-bytes"));
        assert_eq!(mtus, ["512", "512"]);
    });
}
