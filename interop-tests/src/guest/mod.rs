//! A guest: a Linux kernel that runs as a program, user-mode Linux, with RDMA devices in software.
//!
//! The kernels of most machines have no such devices, and a test must not reconfigure their networks. A guest boots in
//! two seconds, needs neither privileges nor virtualization, and sees the host's files, which it cannot change. Its
//! kernel is built once, from Debian's source (`guest/build-kernel`). A guest that does not boot is an error,
//! never a reason to skip a test.

mod boot;
mod kernel;
mod neighbour;
mod policer;

use std::ffi::OsString;
use std::fmt;
use std::io;
use std::os::fd::OwnedFd;
use std::time::Duration;

use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};

use self::boot::Machine;
pub use self::neighbour::Neighbour;
pub use self::policer::Policer;
use crate::Pki;

/// Which network a guest has. There are two ends, `left` with [`LEFT`] and `right` with [`RIGHT`], and a cable
/// between them; of two guests, each has one end.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Network {
    /// None but loopback.
    None,
    /// Without devices for RDMA.
    Ethernet,
    /// With the devices `rxe_left` and `rxe_right`, which speak RoCE v2.
    Rxe,
    /// With the devices `siw_left` and `siw_right`, which speak iWARP.
    Siw,
}

/// The address of the end `left`.
pub const LEFT: &str = "10.9.0.1";

/// The address of the end `right`.
pub const RIGHT: &str = "10.9.0.2";

/// The address of IPv6 of the end `left`, where each end is in a guest of its own.
pub const LEFT_6: &str = "fd09::1";

/// The address of IPv6 of the end `right`.
pub const RIGHT_6: &str = "fd09::2";

/// What tells a test program that it runs in a guest: its end of the cable, or both.
const MARK: &str = "GRIDHAUL_GUEST";

/// An end of a cable between two guests.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum End {
    Left,
    Right,
}

impl End {
    fn name_and_hardware_address(self) -> (&'static str, &'static str) {
        match self {
            Self::Left => ("left", "02:00:00:00:00:01"),
            Self::Right => ("right", "02:00:00:00:00:02"),
        }
    }
}

fn mark_of(end: Option<End>) -> &'static str {
    end.map_or("both", |end| end.name_and_hardware_address().0)
}

/// A guest and the command that it is started for.
#[derive(Debug)]
pub struct Guest {
    network: Network,
    memory_mib: u32,
    limit: Duration,
    /// Of the host's, by its number; any without one.
    processor: Option<usize>,
    words: Vec<OsString>,
    /// Where it shares its network with another guest: its end, and what the cable is for the host.
    cable: Option<(End, OwnedFd)>,
}

impl Guest {
    /// A guest that runs the program `words`, with the environment of this process. It has 1 GiB of memory and
    /// five minutes.
    pub fn new<W: Into<OsString>>(network: Network, words: impl IntoIterator<Item = W>) -> Self {
        Self {
            network,
            memory_mib: 1024,
            limit: Duration::from_secs(300),
            processor: None,
            words: words.into_iter().map(Into::into).collect(),
            cable: None,
        }
    }

    /// Sets how much memory it has, in MiB.
    #[must_use]
    pub fn memory_mib(mut self, mib: u32) -> Self {
        self.memory_mib = mib;
        self
    }

    /// Sets how long it may run.
    #[must_use]
    pub fn time_limit(mut self, limit: Duration) -> Self {
        self.limit = limit;
        self
    }

    /// Keeps it to one processor of the host. It has one of its own, but is two programs that take turns, its kernel and the
    /// process whose calls that carries out: where each has a processor, every call wakes the other one twice.
    #[must_use]
    pub fn on_processor(mut self, number: usize) -> Self {
        self.processor = Some(number);
        self
    }

    /// Boots it, and returns when its command has ended.
    ///
    /// # Errors
    ///
    /// When the kernel cannot be built, does not boot, or is not done in time. A command that fails is not an error:
    /// see [`Report::status`].
    pub fn run(&self) -> Result<Report, GuestError> {
        self.start()?.wait(self.limit)
    }

