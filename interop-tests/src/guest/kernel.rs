//! Where the guest's kernel is. A script builds it, so that it can be had before anything is compiled.

use std::path::PathBuf;
use std::process::{Command, Stdio};

use super::error::GuestError;

/// The script, and where the other files of the guest are.
pub(super) const DIRECTORY: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/guest");

/// The kernel; it is built first if the cache does not have it, which takes minutes.
pub(super) fn path() -> Result<PathBuf, GuestError> {
    let script = Command::new(format!("{DIRECTORY}/build-kernel"))
        .stdin(Stdio::null())
        .output()?;
    if !script.status.success() {
        let reason = String::from_utf8_lossy(&script.stderr).into_owned();
        return Err(GuestError::Kernel(reason));
    }
    let path = String::from_utf8_lossy(&script.stdout);
    Ok(path.trim_end().into())
}
