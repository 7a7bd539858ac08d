//! A directory that is gone when we are, however we end.

use std::io;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

/// Reads until its standard input closes, then removes the directory named by its argument.
const GUARDIAN: &str = "read -r _; rm -rf -- \"$1\"";

/// A directory for large files. A *guardian* removes it: it waits on a pipe that only we hold open, so
/// that an interrupt or a kill does not leave gigabytes in memory.
#[derive(Debug)]
pub struct Scratch {
    path: PathBuf,
    guardian: Child,
}

impl Scratch {
    /// Makes a directory beneath `parent`, which every user may enter.
    ///
    /// # Errors
    ///
    /// When it cannot be made.
    pub fn beneath(parent: &Path) -> io::Result<Self> {
        use std::os::unix::fs::PermissionsExt;
        use std::os::unix::process::CommandExt;
        let directory = tempfile::Builder::new()
            .prefix("gridhaul-")
            .permissions(PermissionsExt::from_mode(0o755))
            .tempdir_in(parent)?;
        // In a group of its own, where an interrupt from the terminal does not reach it.
        let guardian = Command::new("/bin/sh")
            .args(["-c", GUARDIAN, "guardian"])
            .arg(directory.path())
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .process_group(0)
            .spawn()?;
        Ok(Self {
            path: directory.keep(),
            guardian,
        })
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        drop(self.guardian.stdin.take());
        let _ = self.guardian.wait();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_directory_goes_with_all_that_is_in_it() {
        let scratch = Scratch::beneath(&std::env::temp_dir()).unwrap();
        let path = scratch.path().to_owned();
        std::fs::create_dir(path.join("inside")).unwrap();
        std::fs::write(path.join("inside/file"), "content").unwrap();
        drop(scratch);
        assert!(!path.exists());
    }
}
