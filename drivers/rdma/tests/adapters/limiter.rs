//! Adapters that limit the rate of a queue pair by themselves.

use std::time::{Duration, Instant};

use gridhaul_rdma::Rdma;
use gridhaul_stack::Driver as _;

use crate::channel::{detail, transfer, transfer_on_one_of};
use crate::fabric::{Adapter, recorded, with_adapters};

const BYTES: usize = 5 << 20;

/// The highest limit of an adapter in kilobits per second, with which it does not limit anything.
const HIGHEST: u64 = 400_000_000;

fn with_limiter() -> Adapter {
    Adapter::roce("mlx5_0", 1).with("limit_max", HIGHEST)
}

#[test]
fn a_check_shows_the_limiter() {
    let adapters = [
        with_limiter(),
        Adapter::roce("mlx5_1", 2),
        Adapter::infiniband("mlx5_2", 5),
    ];
    with_adapters(&adapters, || {
        let findings = Rdma.check_devices();
        for (device, words) in [
            ("mlx5_0/1", ", rates limited up to 400 Gb/s,"),
            ("mlx5_1/1", ", no limiter of rates,"),
            ("mlx5_2/1", ", static rates,"),
        ] {
            let mut texts = findings.iter().map(|finding| &finding.text);
            let found = texts.any(|text| text.contains(device) && text.contains(words));
            assert!(found, "{device}: {findings:?}");
        }
    });
}

#[test]
fn an_adapter_limits_each_queue_pair() {
    with_adapters(&[with_limiter()], || {
        let stack = "rdma:provider=verbs;rate=2g;qps=2";
        let [sender, receiver] = transfer(stack, stack, BYTES);
        assert_eq!(detail(&sender, "limiter"), "adapter");
        assert_eq!(detail(&receiver, "limiter"), "adapter");
        assert_eq!(detail(&sender, "rate"), "250000000");
        // A half for each, and the headers of packets of 4096 bytes.
        assert_eq!(recorded("mlx5_0", "limits"), [1_021_973; 4]);
    });
}

/// Each rail is a path of its own.
#[test]
fn the_adapters_of_all_rails_limit_their_rate() {
    let adapters = [
        with_limiter(),
        Adapter::roce("mlx5_1", 2).with("limit_max", HIGHEST),
    ];
    with_adapters(&adapters, || {
        let stack = "rdma:device=mlx5_0+mlx5_1;provider=verbs;rate=2g;qps=2";
        let [sender, _] = transfer(stack, stack, BYTES);
        assert_eq!(detail(&sender, "limiter"), "adapter");
        assert_eq!(detail(&sender, "rate"), "500000000", "of both rails");
        for device in ["mlx5_0", "mlx5_1"] {
            assert_eq!(recorded(device, "limits"), [OF_A_RAIL; 2]);
        }
    });
}

/// The first rail has two of three queue pairs.
#[test]
fn the_queue_pairs_of_each_rail_share_its_rate() {
    let adapters = [
        with_limiter(),
        Adapter::roce("mlx5_1", 2).with("limit_max", HIGHEST),
    ];
    with_adapters(&adapters, || {
        let stack = "rdma:device=mlx5_0+mlx5_1;provider=verbs;rate=2g;qps=3";
        let [sender, _] = transfer(stack, stack, BYTES);
        assert_eq!(detail(&sender, "limiter"), "adapter");
        assert_eq!(recorded("mlx5_0", "limits"), [1_021_973; 4]);
        assert_eq!(recorded("mlx5_1", "limits"), [OF_A_RAIL; 2]);
    });
}

