//! The path between the two ends of a guest's cable.

use std::time::Duration;

use gridhaul_interop::Client;
use gridhaul_interop::guest::{LEFT, RIGHT};

/// Delays what both ends send, so that a round trip takes this long.
pub(crate) fn delay(round_trip: Duration) {
    let delay = format!("{}us", round_trip.as_micros() / 2);
    for end in ["left", "right"] {
        // The default of 1000 packets is less than is under way on a long path.
        let words = format!("qdisc replace dev {end} root netem delay {delay} limit 100000");
        run("tc", &words);
    }
}

/// Loses one packet of a hundred that the left end sends.
pub(crate) fn lose() {
    run(
        "tc",
        "qdisc replace dev left root netem loss 1% limit 100000",
    );
}

/// Takes the cable out; what is sent is lost.
pub(crate) fn unplug() {
    for end in ["left", "right"] {
        run("ip", &format!("link set {end} down"));
    }
}

/// Puts it in again.
pub(crate) fn plug() {
    for (end, peer, table) in [("left", RIGHT, 101), ("right", LEFT, 102)] {
        run("ip", &format!("link set {end} up"));
        // The routes went with the link.
        run(
            "ip",
            &format!("route replace {peer} dev {end} table {table}"),
        );
    }
}

/// Runs a program of the system, which must succeed.
pub(crate) fn run(program: &str, arguments: &str) -> String {
    let finished = Client::new(program).args(arguments.split(' ')).run();
    let finished = finished.unwrap();
    assert!(finished.status.success(), "{finished}");
    finished.output()
}
