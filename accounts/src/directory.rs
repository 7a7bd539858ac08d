//! Directories in which several processes make and remove a name, and sockets that dead servers leave there.

use std::ffi::OsStr;
use std::fs::{self, File};
use std::io;
use std::os::fd::AsRawFd as _;
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use rustix::fs::{AtFlags, FlockOperation, flock, unlinkat};
use rustix::io::Errno;
use rustix::process::geteuid;

/// Locks a directory until it is closed. Every account that may read the directory can lock it, so this waits a few seconds
/// and no longer.
///
/// # Errors
///
/// When another process keeps its lock, or the directory cannot be locked.
pub fn lock_directory(directory: &File) -> io::Result<()> {
    const LIMIT: Duration = Duration::from_secs(5);
    const PAUSE: Duration = Duration::from_millis(20);

    let begun = Instant::now();
    loop {
        match flock(directory, FlockOperation::NonBlockingLockExclusive) {
            Err(Errno::WOULDBLOCK) if begun.elapsed() < LIMIT => thread::sleep(PAUSE),
            Err(Errno::WOULDBLOCK) => {
                return Err(io::Error::new(
                    io::ErrorKind::WouldBlock,
                    format!(
                        "another process has kept a lock on its directory for {} s; lslocks shows it",
                        LIMIT.as_secs()
                    ),
                ));
            }
            locked => return Ok(locked?),
        }
    }
}

/// Whether only root, or the account of this process, can replace the files of a directory.
///
/// # Errors
///
/// When its owner cannot be found out.
pub fn is_private(directory: &File) -> io::Result<bool> {
    let found = directory.metadata()?;
    let is_ours = found.uid() == 0 || found.uid() == geteuid().as_raw();
    let (is_open, is_sticky) = (found.mode() & 0o022 != 0, found.mode() & 0o1000 != 0);
    Ok(is_ours && (!is_open || is_sticky))
}

/// Removes a Unix socket that no process listens at. Returns whether it did. A socket in a directory that other accounts may
/// change stays.
///
/// # Errors
///
/// When the directory cannot be used.
pub fn remove_dead_socket(path: &Path) -> io::Result<bool> {
    let Some(name) = path.file_name() else {
        return Ok(false);
    };
    let parent = path.parent().filter(|parent| *parent != Path::new(""));
    let directory = File::open(parent.unwrap_or_else(|| Path::new(".")))?;
    if !is_private(&directory)? {
        return Ok(false);
    }
    // A server that starts holds the lock until it listens.
    lock_directory(&directory)?;
    if !is_dead(&directory, name)? {
        return Ok(false);
    }
    unlinkat(&directory, name, AtFlags::empty())?;
    Ok(true)
}

fn is_dead(directory: &File, name: &OsStr) -> io::Result<bool> {
    // The path may lead elsewhere by now, and the descriptor does not.
    let path = PathBuf::from(format!("/proc/self/fd/{}", directory.as_raw_fd())).join(name);
    let found = match fs::symlink_metadata(&path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(false),
        found => found?,
    };
    if !found.file_type().is_socket() {
        return Ok(false);
    }
    match UnixStream::connect(&path) {
        Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => Ok(true),
        Err(_) | Ok(_) => Ok(false),
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixListener;

    use super::*;

    #[test]
    fn only_sockets_that_nothing_listens_at_are_removed() {
        let place = tempfile::tempdir().expect("a directory");
        let path = place.path().join("admin.sock");
        assert!(!remove_dead_socket(&path).expect("nothing is there"));
        let listener = UnixListener::bind(&path).expect("bound");
        assert!(!remove_dead_socket(&path).expect("it lives"));
        drop(listener);
        assert!(remove_dead_socket(&path).expect("it is dead"));
        fs::write(&path, "important").expect("written");
        assert!(!remove_dead_socket(&path).expect("it is no socket"));
        assert_eq!(fs::read(&path).expect("still there"), b"important");
    }

    #[test]
    fn a_lock_of_another_process_ends_the_wait_with_a_message() {
        let place = tempfile::tempdir().expect("a directory");
        let [held, wanted] = [(); 2].map(|()| File::open(place.path()).expect("opened"));
        lock_directory(&held).expect("free");
        let error = lock_directory(&wanted).expect_err("held");
        assert!(
            error.to_string().contains("a lock on its directory"),
            "{error}"
        );
        drop(held);
        lock_directory(&wanted).expect("free again");
    }
}
