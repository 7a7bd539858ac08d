//! The conformance suite over RDMA adapters, or the kernel's software ones.
//!
//! `GRIDHAUL_RDMA_ADDRESS` is a local address that has such a device. Without one these tests are
//! ignored, which `cargo test` reports; with one, run them with `--ignored`, and then a missing
//! device is a failure.

use std::env;

use gridhaul_protocol::stack::StackSpec;
use gridhaul_rdma::Rdma;
use gridhaul_stack::conformance::Subject;
use gridhaul_stack::{Fault, Registry, conformance_tests};

conformance_tests!(
    #[ignore = "needs an RDMA device, and GRIDHAUL_RDMA_ADDRESS to name its address"]
    verbs,
    subject("rdma:provider=verbs")
);
conformance_tests!(
    #[ignore = "needs an RDMA device, and GRIDHAUL_RDMA_ADDRESS to name its address"]
    several_queue_pairs,
    subject("rdma:provider=verbs;qps=3;slab=4K;slabs=3;message=1K")
);
conformance_tests!(
    #[ignore = "needs an RDMA device, and GRIDHAUL_RDMA_ADDRESS to name its address"]
    in_messages,
    subject("rdma:provider=verbs;inline=16K")
);
conformance_tests!(
    #[ignore = "needs an RDMA device, and GRIDHAUL_RDMA_ADDRESS to name its address"]
    fetching,
    subject("rdma:provider=verbs;mode=get")
);
conformance_tests!(
    #[ignore = "needs an RDMA device, and GRIDHAUL_RDMA_ADDRESS to name its address"]
    under_fault,
    subject("rdma:provider=verbs;slab=1M,fault:short=61;seed=7")
);

fn subject(stack: &str) -> Subject {
    let address = env::var("GRIDHAUL_RDMA_ADDRESS").expect("GRIDHAUL_RDMA_ADDRESS is set");
    let mut registry = Registry::new();
    registry.register(Fault);
    registry.register(Rdma);
    let spec = StackSpec::parse(stack).expect("a stack string");
    let stack = registry.build(&spec).expect("drivers that are registered");
    let address = address
        .parse()
        .expect("GRIDHAUL_RDMA_ADDRESS is an address");
    // Software devices take tens of milliseconds for each.
    Subject::new(stack).at(address).openings(200)
}
