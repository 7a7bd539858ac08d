//! A temporary directory that is removed even when this process is killed.

use std::io;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

/// Reads until its standard input closes, then removes the directory named by its argument.
const GUARDIAN: &str = "read -r _; rm -rf -- \"$1\"";

/// A directory for large files. A *guardian* process removes it: it waits on a pipe whose other end only this process
/// holds, so that an interrupt or a kill does not leave gigabytes in `/dev/shm`.
#[derive(Debug)]
pub struct Scratch {
    path: PathBuf,
    guardian: Child,
}

impl Scratch {
    /// Makes a directory with mode 0755 beneath `parent`.
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
        // A process group of its own does not get the SIGINT of the terminal.
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

    /// Its path.
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
    fn the_directory_is_removed_with_its_content() {
        let scratch = Scratch::beneath(&std::env::temp_dir()).unwrap();
        let path = scratch.path().to_owned();
        std::fs::create_dir(path.join("inside")).unwrap();
        std::fs::write(path.join("inside/file"), "content").unwrap();
        drop(scratch);
        assert!(!path.exists());
    }
}