    fn start(&self) -> Result<Machine, GuestError> {
        Ok(Machine::start(self, &kernel::path()?)?)
    }
}

/// What a guest's command did.
#[derive(Debug)]
pub struct Report {
    /// Its exit status, 128 and more for a signal.
    pub status: u8,
    /// Its standard output and standard error.
    pub output: Vec<u8>,
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}", String::from_utf8_lossy(&self.output).trim_end())?;
        write!(f, "(status {} in the guest)", self.status)
    }
}

/// Why a guest did not run its command to the end.
#[derive(Debug, thiserror::Error)]
pub enum GuestError {
    /// Its kernel was not built.
    #[error("the guest's kernel is not there: {0}")]
    Kernel(String),
    /// It ended early.
    #[error("the guest did not run the command; it said: {console}")]
    Boot {
        /// What was on its console.
        console: String,
    },
    /// It was killed.
    #[error("the guest was not done in {} s; until then: {output}", limit.as_secs())]
    TimedOut {
        /// How long it had.
        limit: Duration,
        /// What the command had printed, and the console.
        output: String,
    },
    /// The host's kernel refused something.
    #[error("cannot run a guest: {0}")]
    System(#[from] io::Error),
}

/// Runs the test of this name, which is the caller, in a guest: there `body` is called.
///
/// # Panics
///
/// When there is no guest, or the test fails in it.
pub fn inside(network: Network, test: &str, body: impl FnOnce()) {
    if std::env::var_os(MARK).is_some() {
        return body();
    }
    passed(Guest::new(network, this_test(test)).run());
}

/// Runs the test of this name, which is the caller, in two guests that are two hosts with a cable between them. `body` is
/// called in the one at the end `left`; the one at `right` does what it is asked to.
///
/// # Panics
///
/// When a guest is missing, or the test fails.
pub fn on_two_hosts(network: Network, test: &str, body: impl FnOnce(&Neighbour)) {
    let mark = std::env::var(MARK).ok();
    if mark.as_deref() == Some(mark_of(Some(End::Left))) {
        return body(&Neighbour::meet().expect("a neighbour"));
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
    let guest = |end, cable| Guest {
        cable: Some((end, cable)),
        ..Guest::new(network, this_test(test))
    };
    let left = guest(End::Left, left);
    let right = guest(End::Right, right).start().expect("a second guest");
    let outcome = left.run();
    if !matches!(&outcome, Ok(report) if report.status == 0) {
        println!("The neighbour said: {}", right.words());
    }
    passed(outcome);
}

/// The command that runs only this test of this program, with the host's certificates.
fn this_test(name: &str) -> Vec<OsString> {
    let certificates = Pki::shared().expect("certificates").variable();
    let program = std::env::current_exe().expect("the path of this program");
    let words = ["--exact", name, "--include-ignored", "--nocapture"].map(OsString::from);
    // The command is one of env(1), which takes variables first.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[ignore = "needs the guest's kernel: make test-rdma"]
    fn output_and_status_come_back() {
        let guest = Guest::new(Network::Rxe, ["sh", "-c", "echo out; rdma link; exit 3"]);
        let report = guest.run().unwrap();
        let output = String::from_utf8_lossy(&report.output);
        assert_eq!(report.status, 3, "{report}");
        assert!(output.starts_with("out\n"), "{report}");
        for device in ["rxe_left", "rxe_right"] {
            let line = output.lines().find(|line| line.contains(device));
            assert!(line.is_some_and(|line| line.contains("ACTIVE")), "{report}");
        }
    }

    #[test]
    #[ignore = "needs the guest's kernel: make test-rdma"]
    fn a_guest_that_hangs_is_killed() {
        let guest = Guest::new(Network::None, ["sleep", "1000"]);
        let guest = guest.time_limit(Duration::from_secs(10));
        assert!(matches!(guest.run(), Err(GuestError::TimedOut { .. })));
    }
}
