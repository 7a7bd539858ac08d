//! What the server's filter costs for each system call: nanoseconds without it and with it, best of 1,000 rounds.
//!
//! `cargo run --release -p gridhaul-sandbox --example cost`

use std::fs::File;
use std::os::fd::OwnedFd;
use std::time::Instant;

use gridhaul_sandbox::server::{self, Needs};
use rustix::net::{AddressFamily, SocketType, socket};

const CALLS: u32 = 1_000;
const ROUNDS: u32 = 1_000;

fn nanoseconds(mut call: impl FnMut()) -> f64 {
    let round = |call: &mut dyn FnMut()| {
        let start = Instant::now();
        (0..CALLS).for_each(|_| call());
        start.elapsed().as_secs_f64() * 1e9 / f64::from(CALLS)
    };
    let rounds = (0..ROUNDS).map(|_| round(&mut call));
    rounds.fold(f64::INFINITY, f64::min)
}

/// Calls that are allowed by number, and two whose arguments are looked at.
fn measure(zeros: &File, unix: &OwnedFd) -> [(&'static str, f64); 4] {
    let mut byte = [0_u8];
    [
        (
            "getppid, by number",
            nanoseconds(|| {
                let _ = rustix::process::getppid();
            }),
        ),
        (
            "pread64, by number",
            nanoseconds(|| {
                let _ = rustix::io::pread(zeros, &mut byte, 0);
            }),
        ),
        (
            "ioctl FIONREAD, by argument",
            nanoseconds(|| {
                let _ = rustix::io::ioctl_fionread(unix);
            }),
        ),
        (
            "socket and close, by argument",
            nanoseconds(|| drop(socket(AddressFamily::UNIX, SocketType::STREAM, None))),
        ),
    ]
}

fn main() {
    let zeros = File::open("/dev/zero").expect("a device");
    let unix = socket(AddressFamily::UNIX, SocketType::STREAM, None).expect("a socket");
    let without = measure(&zeros, &unix);
    let needs = Needs {
        rdma: true,
        io_uring: true,
    };
    let filter = server::filter(needs).expect("a known processor");
    filter.enforce().expect("a kernel with filters");
    let with = measure(&zeros, &unix);
    for ((name, without), (_, with)) in without.into_iter().zip(with) {
        println!("{name}: {without:.0} ns without, {with:.0} ns with the filter");
    }
}
