//! The provider `verbs` over a libibverbs of our own, whose adapters need no hardware: InfiniBand and RoCE with
//! partitions, subnets, MTUs, events and faults that software devices of the kernel do not have.

mod channel;
mod fabric;
mod faults;
mod infiniband;
mod library;
mod limiter;
mod mtu;
mod queue_pairs;
mod rails;
mod registration;
mod rings;
mod searches;

use gridhaul_stack::conformance::Subject;
use gridhaul_stack::conformance_tests;

use crate::channel::{detail, stack, transfer};
use crate::fabric::{Adapter, run, with_adapters};

/// Enough for several rounds of the ring.
const BYTES: usize = 5 << 20;

#[test]
fn files_cross_infiniband() {
    let adapters = [
        Adapter::infiniband("mlx5_0", 5),
        Adapter::infiniband("mlx5_1", 9),
    ];
    with_adapters(&adapters, || {
        let [sender, receiver] = transfer(
            "rdma:device=mlx5_0;provider=verbs;slab=256K",
            "rdma:device=mlx5_1;provider=verbs;qps=2",
            BYTES,
        );
        assert_eq!(detail(&sender, "protocol"), "InfiniBand");
        assert_eq!(detail(&sender, "device"), "mlx5_0/1");
        assert_eq!(detail(&receiver, "device"), "mlx5_1/1");
        assert_eq!(detail(&receiver, "mtu-bytes"), "4096");
    });
}

#[test]
fn files_cross_roce() {
    with_adapters(&[Adapter::roce("mlx5_2", 1)], || {
        let stack = "rdma:provider=verbs;slab=64K;qps=3";
        let [sender, receiver] = transfer(stack, stack, BYTES);
        assert_eq!(detail(&sender, "protocol"), "RoCE");
        // Version 1 of the protocol is at the index 0.
        assert_eq!(detail(&receiver, "gid"), "1");
    });
}

#[test]
fn channels_over_infiniband_conform() {
    run(&[Adapter::infiniband("mlx5_0", 5)], &["over_infiniband::"]);
}

#[test]
fn channels_over_roce_conform() {
    run(&[Adapter::roce("mlx5_0", 1)], &["over_roce::"]);
}

#[test]
fn channels_over_two_adapters_conform() {
    let adapters = [Adapter::roce("mlx5_0", 1), Adapter::roce("mlx5_1", 2)];
    run(&adapters, &["over_two_adapters::"]);
}

#[test]
fn channels_that_pin_files_conform() {
    let adapter = Adapter::roce("mlx5_0", 1);
    run(&[adapter], &["pinning_files::"]);
}

conformance_tests!(
    #[ignore = "channels_over_infiniband_conform starts it in a process with adapters"]
    over_infiniband,
    Subject::new(stack("rdma:device=mlx5_0;provider=verbs;mode=get")).openings(200)
);
conformance_tests!(
    #[ignore = "channels_over_roce_conform starts it in a process with adapters"]
    over_roce,
    Subject::new(stack("rdma:provider=verbs;qps=3;slab=64K;message=4K")).openings(200)
);
conformance_tests!(
    #[ignore = "channels_over_two_adapters_conform starts it in a process with adapters"]
    over_two_adapters,
    Subject::new(stack(
        "rdma:device=mlx5_0+mlx5_1;provider=verbs;qps=3;slab=64K;message=4K"
    ))
    .openings(100)
);
conformance_tests!(
    #[ignore = "channels_that_pin_files_conform starts it in a process with adapters"]
    pinning_files,
    Subject::new(stack(
        "rdma:provider=verbs;register=dynamic;immediate=off;inline=16K;slab=1M"
    ))
    .openings(200)
);
