//! Opens the file of a descriptor again, through the link to the descriptor in `/proc`.
//!
//! The directory of these links stays open, because resolving `/proc/self/fd` costs as much as a short path to a file.

use std::os::fd::{AsFd, AsRawFd as _, BorrowedFd, OwnedFd};
use std::sync::OnceLock;

use rustix::fs::{CWD, Mode, OFlags, ResolveFlags};
use rustix::io::Errno;
use rustix::process::Pid;

use super::resolve::path_of;

/// The links of the descriptors of a process.
#[derive(Debug)]
struct Links {
    /// A forked process inherits this, and must not use the links of its parent.
    process: Pid,
    directory: OwnedFd,
}

static LINKS: OnceLock<Links> = OnceLock::new();

/// Opens the file of a descriptor again; `ENOENT` without `/proc`. Uses `openat2`, the only call that brokers may open
/// files with.
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

/// Whether [`link_of`] has something to return.
pub(super) fn has_links() -> bool {
    matches!(links(), Ok(Some(_)))
}

/// The link to a descriptor: its directory and its name.
pub(super) fn link_of(held: impl AsFd) -> Result<(BorrowedFd<'static>, String), Errno> {
    let links = links()?.ok_or(Errno::NOENT)?;
    let name = held.as_fd().as_raw_fd().to_string();
    Ok((links.directory.as_fd(), name))
}

/// `None` if the links are those of another process.
fn links() -> Result<Option<&'static Links>, Errno> {
    let process = rustix::process::getpid();
    let links = match LINKS.get() {
        Some(links) => links,
        None => {
            let flags = OFlags::PATH | OFlags::DIRECTORY;
            let directory = open(CWD, "/proc/self/fd", flags)?;
            // If another thread was faster, its directory is used.
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
    fn the_file_of_the_descriptor_is_opened_and_not_another_of_its_name() {
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
