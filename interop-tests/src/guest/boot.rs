//! Starts a kernel, waits for its end, and reads what its command left.

use std::fs::{self, File};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::process::{Command, Stdio};

use super::kernel::DIRECTORY;
use super::{Guest, GuestError, MARK, Network, Report};
use crate::group::Group;

pub(super) fn run(guest: &Guest, kernel: &Path) -> Result<Report, GuestError> {
    let share = tempfile::Builder::new()
        .prefix("gridhaul-guest-")
        .tempdir()?;
    let share = share.path();
    fs::write(share.join("command"), command(guest))?;
    fs::copy("/proc/cpuinfo", share.join("cpuinfo"))?;
    let mut group = Group::start(machine(guest, kernel, share)?)?;
    let status = group.wait(guest.limit)?;
    drop(group);
    let read = |name: &str| fs::read(share.join(name)).unwrap_or_default();
    let words = |names: &[&str]| {
        let bytes: Vec<u8> = names.iter().flat_map(|name| read(name)).collect();
        String::from_utf8_lossy(&bytes).into_owned()
    };
    if status.is_none() {
        return Err(GuestError::TimedOut {
            limit: guest.limit,
            output: words(&["network.log", "output", "console"]),
        });
    }
    let ended = words(&["status"]).trim_end().parse().ok();
    match ended.filter(|_| share.join("output").exists()) {
        Some(status) => Ok(Report {
            status,
            output: read("output"),
        }),
        None => Err(GuestError::Boot {
            console: words(&["network.log", "output", "console"]),
        }),
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
    let mut machine = Command::new(kernel);
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
    let mark = format!("{MARK}=1").into();
    let words = ["env".into(), mark].into_iter().chain(variables);
    let words = words.chain(guest.words.iter().cloned());
    words
        .flat_map(|word| [word.as_bytes(), &[0]].concat())
        .collect()
}