/// Each of two channels would have a half, and one of them is never opened.
#[test]
fn a_channel_gets_the_part_of_others_that_do_not_send() {
    with_adapters(&[with_limiter()], || {
        let stack = "rdma:provider=verbs;rate=100m;qps=1;slab=256K;message=32K";
        let start = Instant::now();
        // 168 Mbit.
        let [sender, _] = transfer_on_one_of(2, stack, stack, 4 * BYTES);
        let elapsed = start.elapsed();
        assert_eq!(detail(&sender, "limiter"), "adapter");
        let mut limits = recorded("mlx5_0", "limits");
        limits.sort_unstable();
        assert_eq!(limits, [51_099, 51_099, 102_198], "in kilobits per second");
        assert!(elapsed > Duration::from_millis(1500), "{elapsed:?}");
    });
}

/// A search changes its rate too often.
#[test]
fn a_rate_that_is_searched_for_is_no_limit() {
    with_adapters(&[with_limiter().counting()], || {
        let stack = "rdma:provider=verbs;rate=auto";
        let [sender, _] = transfer(stack, stack, BYTES);
        assert_ne!(detail(&sender, "rate"), "", "it is searched for");
        assert_eq!(detail(&sender, "limiter"), "");
        assert!(recorded("mlx5_0", "limits").is_empty());
    });
}

#[test]
fn without_a_rate_there_is_no_limit() {
    with_adapters(&[with_limiter()], || {
        let [sender, _] = transfer("rdma:provider=verbs", "rdma:provider=verbs", BYTES);
        assert_eq!(detail(&sender, "limiter"), "");
        assert!(recorded("mlx5_0", "limits").is_empty());
    });
}

#[test]
fn an_adapter_without_a_limiter_is_not_asked() {
    with_adapters(&[Adapter::roce("mlx5_0", 1)], || {
        the_software_paces();
        assert!(recorded("mlx5_0", "limits").is_empty());
    });
}

#[test]
fn a_rate_above_that_of_the_limiter_is_paced_by_software() {
    with_adapters(
        &[Adapter::roce("mlx5_0", 1).with("limit_max", 1000)],
        || {
            the_software_paces();
            assert!(recorded("mlx5_0", "limits").is_empty());
        },
    );
}

#[test]
fn an_adapter_that_refuses_is_paced_by_software() {
    let adapter = with_limiter().with("limit_errno", libc::EINVAL);
    with_adapters(&[adapter], || {
        the_software_paces();
        assert_eq!(recorded("mlx5_0", "limits").len(), 2, "it was asked");
    });
}

fn the_software_paces() {
    let (limiter, elapsed) = slow_transfer();
    assert_eq!(limiter, "");
    assert!(elapsed > Duration::from_millis(300), "{elapsed:?}");
}

/// It takes the limit and sends as fast as it can, which a long message shows.
#[test]
fn an_adapter_that_does_not_keep_its_limit_is_paced_by_software() {
    let adapter = with_limiter().with("limit_ignored", 1);
    with_adapters(&[adapter], || {
        let start = Instant::now();
        let stack = "rdma:provider=verbs;rate=100m;qps=1;slab=4M;message=1M";
        let [sender, receiver] = transfer(stack, stack, BYTES);
        let elapsed = start.elapsed();
        // 42 Mbit, of which a message and a half leave at once.
        assert!(elapsed > Duration::from_millis(200), "{elapsed:?}");
        assert_eq!(detail(&sender, "limiter"), "");
        // The receiver sends no data, so its limit may hold.
        assert_eq!(detail(&receiver, "limiter"), "adapter");
        let mut limits = recorded("mlx5_0", "limits");
        limits.sort_unstable();
        assert_eq!(limits, [102_198, 102_198, HIGHEST], "one is lifted");
    });
}

/// Otherwise its limit would stay, also when other channels leave the path.
#[test]
fn adapters_have_no_limit_beside_one_without_a_limiter() {
    no_rail_is_limited_beside(Adapter::roce("mlx5_1", 2), &[]);
}

#[test]
fn adapters_have_no_limit_beside_one_that_refuses() {
    let refuses = Adapter::roce("mlx5_1", 2)
        .with("limit_max", HIGHEST)
        .with("limit_errno", libc::EINVAL);
    no_rail_is_limited_beside(refuses, &[OF_A_RAIL; 2]);
}

