//! Copies whose client or server is killed in the middle; `make copy-kills` has any number of others.

use std::path::Path;
use std::time::Duration;

use gridhaul_interop::kills::{Script, Victim, Way};

/// Copies large files. Each kill must hit the copy, which has more than 2 s for all of them.
fn play(way: Way, victim: Victim, parallel: u64, delays: &[u64]) {
    let delays = delays.iter().copied().map(Duration::from_millis);
    let script = Script {
        way,
        victim,
        parallel,
        is_large: true,
        delays: delays.collect(),
    };
    let client = Path::new(env!("CARGO_BIN_EXE_gridhaul"));
    let played = script.play(client).unwrap();
    eprintln!("{script}: {} bytes sent again", played.sent_again);
    assert_eq!(played.kills, script.delays.len(), "{script}");
}

#[test]
fn copies_are_completed_after_kills_of_the_client_and_send_little_again() {
    play(Way::Put, Victim::Client, 4, &[1700]);
    play(Way::Get, Victim::Client, 1, &[900, 900]);
    play(Way::Between, Victim::Client, 4, &[1800]);
}

#[test]
fn a_copy_goes_on_when_its_server_was_killed_and_starts_again() {
    play(Way::Put, Victim::Destination, 1, &[1200]);
}
