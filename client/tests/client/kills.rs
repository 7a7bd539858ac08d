//! Copies whose client or server is killed in the middle; `make copy-kills` has any number of others.

use std::path::Path;
use std::time::Duration;

use gridhaul_interop::kills::{Mirror, Moment, Script, Victim, Way};

/// Copies large files, and returns how many bytes were sent again. Each kill must hit the copy, which has more than 2 s for all of
/// them.
fn play(way: Way, victim: Victim, parallel: u64, moments: &[Moment]) -> u64 {
    play_mirror(Mirror::Off, way, victim, parallel, moments)
}

fn play_mirror(mirror: Mirror, way: Way, victim: Victim, parallel: u64, moments: &[Moment]) -> u64 {
    let script = Script {
        way,
        victim,
        parallel,
        is_large: true,
        mirror,
        moments: moments.to_vec(),
    };
    let client = Path::new(env!("CARGO_BIN_EXE_gridhaul"));
    let played = script.play(client).unwrap();
    eprintln!("{script}: {} bytes sent again", played.sent_again);
    assert_eq!(played.kills, script.moments.len(), "{script}");
    played.sent_again
}

const fn after(milliseconds: u64) -> Moment {
    Moment::After(Duration::from_millis(milliseconds))
}

#[test]
fn copies_are_completed_after_kills_of_the_client_and_send_little_again() {
    play(Way::Put, Victim::Client, 4, &[after(1700)]);
    play(Way::Get, Victim::Client, 1, &[after(900), after(900)]);
    play(Way::Between, Victim::Client, 4, &[after(1800)]);
}

#[test]
fn mirrors_are_completed_after_early_kills_of_all_ends() {
    for (way, parallel) in [(Way::Get, 4), (Way::Put, 1), (Way::Between, 4)] {
        let moments = [after(100), after(1200)];
        play_mirror(Mirror::Delete, way, Victim::All, parallel, &moments);
    }
}

#[test]
fn a_copy_goes_on_when_its_server_was_killed_and_starts_again() {
    play(Way::Put, Victim::Destination, 1, &[after(1200)]);
}

#[test]
fn a_server_that_is_killed_before_any_marker_costs_little() {
    // At 16 MB a second, the first markers come much later.
    const STORED: u64 = 5_000_000;
    for victim in [Victim::Source, Victim::Destination] {
        let again = play(Way::Between, victim, 4, &[Moment::Stored(STORED)]);
        assert!(again < STORED / 2, "{victim:?}: {again}");
    }
}
