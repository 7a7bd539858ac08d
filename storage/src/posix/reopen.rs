//! Opens what a descriptor holds, by the link that `/proc` has of it.
//!
//! The directory of these links is held from the first time on, since the way to it (`/proc/self/fd`) costs as much as a short
//! path to a file.

use std::os::fd::{AsFd, AsRawFd as _, OwnedFd};
use std::sync::OnceLock;

use rustix::fs::{CWD, Mode, OFlags, ResolveFlags};
use rustix::io::Errno;
use rustix::process::Pid;

use super::resolve::path_of;

/// The links of the descriptors of a process.
#[derive(Debug)]
struct Links {
    /// A copy of the process (`fork`) has this too, and must not use the links of the other one.
    process: Pid,
    directory: OwnedFd,
}

static LINKS: OnceLock<Links> = OnceLock::new();

/// Opens what a descriptor holds; `ENOENT` where there is no `/proc`. A broker may open files with `openat2` only.
pub(super) fn by_descriptor(held: impl AsFd, flags: OFlags) -> Result<OwnedFd, Errno> {
    let flags = flags | OFlags::NOCTTY | OFlags::NONBLOCK;
    match links()? {
        Some(links) => {
            let name = held.as_fd().as_raw_fd().to_string();
            open(&links.directory, &name, flags)
        }
        None => open(CWD, &path_of(held), flags),
    }
}

/// `None` if the links are those of another process.
fn links() -> Result<Option<&'static Links>, Errno> {
    let process = rustix::process::getpid();
    let links = match LINKS.get() {
        Some(links) => links,
        None => {
            let flags = OFlags::PATH | OFlags::DIRECTORY;
            let directory = open(CWD, "/proc/self/fd", flags)?;
            // If another thread was faster, its links are as good.
            LINKS.get_or_init(|| Links { process, directory })
        }
    };
    Ok((links.process == process).then_some(links))
}

fn open(directory: impl AsFd, name: &str, flags: OFlags) -> Result<OwnedFd, Errno> {
    let flags = flags | OFlags::CLOEXEC;
    rustix::io::retry_on_intr(|| {
        let (mode, resolve) = (Mode::empty(), ResolveFlags::empty());
        rustix::fs::openat2(&directory, name, flags, mode, resolve)
    })
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::io::Read as _;

    use super::*;

    #[test]
    fn what_is_held_is_opened_whatever_has_its_name_now() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("f");
        for content in ["first", "second"] {
            std::fs::write(&path, content).unwrap();
            let held = rustix::fs::open(&path, OFlags::PATH, Mode::empty()).unwrap();
            std::fs::remove_file(&path).unwrap();
            std::fs::write(&path, "other").unwrap();
            let mut file = File::from(by_descriptor(&held, OFlags::RDONLY).unwrap());
            let mut found = String::new();
            file.read_to_string(&mut found).unwrap();
            assert_eq!(found, content);
            std::fs::remove_file(&path).unwrap();
        }
    }
}
