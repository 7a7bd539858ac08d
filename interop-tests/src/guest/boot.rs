//! Boots a guest, waits for its end, and reads the output of its command.

use std::ffi::OsString;
use std::fmt;
use std::fs::{self, File};
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use tempfile::TempDir;

use super::end::{End, MARK, mark_of};
use super::error::GuestError;
use super::kernel::{self, DIRECTORY};
use crate::support::guest_network::Network;
use crate::support::process_group::ProcessGroup;

/// A guest and the command that it runs.
#[derive(Debug)]
pub struct Guest {
    network: Network,
    memory_mib: u32,
    /// The size of its disk; 0 without one.
    disk_mib: u32,
    limit: Duration,
    /// The number of the host's processor; any without one.
    processor: Option<usize>,
    words: Vec<OsString>,
    /// Its end of a cable to another guest, and the socket that carries the packets on the host.
    cable: Option<(End, OwnedFd)>,
}

impl Guest {
    /// A guest that runs the program `words`, with the environment of this process. It has 1 GiB of memory and
    /// five minutes.
    pub fn new<W: Into<OsString>>(network: Network, words: impl IntoIterator<Item = W>) -> Self {
        Self {
            network,
            memory_mib: 1024,
            disk_mib: 0,
            limit: Duration::from_secs(300),
            processor: None,
            words: words.into_iter().map(Into::into).collect(),
            cable: None,
        }
    }

    /// Sets its memory, in MiB.
    #[must_use]
    pub fn memory_mib(mut self, mib: u32) -> Self {
        self.memory_mib = mib;
        self
    }

    /// Gives it a disk of this size in MiB, with an empty file system at [`DISK`](super::DISK); 0 for none. What is written to it is in
    /// the memory of the guest.
    #[must_use]
    pub fn disk_mib(mut self, mib: u32) -> Self {
        self.disk_mib = mib;
        self
    }

    /// Sets its time limit.
    #[must_use]
    pub fn time_limit(mut self, limit: Duration) -> Self {
        self.limit = limit;
        self
    }

    /// Pins it to one processor of the host. User-mode Linux runs its kernel and its user process as two host processes, of which only
    /// one runs at a time: on two processors every system call would need two wake-ups across processors.
    #[must_use]
    pub fn on_processor(mut self, number: usize) -> Self {
        self.processor = Some(number);
        self
    }

    /// Connects its network to that of another guest.
    pub(super) fn connected(mut self, end: End, cable: OwnedFd) -> Self {
        self.cable = Some((end, cable));
        self
    }

    /// Boots it and returns after its command has ended.
    ///
    /// # Errors
    ///
    /// When the kernel cannot be built, does not boot, or exceeds the time limit. A command that fails is not an error:
    /// see [`Report::status`].
    pub fn run(&self) -> Result<Report, GuestError> {
        self.start()?.wait(self.limit)
    }

    /// Boots it.
    pub(super) fn start(&self) -> Result<Machine, GuestError> {
        Ok(Machine::start(self, &kernel::path()?)?)
    }
}

/// The result of a guest's command.
#[derive(Debug)]
pub struct Report {
    /// Its exit status; 128 plus the number of a signal.
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

/// A running guest.
pub(super) struct Machine {
    /// Its directory on the host, with its command and output.
    share: TempDir,
    group: ProcessGroup,
}

impl Machine {
    /// Starts the kernel.
    pub(super) fn start(guest: &Guest, kernel: &Path) -> io::Result<Self> {
        let share = tempfile::Builder::new()
            .prefix("gridhaul-guest-")
            .tempdir()?;
        fs::write(share.path().join("command"), command(guest))?;
        fs::copy("/proc/cpuinfo", share.path().join("cpuinfo"))?;
        let group = ProcessGroup::start(machine(guest, kernel, share.path())?)?;
        Ok(Self { share, group })
    }

    /// Returns after its command has ended.
    pub(super) fn wait(mut self, limit: Duration) -> Result<Report, GuestError> {
        let status = self.group.wait(limit)?;
        if status.is_none() {
            return Err(GuestError::TimedOut {
                limit,
                output: self.log(),
            });
        }
        let ended = String::from_utf8_lossy(&self.read("status")).into_owned();
        match ended.trim_end().parse() {
            Ok(status) if self.share.path().join("output").exists() => Ok(Report {
                status,
                output: self.read("output"),
            }),
            _ => Err(GuestError::Boot {
                console: self.log(),
            }),
        }
    }

    /// Its output and console until now.
    pub(super) fn log(&self) -> String {
        let logs = ["network.log", "disk.log", "output", "console"].map(|name| self.read(name));
        String::from_utf8_lossy(&logs.concat()).into_owned()
    }

    fn read(&self, name: &str) -> Vec<u8> {
        fs::read(self.share.path().join(name)).unwrap_or_default()
    }
}

/// The kernel and its command line.
fn machine(guest: &Guest, kernel: &Path, share: &Path) -> io::Result<Command> {
    let network = match guest.network {
        Network::None => "",
        Network::Ethernet => "ethernet",
        Network::Rxe => "rxe",
        Network::Siw => "siw",
        Network::Routed => "routed",
    };
    let console = File::create(share.join("console"))?;
    let mut machine = match guest.processor {
        None => Command::new(kernel),
        Some(number) => {
            let mut pinned = Command::new("taskset");
            pinned.args(["-c", &number.to_string()]).arg(kernel);
            pinned
        }
    };
    machine
        .arg(format!("mem={}M", guest.memory_mib))
        .args(["rootfstype=hostfs", "rootflags=/", "ro"])
        .args(["con0=null,fd:2", "con=null", "ssl=null", "quiet"])
        // The kernel exits after a panic.
        .arg("panic=-1")
        .arg(format!("uml_dir={}/", share.display()))
        .arg(format!("init={DIRECTORY}/init"))
        // Unknown parameters become environment variables of init.
        .arg(format!("share={}", share.display()))
        .arg(format!("network={network}"))
        // Its memory is a temporary file. Without these variables it chooses a tmpfs itself.
        .env_remove("TMPDIR")
        .env_remove("TMP")
        .env_remove("TEMP")
        .stdin(Stdio::null())
        .stdout(console.try_clone()?)
        .stderr(console);
    if guest.disk_mib > 0 {
        let kib = u64::from(guest.disk_mib) << 10;
        machine.args([format!("brd.rd_size={kib}"), "disk=/dev/ram0".to_owned()]);
    }
    if let Some((end, cable)) = &guest.cable {
        let (name, address) = end.name_and_hardware_address();
        machine
            .arg(format!(
                "vec0:transport=fd,fd=0,mac={address},mtu=9000,depth=1024,headroom=64"
            ))
            .arg(format!("end={name}"))
            .stdin(cable.try_clone()?);
    }
    Ok(machine)
}

/// The arguments of the command, each terminated by a zero byte.
fn command(guest: &Guest) -> Vec<u8> {
    let variables = std::env::vars_os()
        // The guest has its own tmpfs for temporary files.
        .filter(|(name, _)| name != "TMPDIR")
        .map(|(mut name, value)| {
            name.push("=");
            name.push(value);
            name
        });
    let end = guest.cable.as_ref().map(|(end, _)| *end);
    let mark = format!("{MARK}={}", mark_of(end)).into();
    let words = ["env".into(), mark].into_iter().chain(variables);
    let words = words.chain(guest.words.iter().cloned());
    words
        .flat_map(|word| [word.as_bytes(), &[0]].concat())
        .collect()
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
