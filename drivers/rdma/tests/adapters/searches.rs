//! Rates that are searched for by the counters of adapters.

use crate::channel::{detail, transfer};
use crate::fabric::{Adapter, with_adapters};

const BYTES: usize = 5 << 20;

/// IBV_EVENT_GID_CHANGE
const GID_CHANGE: u8 = 18;

const AUTO: &str = "rdma:provider=verbs;rate=auto";

#[test]
fn a_rate_is_searched_for_where_retransmissions_are_counted() {
    with_adapters(&[Adapter::roce("mlx5_0", 1).counting()], || {
        for end in transfer(AUTO, AUTO, BYTES) {
            let rate: u64 = detail(&end, "rate").parse().expect("a rate");
            assert!(rate > 0);
            assert_eq!(detail(&end, "retries"), "0");
            assert!(!detail(&end, "reason").contains("rate=auto is off"));
        }
    });
}

/// Nothing arrives while the port has no GIDs, and the requests of that time are sent again.
#[test]
fn retransmissions_of_a_channel_are_counted() {
    let adapter = Adapter::roce("mlx5_0", 1)
        .counting()
        .with("event", GID_CHANGE)
        .with("event_after", 60)
        .with("absent_ms", 20);
    with_adapters(&[adapter], || {
        let [sender, _] = transfer(AUTO, AUTO, 4 * BYTES);
        let retries: u64 = detail(&sender, "retries").parse().expect("a number");
        assert!(retries > 0);
        assert_ne!(detail(&sender, "rate"), "");
    });
}

/// A late message is then no sign of a loss.
#[test]
fn without_counters_no_rate_is_searched_for() {
    with_adapters(&[Adapter::roce("mlx5_0", 1)], || {
        not_searched_for("rdma:provider=verbs;rate=auto");
    });
}

#[test]
fn one_rail_without_counters_ends_the_search_of_all() {
    let adapters = [
        Adapter::roce("mlx5_0", 1).counting(),
        Adapter::roce("mlx5_1", 2),
    ];
    with_adapters(&adapters, || {
        not_searched_for("rdma:device=mlx5_0+mlx5_1;provider=verbs;rate=auto");
    });
}

fn not_searched_for(stack: &str) {
    for end in transfer(stack, stack, BYTES) {
        assert_eq!(detail(&end, "rate"), "");
        let reason = detail(&end, "reason");
        assert!(
            reason.contains("the device does not count retransmissions"),
            "{reason}"
        );
    }
}