#[test]
fn adapters_have_no_limit_beside_one_that_lacks_the_rate() {
    no_rail_is_limited_beside(Adapter::roce("mlx5_1", 2).with("limit_max", 1000), &[]);
}

/// The limit for 2 Gb/s of one queue pair, with the headers of packets of 4096 bytes, in kilobits per second.
const OF_A_RAIL: u64 = 2_043_946;

/// A channel over an adapter with a limiter and this one, which is asked for these limits.
fn no_rail_is_limited_beside(other: Adapter, asked: &[u64]) {
    with_adapters(&[with_limiter(), other], || {
        let stack = "rdma:device=mlx5_0+mlx5_1;provider=verbs;rate=2g;qps=2";
        for end in transfer(stack, stack, BYTES) {
            assert_eq!(detail(&end, "limiter"), "");
            assert_eq!(detail(&end, "rails"), "2");
        }
        let mut limits = recorded("mlx5_0", "limits");
        limits.sort_unstable();
        assert_eq!(limits, [OF_A_RAIL, OF_A_RAIL, HIGHEST, HIGHEST]);
        assert_eq!(recorded("mlx5_1", "limits"), asked);
    });
}

/// A rail that breaks its limit ends those of the others.
#[test]
fn an_adapter_that_does_not_keep_its_limit_ends_those_of_the_other_rails() {
    let ignores = Adapter::roce("mlx5_1", 2)
        .with("limit_max", HIGHEST)
        .with("limit_ignored", 1);
    with_adapters(&[with_limiter(), ignores], || {
        let stack = "rdma:device=mlx5_0+mlx5_1;provider=verbs;rate=100m;qps=2;slab=4M;message=1M";
        let [sender, receiver] = transfer(stack, stack, BYTES);
        assert_eq!(detail(&sender, "limiter"), "");
        assert_eq!(detail(&receiver, "limiter"), "adapter");
        for device in ["mlx5_0", "mlx5_1"] {
            let mut limits = recorded(device, "limits");
            limits.sort_unstable();
            assert_eq!(limits, [102_198, 102_198, HIGHEST], "{device}");
        }
    });
}

/// The limit of half of the rate is lifted when the adapter refuses that of all of it.
#[test]
fn an_adapter_that_refuses_another_limit_is_paced_by_software() {
    let adapter = with_limiter().with("limit_count", 2);
    with_adapters(&[adapter], || {
        let stack = "rdma:provider=verbs;rate=100m;qps=1;slab=256K;message=32K";
        let start = Instant::now();
        let [sender, _] = transfer_on_one_of(2, stack, stack, 4 * BYTES);
        let elapsed = start.elapsed();
        assert_eq!(detail(&sender, "limiter"), "");
        let mut limits = recorded("mlx5_0", "limits");
        limits.sort_unstable();
        assert_eq!(limits, [51_099, 51_099, 102_198, HIGHEST]);
        assert!(elapsed > Duration::from_millis(1500), "{elapsed:?}");
    });
}

/// Each end has two queue pairs, of which one is replaced.
#[test]
fn a_replacement_without_a_limit_ends_those_of_the_others() {
    let adapter = with_limiter()
        .with("limit_count", 4)
        .with("refuse_after", 100)
        .with("refuse_errno", libc::ENOMEM);
    with_adapters(&[adapter], || {
        let stack = "rdma:provider=verbs;rate=2g;qps=2;slab=64K;message=4K";
        for end in transfer(stack, stack, 4 * BYTES) {
            assert_eq!(detail(&end, "limiter"), "");
        }
        let mut limits = recorded("mlx5_0", "limits");
        limits.sort_unstable();
        let (asked, lifted) = limits.split_at(6);
        assert_eq!(asked, [1_021_973; 6], "two of them for replacements");
        assert_eq!(lifted, [HIGHEST; 2]);
    });
}

