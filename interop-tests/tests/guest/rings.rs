//! The length of the first rings, with the default options.

use std::time::Duration;

use gridhaul_interop::guest::{LEFT, Network, RIGHT, inside};

use crate::path;
use crate::sessions::Sessions;
use crate::sites::{number, transfers};

/// Eight seconds over the longer path.
const BYTES: u64 = 30_000_000;

/// What veth tells as its speed (veth_get_link_ksettings), in bytes of payload per second: of 10 Gb/s 95 %. A device in software has no
/// rate of its own.
const PORT: u64 = 1_187_500_000;

/// An eighth of `rdma-memory` holds the longest ring below: the part that the rings of a client may have. It is what a machine of 4 GB has
/// by default, and with little memory for other buffers the guest has as much.
const MEMORY: [&str; 4] = ["--rdma-memory", "960M", "--buffer-memory", "16M"];

/// Paths: their round trip in milliseconds, and their rate in megabits per second. Soft-RoCE sends 0.3 MB in a round trip with one queue
/// pair, which is a little more than they carry in that time. Much more would wait so long that it is sent again.
const PATHS: [(u64, u64); 2] = [(10, 150), LONG];
const LONG: (u64, u64) = (50, 30);

/// Ring and path are not the same thing: the ring is made for the ports, and the path is slower.
#[test]
#[ignore = "needs a guest: make test-rdma"]
fn the_first_ring_follows_ports_and_round_trip_and_fills_the_path() {
    let name = "rings::the_first_ring_follows_ports_and_round_trip_and_fills_the_path";
    inside(Network::Rxe, name, || {
        let mut sessions = Sessions::started([LEFT, RIGHT], BYTES, &std::env::temp_dir(), &MEMORY);
        sessions.set_stack("rdma:provider=verbs");
        for (milliseconds, megabits) in PATHS {
            path::delay_over(Duration::from_millis(milliseconds), megabits);
            sessions.copy_whole();
            let needed = 2 * PORT * milliseconds / 1000;
            for reply in sessions.details() {
                let ring = number(&reply, "ring-bytes");
                // The measured round trip is longer on a busy machine, but the ring is not what the next path needs.
                let is_fitted = (needed / 100 * 99..needed * 5).contains(&ring);
                assert!(is_fitted, "not {needed}: {reply}");
                assert_eq!(number(&reply, "ring-changes"), 0, "the first one: {reply}");
            }
        }
        fills(&sessions, LONG.1);
    });
}

/// The last copy had most of the rate of the path, or half of it on a busy machine, which needs seconds to open the channel. The sender is
/// done when the ring has the rest of the file, so the receiver tells.
fn fills(sessions: &Sessions, megabits: u64) {
    let path = megabits as f64 * 125_000.0;
    let [_, destination] = &sessions.servers;
    let log = destination.log();
    let transfers = transfers(&log);
    let last = transfers.last().unwrap();
    let share = BYTES as f64 / seconds(last) / path;
    println!("{share:.2} of the path");
    assert!((0.5..=1.0).contains(&share), "{share}: {last}");
}

/// The duration of a transfer.
fn seconds(line: &str) -> f64 {
    let mut words = line.split_whitespace();
    let seconds = words.find_map(|word| word.strip_prefix("seconds=")?.parse().ok());
    seconds.unwrap_or_else(|| panic!("no duration in {line}"))
}
