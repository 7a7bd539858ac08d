//! Where the files are, so that all test programs of a run use the same ones, which one of them makes.
//!
//! To make them takes seconds, and there are a dozen such programs. What one has made is a directory beneath the
//! temporary one, named after what made it and when. The next program takes it while it is fresh; a lock has programs
//! that begin together wait for one of them. An existing directory is never changed, because other programs use it.

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

/// Names such a directory of the host to programs in a guest, which are slow to make another.
const HOSTS: &str = "GRIDHAUL_CERTIFICATES";

/// For how long programs begin to use a directory. What is in it is good for twelve hours, which is the life of a proxy.
const FRESH: Duration = Duration::from_secs(3600);

/// When no program uses it any more.
const USELESS: Duration = Duration::from_secs(12 * 3600);

/// How the name of a directory begins while it is made.
const UNFINISHED: &str = "unfinished-";

/// All that makes the files, besides the programs that are installed.
const SOURCES: [&str; 7] = [
    include_str!("authority.rs"),
    include_str!("bad.rs"),
    include_str!("certificates.rs"),
    include_str!("command.rs"),
    include_str!("files.rs"),
    include_str!("names.rs"),
    include_str!("users.rs"),
];

/// The directory with the files, which `make` puts into an empty one if there are none.
pub(super) fn directory(
    make: impl FnOnce(&Path) -> Result<(), PkiError>,
) -> Result<PathBuf, PkiError> {
    if let Some(hosts) = std::env::var_os(HOSTS) {
        return copy(hosts);
    }
    beneath(&shelf()?, make)
}

fn beneath(
    shelf: &Path,
    make: impl FnOnce(&Path) -> Result<(), PkiError>,
) -> Result<PathBuf, PkiError> {
    // Until the end of this function.
    let lock = File::create(shelf.join("lock"))?;
    lock.lock()?;
    let maker = maker();
    for entry in fs::read_dir(shelf)? {
        let entry = entry?;
        let metadata = entry.metadata()?;
        // One from the future is as good as none.
        let Ok(age) = metadata.modified()?.elapsed() else {
            continue;
        };
        let is_ours = entry.file_name().to_string_lossy().starts_with(&maker);
        if is_ours && age < FRESH {
            return Ok(entry.path());
        }
        if metadata.is_dir() && age > USELESS {
            fs::remove_dir_all(entry.path())?;
        }
    }
    let unfinished = tempfile::Builder::new()
        .prefix(UNFINISHED)
        .permissions(Permissions::from_mode(0o755))
        .tempdir_in(shelf)?;
    make(unfinished.path())?;
    let name = unfinished.path().file_name().unwrap_or_default();
    let name = name.to_string_lossy().replace(UNFINISHED, &maker);
    let finished = shelf.join(name);
    fs::rename(unfinished.keep(), &finished)?;
    Ok(finished)
}

/// What tells a program in a guest where the host's directory is, as a variable of its environment.
pub(super) fn variable(directory: &Path) -> OsString {
    let mut variable = OsString::from(HOSTS);
    variable.push("=");
    variable.push(directory);
    variable
}

/// Copies the host's directory, which may belong to an account that the guest does not know.
fn copy(hosts: OsString) -> Result<PathBuf, PkiError> {
    let own = std::env::temp_dir().join("gridhaul-certificates");
    let copy = Client::new("cp").arg("-R").arg(hosts).arg(&own);
    run(&std::env::temp_dir(), copy)?;
    Ok(own)
}

/// The directory of all of them, one for each account that runs tests.
fn shelf() -> io::Result<PathBuf> {
    let account = rustix::process::geteuid();
    let shelf = std::env::temp_dir().join(format!("gridhaul-certificates-{}", account.as_raw()));
    match fs::DirBuilder::new().mode(0o755).create(&shelf) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
        _ => {}
    }
    // Any user may make a directory of this name.
    let found = fs::symlink_metadata(&shelf)?;
    if !found.is_dir() || found.uid() != account.as_raw() {
        let reason = format!("{} belongs to somebody else: remove it", shelf.display());
        return Err(io::Error::other(reason));
    }
    Ok(shelf)
}

/// How names of directories begin, for what would be made at present.
fn maker() -> String {
    let mut hasher = DefaultHasher::new();
    SOURCES.hash(&mut hasher);
    // It makes the password file.
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
    fn what_is_fresh_is_used_and_what_is_useless_removed() {
        let shelf = tempfile::tempdir().unwrap();
        let made = AtomicUsize::new(0);
        let make = || {
            beneath(shelf.path(), |_| {
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
        for (age, is_left) in [(FRESH, true), (USELESS, false)] {
            let past = SystemTime::now() - age - Duration::from_secs(60);
            File::open(&first).unwrap().set_modified(past).unwrap();
            let next = make();
            assert_ne!(next, first);
            fs::remove_dir(next).unwrap();
            assert_eq!(first.exists(), is_left);
        }
    }
}