/// The sender's adapter breaks its limits with the first message, and loses a queue pair later.
#[test]
fn a_replacement_has_no_limit_after_limits_were_lifted() {
    let ignores = with_limiter()
        .with("limit_ignored", 1)
        .with("refuse_after", 12)
        .with("refuse_errno", libc::ENOMEM);
    with_adapters(&[ignores, Adapter::roce("mlx5_1", 2)], || {
        // The option gid allows the address of the other adapter.
        let stack = |device| {
            format!("rdma:device={device};gid=1;provider=verbs;rate=800m;qps=2;slab=4M;message=1M")
        };
        let [sender, _] = transfer(&stack("mlx5_0"), &stack("mlx5_1"), 4 * BYTES);
        assert_eq!(detail(&sender, "restored"), "1");
        let mut limits = recorded("mlx5_0", "limits");
        limits.sort_unstable();
        assert_eq!(limits, [408_790, 408_790, HIGHEST, HIGHEST]);
    });
}

/// The peer's adapter sends what this end READs, and does not know what else is on the path.
#[test]
fn adapters_have_no_limit_where_the_receiver_fetches() {
    with_adapters(&[with_limiter()], || {
        let stack = "rdma:provider=verbs;rate=2g;mode=get";
        let [sender, receiver] = transfer(stack, stack, BYTES);
        for end in [&sender, &receiver] {
            assert_eq!(detail(end, "limiter"), "");
        }
        assert!(recorded("mlx5_0", "limits").is_empty());
    });
}

/// Which limiter there was, and how long 42 Mbit took at 100 Mb/s.
fn slow_transfer() -> (String, Duration) {
    let stack = "rdma:provider=verbs;rate=100m;qps=1;slab=256K;message=32K";
    let start = Instant::now();
    let [sender, _] = transfer(stack, stack, BYTES);
    (detail(&sender, "limiter").to_owned(), start.elapsed())
}

#[test]
fn infiniband_has_static_rates() {
    let adapters = [
        Adapter::infiniband("mlx5_0", 5),
        Adapter::infiniband("mlx5_1", 9),
    ];
    with_adapters(&adapters, || {
        paced_over_infiniband();
        // IBV_RATE_14_GBPS is the lowest that carries twice as much, with headers.
        for device in ["mlx5_0", "mlx5_1"] {
            assert_eq!(recorded(device, "static_rates"), [11]);
            assert_eq!(recorded(device, "rates_in_use"), [11]);
        }
    });
}

/// It would send at 2.5 Gb/s.
#[test]
fn an_adapter_with_another_static_rate_than_asked_for_has_none() {
    let has_another = |adapter: Adapter| adapter.with("own_static_rate", 2);
    let adapters = [
        Adapter::infiniband("mlx5_0", 5),
        Adapter::infiniband("mlx5_1", 9),
    ];
    with_adapters(&adapters.map(has_another), || {
        paced_over_infiniband();
        for device in ["mlx5_0", "mlx5_1"] {
            assert_eq!(recorded(device, "static_rates"), [11]);
            assert_eq!(recorded(device, "rates_in_use"), [0]);
        }
    });
}

#[test]
fn an_adapter_without_static_rates_is_paced_by_software() {
    let refuses = |adapter: Adapter| adapter.with("no_static_rates", 1);
    let adapters = [
        Adapter::infiniband("mlx5_0", 5),
        Adapter::infiniband("mlx5_1", 9),
    ];
    with_adapters(&adapters.map(refuses), || {
        paced_over_infiniband();
        assert!(recorded("mlx5_0", "static_rates").is_empty());
    });
}

fn paced_over_infiniband() {
    let stack = |device| format!("rdma:device={device};provider=verbs;rate=4g;qps=1");
    let [sender, _] = transfer(&stack("mlx5_0"), &stack("mlx5_1"), BYTES);
    assert_eq!(detail(&sender, "rate"), "500000000");
    assert_eq!(detail(&sender, "limiter"), "", "it is not exact");
}
