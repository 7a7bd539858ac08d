//! Adapters with faults.

use crate::channel::{detail, transfer};
use crate::fabric::{Adapter, with_adapters};

const STACK: &str = "rdma:provider=verbs;slab=64K;message=4K;depth=16";
const BYTES: usize = 2 << 20;

#[test]
fn a_post_without_memory_costs_one_queue_pair() {
    a_refused_post_costs_one_queue_pair(libc::ENOMEM);
}

#[test]
fn an_invalid_post_costs_one_queue_pair() {
    a_refused_post_costs_one_queue_pair(libc::EINVAL);
}

fn a_refused_post_costs_one_queue_pair(errno: libc::c_int) {
    let adapter = Adapter::roce("mlx5_0", 1)
        .with("refuse_after", 100)
        .with("refuse_errno", errno);
    with_adapters(&[adapter], || {
        let [sender, receiver] = transfer(STACK, STACK, BYTES);
        let restored = [&sender, &receiver].map(|end| detail(end, "restored").to_owned());
        assert!(restored.contains(&"1".to_owned()), "{restored:?}");
    });
}

#[test]
fn a_test_of_the_path_that_an_adapter_refuses_is_named_at_both_ends() {
    let adapter = Adapter::roce("mlx5_0", 1)
        .with("refuse_after", 0)
        .with("refuse_errno", libc::EINVAL);
    with_adapters(&[adapter], || {
        for outcome in transfer(STACK, STACK, BYTES) {
            let words = outcome.expect_err("no test, no channel");
            assert!(words.contains("mlx5_0: Invalid argument"), "{words}");
        }
    });
}

#[test]
fn an_adapter_without_reads_can_only_put() {
    let adapter = Adapter::roce("mlx5_0", 1).with("max_reads", 0);
    with_adapters(&[adapter], || {
        for outcome in transfer("rdma:mode=get", "rdma", BYTES) {
            let words = outcome.expect_err("no reads");
            assert!(words.contains("mode=get needs READs"), "{words}");
        }
        let [sender, _] = transfer("rdma:mode=put", "rdma", BYTES);
        assert_eq!(detail(&sender, "provider"), "verbs");
    });
}

/// As in a container that has the host's `/sys`, and not the files of its devices.
#[test]
fn a_channel_does_without_an_adapter_that_cannot_be_opened() {
    let adapter = Adapter::roce("mlx5_0", 1).with("open_errno", libc::ENOENT);
    with_adapters(&[adapter], || {
        let ends = transfer("rdma", "rdma", BYTES);
        for end in &ends {
            assert_eq!(detail(end, "provider"), "soft");
            let reason = detail(end, "reason");
            assert!(reason.contains("opening of mlx5_0"), "{reason}");
        }
        for [connecting, accepting] in [["verbs", "auto"], ["auto", "verbs"]] {
            let stack = |provider| format!("rdma:provider={provider}");
            for end in transfer(&stack(connecting), &stack(accepting), BYTES) {
                let words = end.expect_err("one end allows nothing else");
                assert!(words.contains("opening of mlx5_0"), "{words}");
            }
        }
    });
}

#[test]
fn an_adapter_that_breaks_down_ends_the_channel() {
    let adapter = Adapter::roce("mlx5_0", 1)
        .with("event_after", 100)
        .with("event", 8);
    with_adapters(&[adapter], || {
        let outcomes = transfer(STACK, STACK, BYTES);
        let words = outcomes.map(|outcome| outcome.expect_err("the adapter is broken"));
        // The other end may first see that this one has given up.
        let is_named = |words: &String| words.contains("mlx5_0: local catastrophic error");
        assert!(words.iter().any(is_named), "{words:?}");
    });
}

#[test]
fn an_overrun_completion_queue_is_not_waited_for() {
    let adapter = Adapter::roce("mlx5_0", 1).with("overrun_after", 100);
    with_adapters(&[adapter], || {
        let outcomes = transfer(STACK, STACK, BYTES);
        let words = outcomes.map(|outcome| outcome.expect_err("a queue is overrun"));
        assert!(
            words.iter().any(|words| words.contains("CQ error")),
            "{words:?}"
        );
    });
}

#[test]
fn a_slow_adapter_is_waited_for() {
    let adapter = Adapter::roce("mlx5_0", 1).with("delay_us", 5_000);
    with_adapters(&[adapter], || {
        let [sender, receiver] = transfer(STACK, STACK, 256 << 10);
        assert_eq!(detail(&sender, "stalls"), "0");
        assert_eq!(detail(&receiver, "restored"), "0");
    });
}

/// The port goes down and stays down: nothing that is sent afterwards is acknowledged.
#[test]
fn a_port_that_stays_down_ends_the_channel() {
    let adapter = Adapter::roce("mlx5_0", 1)
        .with("event_after", 100)
        .with("event", 10);
    with_adapters(&[adapter], || {
        for outcome in transfer(STACK, STACK, BYTES) {
            outcome.expect_err("the port is down");
        }
    });
}
