//! A cache of the files, which the test programs of a run share.
//!
//! Making the files takes seconds, and there are a dozen test programs. The first program makes a directory beneath the
//! temporary one, named after a hash of its sources. Later programs use it while it is fresh; a lock file makes programs
//! that start together wait for the first. An existing directory is never changed, because other programs use it.

use std::ffi::OsString;
use std::fs::{self, File, Permissions};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::command::{PkiError, run};
use crate::support::client::Client;
use crate::support::program::Kind;

/// The variable that holds the path of the host's directory for programs in a guest, where making another is slow.
const VARIABLE: &str = "GRIDHAUL_CERTIFICATES";

/// The age up to which a program starts to use a directory. The proxies in it are valid for twelve hours.
const FRESH: Duration = Duration::from_secs(3600);

/// The age after which no program can use it.
const EXPIRED: Duration = Duration::from_secs(12 * 3600);

/// The prefix of the name of a directory that is being made.
const UNFINISHED: &str = "unfinished-";

/// The sources that determine the files, besides the installed programs.
const SOURCES: [&str; 7] = [
    include_str!("authority.rs"),
    include_str!("bad.rs"),
    include_str!("certificates.rs"),
    include_str!("command.rs"),
    include_str!("files.rs"),
    include_str!("names.rs"),
    include_str!("users.rs"),
];

/// The directory with the files. `make` fills a new one if none is fresh.
pub(super) fn directory(
    make: impl FnOnce(&Path) -> Result<(), PkiError>,
) -> Result<PathBuf, PkiError> {
    if let Some(hosts) = std::env::var_os(VARIABLE) {
        return copy(hosts);
    }
    beneath(&parent()?, make)
}

fn beneath(
    parent: &Path,
    make: impl FnOnce(&Path) -> Result<(), PkiError>,
) -> Result<PathBuf, PkiError> {
    // Held until the end of this function.
    let lock = File::create(parent.join("lock"))?;
    lock.lock()?;
    let maker = maker();
    for entry in fs::read_dir(parent)? {
        let entry = entry?;
        let metadata = entry.metadata()?;
        // A modification time in the future is not an age.
        let Ok(age) = metadata.modified()?.elapsed() else {
            continue;
        };
        let is_ours = entry.file_name().to_string_lossy().starts_with(&maker);
        if is_ours && age < FRESH {
            return Ok(entry.path());
        }
        if metadata.is_dir() && age > EXPIRED {
            fs::remove_dir_all(entry.path())?;
        }
    }
    let unfinished = tempfile::Builder::new()
        .prefix(UNFINISHED)
        .permissions(Permissions::from_mode(0o755))
        .tempdir_in(parent)?;
    make(unfinished.path())?;
    let name = unfinished.path().file_name().unwrap_or_default();
    let name = name.to_string_lossy().replace(UNFINISHED, &maker);
    let finished = parent.join(name);
    fs::rename(unfinished.keep(), &finished)?;
    Ok(finished)
}

/// `NAME=VALUE` of the environment variable with which a program in a guest finds the host's directory.
pub(super) fn variable(directory: &Path) -> OsString {
    let mut variable = OsString::from(VARIABLE);
    variable.push("=");
    variable.push(directory);
    variable
}

/// Copies the host's directory, which may belong to an account that does not exist in the guest.
fn copy(hosts: OsString) -> Result<PathBuf, PkiError> {
    let own = std::env::temp_dir().join("gridhaul-certificates");
    let copy = Client::new("cp").arg("-R").arg(hosts).arg(&own);
    run(&std::env::temp_dir(), copy)?;
    Ok(own)
}

/// The parent directory, one for each account that runs tests.
fn parent() -> io::Result<PathBuf> {
    let account = rustix::process::geteuid();
    let parent = std::env::temp_dir().join(format!("gridhaul-certificates-{}", account.as_raw()));
    match fs::DirBuilder::new().mode(0o755).create(&parent) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
        _ => {}
    }
    // Another user may have made a directory of this name.
    let found = fs::symlink_metadata(&parent)?;
    if !found.is_dir() || found.uid() != account.as_raw() {
        let reason = format!("{} belongs to another account: remove it", parent.display());
        return Err(io::Error::other(reason));
    }
    Ok(parent)
}

/// The prefix of directory names: a hash of the present sources and programs.
fn maker() -> String {
    let mut hasher = DefaultHasher::new();
    SOURCES.hash(&mut hasher);
    // The server program makes the password file.
    if let Ok(program) = Kind::Gridhaul.program() {
        let made = fs::metadata(&program).and_then(|program| program.modified());
        (program, made.ok()).hash(&mut hasher);
    }
    format!("{:016x}-", hasher.finish())
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::thread;
    use std::time::SystemTime;

    use super::*;

    #[test]
    fn fresh_directories_are_used_and_expired_ones_removed() {
        let parent = tempfile::tempdir().unwrap();
        let made = AtomicUsize::new(0);
        let make = || {
            beneath(parent.path(), |_| {
                made.fetch_add(1, Ordering::Relaxed);
                Ok(())
            })
            .unwrap()
        };
        let first = make();
        thread::scope(|scope| {
            for maker in [scope.spawn(make), scope.spawn(make)] {
                assert_eq!(maker.join().unwrap(), first);
            }
        });
        assert_eq!(made.load(Ordering::Relaxed), 1);
        for (age, is_left) in [(FRESH, true), (EXPIRED, false)] {
            let past = SystemTime::now() - age - Duration::from_secs(60);
            File::open(&first).unwrap().set_modified(past).unwrap();
            let next = make();
            assert_ne!(next, first);
            fs::remove_dir(next).unwrap();
            assert_eq!(first.exists(), is_left);
        }
    }
}
