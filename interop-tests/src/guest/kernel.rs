//! The guest's kernel. A script builds it, so that a make target can do that before any crate is compiled.

use std::path::PathBuf;
use std::process::{Command, Stdio};

use super::error::GuestError;

/// The directory of the script and of the other files of the guest.
pub(super) const DIRECTORY: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/guest");

/// The path of the kernel. If the cache does not have it, it is built first, which takes minutes.
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
