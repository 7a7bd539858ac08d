//! Starts a kernel, waits for its end, and reads what its command left.

use std::fs::{self, File};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use tempfile::TempDir;

use super::kernel::DIRECTORY;
use super::{Guest, GuestError, MARK, Network, Report, mark_of};
use crate::group::Group;

/// A guest that was started.
pub(super) struct Machine {
    /// Its directory on the host, with its command and what it leaves.
    share: TempDir,
    group: Group,
}

impl Machine {
    /// Starts the kernel.
    pub(super) fn start(guest: &Guest, kernel: &Path) -> io::Result<Self> {
        let share = tempfile::Builder::new()
            .prefix("gridhaul-guest-")
            .tempdir()?;
        fs::write(share.path().join("command"), command(guest))?;
        fs::copy("/proc/cpuinfo", share.path().join("cpuinfo"))?;
        let group = Group::start(machine(guest, kernel, share.path())?)?;
        Ok(Self { share, group })
    }

    /// Returns when its command has ended.
    pub(super) fn wait(mut self, limit: Duration) -> Result<Report, GuestError> {
        let status = self.group.wait(limit)?;
        if status.is_none() {
            return Err(GuestError::TimedOut {
                limit,
                output: self.words(),
            });
        }
        let ended = String::from_utf8_lossy(&self.read("status")).into_owned();
        match ended.trim_end().parse() {
            Ok(status) if self.share.path().join("output").exists() => Ok(Report {
                status,
                output: self.read("output"),
            }),
            _ => Err(GuestError::Boot {
                console: self.words(),
            }),
        }
    }

    /// All that it has said until now.
    pub(super) fn words(&self) -> String {
        let said = ["network.log", "output", "console"].map(|name| self.read(name));
        String::from_utf8_lossy(&said.concat()).into_owned()
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
        // A kernel that panics ends.
        .arg("panic=-1")
        .arg(format!("uml_dir={}/", share.display()))
        .arg(format!("init={DIRECTORY}/init"))
        // What the kernel does not know becomes a variable of the first process.
        .arg(format!("share={}", share.display()))
        .arg(format!("network={network}"))
        // Its memory is a file, which belongs into ours: without these it looks for a tmpfs itself.
        .env_remove("TMPDIR")
        .env_remove("TMP")
        .env_remove("TEMP")
        .stdin(Stdio::null())
        .stdout(console.try_clone()?)
        .stderr(console);
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

/// The words of the command, each with a zero behind it.
fn command(guest: &Guest) -> Vec<u8> {
    let variables = std::env::vars_os()
        // Its temporary files are in memory of its own.
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
