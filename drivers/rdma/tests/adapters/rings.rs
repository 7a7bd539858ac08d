//! Long rings, for whose pages adapters need time.

use std::thread;
use std::time::{Duration, Instant};

use gridhaul_rdma::memory_load;

use crate::channel::{detail, transfer};
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
