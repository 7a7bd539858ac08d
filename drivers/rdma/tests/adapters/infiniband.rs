//! Partitions, subnets and global routes of InfiniBand.

use std::thread;
use std::time::{Duration, Instant};

use gridhaul_rdma::Rdma;
use gridhaul_stack::{Driver as _, Standing};

use crate::channel::{Outcome, detail, transfer, transfer_after};
use crate::fabric::{Adapter, recorded, with_adapters};

const BYTES: usize = 100_000;

/// Between adapters with the LIDs 5 and 9.
fn transfer_between_two(connecting: &str, accepting: &str) -> [Outcome; 2] {
    transfer(
        &format!("rdma:device=mlx5_0;provider=verbs{connecting}"),
        &format!("rdma:device=mlx5_1;provider=verbs{accepting}"),
        BYTES,
    )
}

fn two() -> [Adapter; 2] {
    [
        Adapter::infiniband("mlx5_0", 5),
        Adapter::infiniband("mlx5_1", 9),
    ]
}

fn with_two(change: impl Fn(Adapter) -> Adapter, test: impl FnOnce()) {
    with_adapters(&two().map(change), test);
}

fn expect_partition(outcomes: &[Outcome; 2], keys: [&str; 2]) {
    let found = [0, 1].map(|end: usize| detail(&outcomes[end], "pkey"));
    assert_eq!(found, keys);
}

#[test]
fn the_first_full_membership_is_used() {
    with_two(
        |adapter| adapter.partitions(&[0x7fff, 0x8001]),
        || expect_partition(&transfer_between_two("", ""), ["0x8001", "0x8001"]),
    );
}

#[test]
fn a_limited_member_reaches_a_full_one() {
    let [first, second] = two();
    let adapters = [first.partitions(&[0, 0x0002]), second.partitions(&[0x8002])];
    with_adapters(&adapters, || {
        expect_partition(&transfer_between_two("", ""), ["0x0002", "0x8002"]);
    });
}

#[test]
fn limited_members_are_told_why_they_do_not_reach_each_other() {
    with_two(
        |adapter| adapter.partitions(&[0x0002]),
        || {
            let words = transfer_between_two("", "").map(|outcome| outcome.expect_err("limited"));
            for words in words {
                assert!(
                    words.contains("limited members of the partition 0x0002"),
                    "{words}"
                );
            }
        },
    );
}

#[test]
fn ends_in_different_partitions_name_them() {
    let [first, second] = two();
    let adapters = [
        first.partitions(&[0x8001]),
        second.partitions(&[0x8002, 0x8001]),
    ];
    with_adapters(&adapters, || {
        let words = transfer_between_two("", "")[0]
            .clone()
            .expect_err("not the same");
        assert!(
            words.contains("0x8001") && words.contains("0x8002"),
            "{words}"
        );
        let outcomes = transfer_between_two("", ";pkey=0x8001");
        expect_partition(&outcomes, ["0x8001", "0x8001"]);
    });
}

#[test]
fn a_partition_without_the_port_is_refused() {
    with_two(
        |adapter| adapter.partitions(&[0x8001]),
        || {
            let words = transfer_between_two(";pkey=0x8009", "")[0]
                .clone()
                .expect_err("no such");
            let expected = "port 1 of mlx5_0 is in no partition 0x8009; its P_Keys are 0x8001";
            assert!(words.contains(expected), "{words}");
        },
    );
}

#[test]
fn a_port_that_needs_global_routes_gets_them() {
    with_two(
        |adapter| adapter.with("grh_required", 1),
        || expect_partition(&transfer_between_two("", ";mode=get"), ["0xffff", "0xffff"]),
    );
}

/// Which device it is, and its partition, follow from the address of the data connection.
#[test]
fn an_interface_of_ipoib_names_the_adapter_and_the_partition() {
    let [first, second] = two();
    let adapters = [
        first.partitions(&[0xffff]),
        second.partitions(&[0xffff, 0x8005]).behind_loopback(0x8005),
    ];
    with_adapters(&adapters, || {
        let outcomes = transfer("rdma:provider=verbs", "rdma", BYTES);
        for outcome in &outcomes {
            assert_eq!(detail(outcome, "device"), "mlx5_1/1");
        }
        expect_partition(&outcomes, ["0x8005", "0x8005"]);
    });
}

/// A bond over interfaces of IPoIB has the address of the active one.
#[test]
fn a_bond_names_the_adapter() {
    let [first, second] = two();
    let second = second.partitions(&[0, 0x8005]).behind_loopback(0x8005);
    with_adapters(&[first, second.bonded()], || {
        let outcomes = transfer("rdma:provider=verbs", "rdma", BYTES);
        for outcome in &outcomes {
            assert_eq!(detail(outcome, "device"), "mlx5_1/1");
        }
        expect_partition(&outcomes, ["0x8005", "0x8005"]);
    });
}

#[test]
fn the_port_with_the_cable_is_used() {
    with_two(Adapter::second_port, || {
        let outcomes = transfer_between_two("", "");
        let ports = [&outcomes[0], &outcomes[1]].map(|end| detail(end, "device"));
        assert_eq!(ports, ["mlx5_0/2", "mlx5_1/2"]);
    });
}

