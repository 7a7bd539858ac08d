//! The conformance suite over async-rdma, as over the driver's own providers.
//!
//! `GRIDHAUL_RDMA_ADDRESS` is a local address that has a RoCE device. Where there is none, these tests are ignored, which
//! `cargo test` reports; with a device, run them with `--ignored`, and then a missing one is a failure.

use std::env;

use gridhaul_protocol::stack::StackSpec;
use gridhaul_stack::conformance::Subject;
use gridhaul_stack::{Fault, Registry, conformance_tests};

conformance_tests!(
    #[ignore = "needs a RoCE device, and GRIDHAUL_RDMA_ADDRESS to name its address"]
    async_rdma,
    subject("rdma")
);
conformance_tests!(
    #[ignore = "needs a RoCE device, and GRIDHAUL_RDMA_ADDRESS to name its address"]
    small,
    subject("rdma:slab=4K;slabs=3;message=1K")
);
conformance_tests!(
    #[ignore = "needs a RoCE device, and GRIDHAUL_RDMA_ADDRESS to name its address"]
    under_fault,
    subject("rdma:slab=1M,fault:short=61;seed=7")
);

fn subject(stack: &str) -> Subject {
    let address = env::var("GRIDHAUL_RDMA_ADDRESS").expect("GRIDHAUL_RDMA_ADDRESS is set");
    let mut registry = Registry::new();
    registry.register(Fault);
    registry.register(gridhaul_rdma_async_rdma::driver());
    let spec = StackSpec::parse(stack).expect("a stack string");
    let stack = registry.build(&spec).expect("drivers that are registered");
    let address = address
        .parse()
        .expect("GRIDHAUL_RDMA_ADDRESS is an address");
    // Devices in software take tens of milliseconds for each.
    Subject::new(stack).at(address).openings(200)
}
