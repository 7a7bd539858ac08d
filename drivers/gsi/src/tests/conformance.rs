//! The conformance suite of channels, over each transport.

use std::sync::LazyLock;
use std::time::Duration;

use gridhaul_rdma::Rdma;
use gridhaul_rdma::sim::{self, FabricSettings, Link};
use gridhaul_stack::conformance::{Subject, check_options};
use gridhaul_stack::{Driver, conformance_tests};

use super::ftps::Tls;
use super::{pki, stack, stack_over};
use crate::{Gsi, Protection};

conformance_tests!(gsi_clear, gsi("tcp,gsi", Protection::Clear));
conformance_tests!(gsi_private, gsi("tcp,gsi", Protection::Private));
conformance_tests!(gsi_clear_in_memory, gsi("memory,gsi", Protection::Clear));
conformance_tests!(
    gsi_private_in_memory,
    gsi("memory:buffer=1M,gsi", Protection::Private)
);
conformance_tests!(
    gsi_private_in_small_pieces,
    gsi("tcp,fault:short=61;seed=7,gsi", Protection::Private)
);
conformance_tests!(
    gsi_clear_over_rdma,
    gsi_over(Rdma, "rdma:provider=soft;slab=1M,gsi", Protection::Clear)
);
conformance_tests!(
    gsi_private_over_rdma,
    gsi_over(Rdma, "rdma:provider=soft;slab=1M,gsi", Protection::Private)
);
conformance_tests!(
    gsi_private_over_a_simulated_fabric,
    gsi_over(
        sim::driver(lossy_path()),
        "rdma:slab=1M;qps=2,gsi",
        Protection::Private
    )
);
conformance_tests!(ftps, Subject::new(stack("tcp,ftps", Tls::clone(&TLS))));

static TLS: LazyLock<Tls> = LazyLock::new(Tls::new);

fn gsi(spec: &str, protection: Protection) -> Subject {
    Subject::new(stack(spec, pki::alice(protection)))
}

fn gsi_over(transport: impl Driver + 'static, spec: &str, protection: Protection) -> Subject {
    Subject::new(stack_over(transport, spec, pki::alice(protection)))
}

/// 1 GB/s and 100 us each way, with one packet of 500 lost.
fn lossy_path() -> FabricSettings {
    let mut settings = FabricSettings::new(Link::new(1_000_000_000, Duration::from_micros(100)));
    for link in &mut settings.links {
        link.loss = 0.002;
    }
    settings
}

#[test]
fn options_are_checked() {
    check_options(&pki::alice(Protection::Clear));
    check_options(&Gsi::without_session());
    check_options(&*TLS);
}