#[test]
fn the_service_level_and_the_mtu_are_those_of_the_subnet_manager() {
    let adapter = Adapter::infiniband("mlx5_0", 5)
        .behind_loopback(0xffff)
        .with("service_level", 3)
        .path("3 4 0 5");
    with_adapters(&[adapter], || {
        let outcomes = transfer("rdma", "rdma", BYTES);
        for outcome in &outcomes {
            assert_eq!(detail(outcome, "protocol"), "InfiniBand");
            assert_eq!(detail(outcome, "mtu-bytes"), "2048");
        }
    });
}

/// The address of the data connection belongs to the other port of the accepting host.
#[test]
fn a_path_to_another_port_is_not_used() {
    let [first, second] = two();
    let first = first
        .behind_loopback(0xffff)
        .path("3 4 0 5")
        .with("service_level", 0);
    with_adapters(&[first, second], || {
        let [sender, receiver] = transfer("rdma:provider=verbs", "rdma:device=mlx5_1", BYTES);
        assert_eq!(detail(&sender, "device"), "mlx5_0/1");
        assert_eq!(detail(&receiver, "device"), "mlx5_1/1");
    });
}

/// librdmacm waits for ibacm without a limit.
#[test]
fn ibacm_that_does_not_answer_is_not_waited_for() {
    let adapter = Adapter::infiniband("mlx5_0", 5)
        .behind_loopback(0xffff)
        .path("3 4 0 5")
        .ibacm("0 90000");
    with_adapters(&[adapter], || {
        let start = Instant::now();
        let outcomes = transfer("rdma:provider=verbs", "rdma:provider=verbs", BYTES);
        // Five seconds of each end, and what a busy machine adds.
        assert!(start.elapsed() < Duration::from_secs(30));
        for outcome in &outcomes {
            assert_eq!(detail(outcome, "mtu-bytes"), "4096", "without a record");
        }
    });
}

#[test]
fn adapters_of_different_subnets_need_a_path() {
    let [first, second] = two();
    let adapters = [first, second.subnet("fec0:0000:0000:0001")];
    with_adapters(&adapters, || {
        let words = transfer_between_two("", "")[0]
            .clone()
            .expect_err("no way to the router");
        assert!(words.contains("different subnets"), "{words}");
    });
}

/// The subnet manager names the router, which has another LID than either end.
#[test]
fn a_router_brings_packets_to_another_subnet() {
    let [first, second] = two();
    let first = first.path("3 4 64 77");
    let second = second.subnet("fec0:0000:0000:0001");
    let [first, second] = [first, second].map(|adapter| {
        let adapter = adapter.with("router_lid", 77).with("service_level", 3);
        adapter.behind_loopback(0xffff)
    });
    // The interface that is written last counts at first.
    with_adapters(&[second.clone(), first], || {
        let outcomes = transfer_after("rdma:provider=verbs", "rdma:provider=verbs", BYTES, || {
            // It is opened once the connecting end has found it.
            let start = Instant::now();
            while recorded("mlx5_0", "opened").is_empty() {
                assert!(start.elapsed() < Duration::from_secs(60));
                thread::yield_now();
            }
            // It asks for the path after the accepting end.
            second.take_loopback();
        });
        for (outcome, device) in outcomes.iter().zip(["mlx5_0/1", "mlx5_1/1"]) {
            assert_eq!(detail(outcome, "device"), device);
            assert_eq!(detail(outcome, "mtu-bytes"), "2048");
        }
    });
}

#[test]
fn a_check_shows_the_partition() {
    let [first, second] = two();
    let adapters = [first.partitions(&[0x7fff, 0x8001]), second.partitions(&[0])];
    with_adapters(&adapters, || {
        let findings = Rdma.check_devices();
        let of = |device: &str| {
            let finding = findings
                .iter()
                .find(|finding| finding.text.contains(device));
            finding.expect("a finding for every port")
        };
        let first = of("mlx5_0/1: InfiniBand, ACTIVE");
        assert!(first.is_good(), "{first:?}");
        assert!(first.text.ends_with("in the partition 0x8001"), "{first:?}");
        assert!(!of("mlx5_1/1").is_good(), "{findings:?}");
    });
}

#[test]
fn adapters_are_examined() {
    let adapters = [
        Adapter::infiniband("mlx5_0", 5),
        Adapter::roce("mlx5_1", 1).second_port(),
    ];
    with_adapters(&adapters, || {
        let findings = Rdma.examine_devices();
        let of = |begin: &str| {
            let mut findings = findings.iter();
            let found = findings.find(|finding| finding.text.starts_with(begin));
            found.unwrap_or_else(|| panic!("no finding that begins with {begin}"))
        };
        let link = of("mlx5_0/1: link: InfiniBand, 100 Gb/sec (4X EDR)");
        assert_eq!(link.standing, Standing::Good);
        assert_eq!(of("mlx5_1/1: link: Ethernet").standing, Standing::Bad);
        let addresses =
            of("mlx5_1/2: addresses: gid 0 127.0.0.1 (RoCE v1), gid 1 127.0.0.1 (RoCE v2)");
        assert_eq!(addresses.standing, Standing::Good);
        // The directory shows no counters.
        assert_eq!(of("mlx5_1/2: losses: ").standing, Standing::Bad);
        assert_eq!(of("mlx5_1/2: errors: ").standing, Standing::Unknown);
    });
}
