//! Where the memory of rings is, and long rings, for whose pages adapters need time.

use std::cell::Cell;
use std::fs;
use std::thread;
use std::time::{Duration, Instant};

use gridhaul_rdma::memory_load;
use gridhaul_skip::skipped;

use crate::channel::{detail, transfer, transfer_and_look};
use crate::fabric::{Adapter, with_adapters};

const LONG_BYTES: u64 = 64 << 20;

/// The library ends the process if another thread deregisters one.
#[test]
fn a_long_ring_is_deregistered_by_a_thread_of_its_own() {
    with_adapters(&[Adapter::roce("mlx5_0", 1)], || {
        let stack = "rdma:provider=verbs;slab=16M;slabs=4";
        let [sender, receiver] = transfer(stack, stack, 1 << 20);
        for end in [&sender, &receiver] {
            let ring_bytes: u64 = detail(end, "ring-bytes").parse().expect("a number");
            if ring_bytes < LONG_BYTES {
                eprintln!("not tested: rings of {ring_bytes} bytes, see `ulimit -l`");
            }
        }
        let end = Instant::now() + Duration::from_secs(60);
        while memory_load().used_bytes > 0 {
            assert!(Instant::now() < end, "{:?}", memory_load());
            thread::yield_now();
        }
    });
}

/// The bytes of this process that the kernel places by a policy that begins so; `None` if it does not tell.
fn placed_by(policy: &str) -> Option<u64> {
    let maps = fs::read_to_string("/proc/self/numa_maps").ok()?;
    let number = |line: &str, name: &str| -> u64 {
        let mut words = line.split(' ');
        let number = words.find_map(|word| word.strip_prefix(name));
        number.map_or(0, |number| number.parse().expect("a number"))
    };
    let lines = maps.lines();
    let is_placed = |line: &&str| {
        let found = line.split(' ').nth(1);
        found.is_some_and(|found| found.starts_with(policy))
    };
    let placed = lines.filter(is_placed);
    Some(
        placed
            .map(|line| number(line, "anon=") * (number(line, "kernelpagesize_kB=") << 10))
            .sum(),
    )
}

/// Both rings of both ends are on the node, and nothing else.
#[test]
fn rings_are_on_the_node_of_their_adapter() {
    with_adapters(&[Adapter::roce("mlx5_0", 1).on_node(0)], || {
        are_placed_by("rdma:provider=verbs;slab=256K;slabs=4", "prefer:0", "0");
    });
}

/// Their pages take turns with the nodes. The machine of the test has the first one only.
#[test]
fn rings_of_adapters_on_two_nodes_are_on_both() {
    let adapters = [
        Adapter::roce("mlx5_0", 1).on_node(0),
        Adapter::roce("mlx5_1", 2).on_node(1),
    ];
    with_adapters(&adapters, || {
        let stack = "rdma:device=mlx5_0+mlx5_1;provider=verbs;slab=256K;slabs=4";
        are_placed_by(stack, "interleave:0", "0+1");
    });
}

fn are_placed_by(stack: &str, policy: &str, node: &str) {
    let placed = Cell::new(None);
    let ends = transfer_and_look(stack, stack, 1 << 20, || placed.set(placed_by(policy)));
    let mut bytes = 0;
    for end in &ends {
        assert_eq!(detail(end, "numa-node"), node);
        let ring: u64 = detail(end, "ring-bytes").parse().expect("a number");
        bytes += 2 * ring;
    }
    match placed.get() {
        Some(placed) => assert_eq!(placed, bytes),
        None => skipped("the kernel does not show where memory is"),
    }
}
