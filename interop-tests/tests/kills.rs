//! A few rounds of `make kills`: with these seeds, one of each fault, and a silence of the network before it is found.

use gridhaul_interop::kills::Campaign;

#[test]
fn transfers_over_nodes_survive_kills_and_cuts() {
    let campaign = Campaign {
        seed: 1031,
        rounds: 5,
        jobs: 2,
    };
    let summary = campaign.run().unwrap();
    assert!(summary.defects.is_empty(), "{:#?}", summary.defects);
}
