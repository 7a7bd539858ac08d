//! The account that both servers act as when root starts them.

use std::io;
use std::os::unix::fs::chown;
use std::path::Path;

/// The account `nobody` of Debian.
const NOBODY: u32 = 65534;

/// Changes the owner of `path` to the account that the servers act as. Without root they act as the account that runs
/// the tests, which owns the file already, and this does nothing.
///
/// # Errors
///
/// When the owner cannot be changed.
pub fn chown_to_nobody(path: &Path) -> io::Result<()> {
    if rustix::process::geteuid().is_root() {
        chown(path, Some(NOBODY), Some(NOBODY))?;
    }
    Ok(())
}
