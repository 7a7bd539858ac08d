//! A few rounds of `make copy-kills`: kills of the client, which put, get, and copy between servers.

use gridhaul_interop::kills::CopyCampaign;

#[test]
fn copies_are_completed_after_kills_and_send_little_again() {
    for seed in [2546, 2549, 21] {
        let campaign = CopyCampaign {
            client: env!("CARGO_BIN_EXE_gridhaul").into(),
            seed,
            rounds: 1,
        };
        let defects = campaign.run().unwrap();
        assert!(defects.is_empty(), "{defects:#?}");
    }
}
