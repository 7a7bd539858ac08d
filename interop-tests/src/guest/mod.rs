//! A guest: a Linux kernel that runs as a program, user-mode Linux, with RDMA devices in software.
//!
//! The kernels of most machines have no such devices, and nobody lets a test shape their networks. A guest boots in
//! two seconds, needs neither privileges nor virtualization, and sees the host's files, which it cannot change. Its
//! kernel is built once, from Debian's source (`guest/build-kernel`). A guest that does not boot is an error,
//! never a reason to skip a test.

mod boot;
mod kernel;

use std::ffi::OsString;
use std::fmt;
use std::io;
use std::time::Duration;

/// Which network a guest has. There are two ends, `left` with [`LEFT`] and `right` with [`RIGHT`], and a cable
/// between them.
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

/// What tells a test program that it runs in a guest.
const MARK: &str = "GRIDHAUL_GUEST";

/// A guest and the command that it is started for.
#[derive(Debug)]
pub struct Guest {
    network: Network,
    memory_mib: u32,
    limit: Duration,
    words: Vec<OsString>,
}

impl Guest {
    /// A guest that runs the program `words`, with the environment of this process. It has 1 GiB of memory and
    /// five minutes.
    pub fn new<W: Into<OsString>>(network: Network, words: impl IntoIterator<Item = W>) -> Self {
        Self {
            network,
            memory_mib: 1024,
            limit: Duration::from_secs(300),
            words: words.into_iter().map(Into::into).collect(),
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

    /// Boots it, and returns when its command has ended.
    ///
    /// # Errors
    ///
    /// When the kernel cannot be built, does not boot, or is not done in time. A command that fails is not an error:
    /// see [`Report::status`].
    pub fn run(&self) -> Result<Report, GuestError> {
        boot::run(self, &kernel::path()?)
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
    let program = std::env::current_exe().expect("the path of this program");
    let words = ["--exact", test, "--include-ignored", "--nocapture"].map(OsString::from);
    let words = std::iter::once(program.into_os_string()).chain(words);
    match Guest::new(network, words).run() {
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
