//! The path between the two ends of a guest's cable.

use std::fs;
use std::thread;
use std::time::{Duration, Instant};

use gridhaul_interop::Client;
use gridhaul_interop::guest::{LEFT, RIGHT};

/// Delays the packets of both ends, for this round-trip time.
pub(crate) fn delay(round_trip: Duration) {
    emulate(round_trip, "");
}

/// The same over a path of so many megabits per second.
pub(crate) fn delay_over(round_trip: Duration, megabits: u64) {
    emulate(round_trip, &format!(" rate {megabits}mbit"));
}

fn emulate(round_trip: Duration, rate: &str) {
    let delay = format!("{}us", round_trip.as_micros() / 2);
    for end in ["left", "right"] {
        // The default limit of 1000 packets is less than the bandwidth-delay product of a long path.
        let words = format!("qdisc replace dev {end} root netem delay {delay} limit 100000{rate}");
        run("tc", &words);
    }
}

/// Loses one percent of the packets of the left end.
pub(crate) fn lose() {
    run(
        "tc",
        "qdisc replace dev left root netem loss 1% limit 100000",
    );
}

/// Sets the link down; packets are lost.
pub(crate) fn unplug() {
    for end in ["left", "right"] {
        run("ip", &format!("link set {end} down"));
    }
}

/// Sets the link up again.
pub(crate) fn plug() {
    for (end, peer, table) in [("left", RIGHT, 101), ("right", LEFT, 102)] {
        run("ip", &format!("link set {end} up"));
        // The routes were removed with the link.
        run(
            "ip",
            &format!("route replace {peer} dev {end} table {table}"),
        );
    }
}

/// The files of RDMA devices that a program can open.
pub(crate) fn device_files() -> usize {
    let devices = fs::read_dir("/sys/class/infiniband_verbs").unwrap();
    let names = devices.map(|device| device.unwrap().file_name());
    names
        .filter(|name| name.to_string_lossy().starts_with("uverbs"))
        .count()
}

/// Waits until that is the case.
pub(crate) fn wait_for(what: &str, is_so: impl Fn() -> bool) {
    let started = Instant::now();
    while !is_so() {
        assert!(started.elapsed() < Duration::from_secs(30), "{what}");
        // All programs of a guest share one processor.
        thread::sleep(Duration::from_millis(5));
    }
}

/// Runs a program, which must succeed.
pub(crate) fn run(program: &str, arguments: &str) -> String {
    let finished = Client::new(program).args(arguments.split(' ')).run();
    let finished = finished.unwrap();
    assert!(finished.status.success(), "{finished}");
    finished.output()
}
