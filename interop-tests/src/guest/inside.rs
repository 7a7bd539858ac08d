//! Runs a test in one guest or in two.

use std::ffi::OsString;

use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};

use super::boot::{Guest, Report};
use super::end::{End, MARK, mark_of};
use super::error::GuestError;
use super::neighbour::{self, Neighbour};
use crate::support::Pki;
use crate::support::guest_network::Network;

/// Runs the test of this name, which is the caller, in a guest, where it calls `body`.
///
/// # Panics
///
/// When the guest does not boot, or the test fails in it.
pub fn inside(network: Network, test: &str, body: impl FnOnce()) {
    inside_with_disk(0, network, test, body);
}

/// The same in a guest with a disk of this size in MiB, whose file system is at [`DISK`](super::DISK).
///
/// # Panics
///
/// When the guest does not boot, or the test fails in it.
pub fn inside_with_disk(mib: u32, network: Network, test: &str, body: impl FnOnce()) {
    if std::env::var_os(MARK).is_some() {
        return body();
    }
    passed(Guest::new(network, this_test(test)).disk_mib(mib).run());
}

/// Runs the test of this name, which is the caller, in two guests that are connected by a cable. The guest at the end `left`
/// calls `body`; the guest at `right` runs the commands of [`Neighbour`].
///
/// # Panics
///
/// When a guest does not boot, or the test fails.
pub fn on_two_hosts(network: Network, test: &str, body: impl FnOnce(&Neighbour)) {
    let mark = std::env::var(MARK).ok();
    if mark.as_deref() == Some(mark_of(Some(End::Left))) {
        return body(&Neighbour::connect().expect("a neighbour"));
    }
    if mark.as_deref() == Some(mark_of(Some(End::Right))) {
        return neighbour::serve().expect("a service to the neighbour");
    }
    let cable = socketpair(
        AddressFamily::UNIX,
        SocketType::DGRAM,
        SocketFlags::CLOEXEC | SocketFlags::NONBLOCK,
        None,
    );
    let (left, right) = cable.expect("a pair of sockets");
    let guest = |end, cable| Guest::new(network, this_test(test)).connected(end, cable);
    let left = guest(End::Left, left);
    let right = guest(End::Right, right).start().expect("a second guest");
    let outcome = left.run();
    if !matches!(&outcome, Ok(report) if report.status == 0) {
        println!("The log of the neighbour: {}", right.log());
    }
    passed(outcome);
}

/// The command that runs only this test of this test program, with the host's certificates.
fn this_test(name: &str) -> Vec<OsString> {
    let certificates = Pki::shared().expect("certificates").variable();
    let program = std::env::current_exe().expect("the path of this program");
    let words = ["--exact", name, "--include-ignored", "--nocapture"].map(OsString::from);
    // The guest runs the command with env(1), which takes variables first.
    [certificates, program.into_os_string()]
        .into_iter()
        .chain(words)
        .collect()
}

fn passed(outcome: Result<Report, GuestError>) {
    match outcome {
        Ok(report) if report.status == 0 => println!("{report}"),
        Ok(report) => panic!("{report}"),
        Err(error) => panic!("{error}"),
    }
}
