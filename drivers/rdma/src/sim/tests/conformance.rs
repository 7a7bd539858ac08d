//! The conformance suite over simulated paths, alone and under the transforms of the stack crate.
//!
//! Paths are short and fast, so that the suite does not wait for long.

use std::time::Duration;

use gridhaul_protocol::stack::StackSpec;
use gridhaul_stack::conformance::Subject;
use gridhaul_stack::{Fault, Registry, Trace, conformance_tests};

use crate::sim::{FabricSettings, Link, Policer, Repeat, driver};

conformance_tests!(short, subject(short_path(), "rdma"));
conformance_tests!(
    with_losses,
    subject(lossy_path(), "rdma:qps=3;slab=64K;slabs=3;message=16K")
);
conformance_tests!(
    with_a_policer,
    subject(policed_path(), "rdma:rate=1200m;burst=64K;message=32K")
);
conformance_tests!(
    without_another_life,
    subject(
        FabricSettings {
            replaces: false,
            ..short_path()
        },
        "rdma:slab=64K;message=4K"
    )
);
conformance_tests!(
    with_selective_repeat,
    subject(
        FabricSettings {
            repeat: Repeat::Selective,
            turn_packets: 4,
            ..lossy_path()
        },
        "rdma:qps=3;slab=64K;slabs=3;message=16K"
    )
);
conformance_tests!(in_messages, subject(lossy_path(), "rdma:inline=16K;qps=2"));
conformance_tests!(
    fetching,
    subject(
        short_path(),
        "rdma:mode=get;qps=2;slab=64K;slabs=3;message=4K"
    )
);
conformance_tests!(
    fetching_with_losses,
    subject(lossy_path(), "rdma:mode=get;slab=64K;message=16K")
);
conformance_tests!(
    direct,
    subject(lossy_path(), "rdma:direct=1;slab=256K;qps=2;message=64K")
);
conformance_tests!(pinning, subject(short_path(), "rdma:register=dynamic"));
conformance_tests!(under_trace, subject(short_path(), "rdma:slab=1M,trace"));
conformance_tests!(
    under_fault,
    subject(short_path(), "rdma:slab=1M,fault:short=61;seed=7")
);

/// 1 GB/s, and 100 us in each direction.
fn short_path() -> FabricSettings {
    FabricSettings::new(Link::new(1_000_000_000, Duration::from_micros(100)))
}

/// One packet of 500 is lost, and delays vary.
fn lossy_path() -> FabricSettings {
    let mut settings = short_path();
    for link in &mut settings.links {
        link.loss = 0.002;
        link.jitter = Duration::from_micros(200);
    }
    settings
}

/// A policer of 200 MB/s.
fn policed_path() -> FabricSettings {
    let mut settings = short_path();
    for link in &mut settings.links {
        link.policer = Some(Policer {
            rate: 200_000_000,
            burst: 128 << 10,
        });
    }
    settings
}

fn subject(path: FabricSettings, stack: &str) -> Subject {
    let mut registry = Registry::new();
    registry.register(Fault);
    registry.register(driver(path));
    registry.register(Trace::new(|_| {}));
    let spec = StackSpec::parse(stack).expect("a stack string");
    Subject::new(registry.build(&spec).expect("drivers that are registered"))
}
