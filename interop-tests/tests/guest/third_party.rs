//! Third-party copies between sites.

use std::time::Duration;

use gridhaul_interop::guest::{Network, Policer, inside};

use crate::path;
use crate::sites::Sites;

/// More than a ring of the stacks below.
const BYTES: u64 = 40_000_003;

#[test]
#[ignore = "needs a guest: make test-rdma"]
fn soft_carries_files_over_paths_of_any_length() {
    let name = "third_party::soft_carries_files_over_paths_of_any_length";
    inside(Network::Ethernet, name, || over_paths_of_any_length("soft"));
}

#[test]
#[ignore = "needs a guest: make test-rdma"]
fn roce_carries_files_over_paths_of_any_length() {
    let name = "third_party::roce_carries_files_over_paths_of_any_length";
    inside(Network::Rxe, name, || over_paths_of_any_length("verbs"));
}

/// Soft-RoCE sends 0.3 MB per round trip and queue pair, so four queue pairs take four seconds at 120 ms.
fn over_paths_of_any_length(provider: &str) {
    let sites = Sites::new(BYTES);
    for round_trip in [0, 10, 50, 120] {
        path::delay(Duration::from_millis(round_trip));
        let one_channel = format!("rdma:provider={provider};qps=4");
        sites.copy_whole(&["-dcstack", &one_channel]);
        let several = format!("rdma:provider={provider};slab=1M;qps=4,gsi");
        sites.copy_whole(&["-dcstack", &several, "-p", "2", "-fast"]);
    }
}

#[test]
#[ignore = "needs a guest: make test-rdma"]
fn a_policer_drops_no_packet_of_a_paced_copy() {
    let name = "third_party::a_policer_drops_no_packet_of_a_paced_copy";
    inside(Network::Rxe, name, || {
        let sites = Sites::new(BYTES);
        // A busy machine sends some messages late, as a burst.
        Policer::OfRight.install(400_000_000, 256 << 10).unwrap();
        for message in ["32K", "64K"] {
            let stack = format!("rdma:provider=verbs;rate=360m;message={message}");
            sites.copy_whole(&["-dcstack", &stack]);
            assert_eq!(
                Policer::OfRight.dropped().unwrap(),
                0,
                "messages of {message}"
            );
        }
    });
}
