//! Replacing a file in one step: a reader sees the old file or the new one, and other changes wait.

use std::fs::{self, File, OpenOptions, Permissions};
use std::io::{self, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt, fchown};
use std::path::{Path, PathBuf};

use gridhaul_accounts::lock_directory;

/// A change of a file that has begun.
#[derive(Debug)]
pub(super) struct Replacement {
    path: PathBuf,
    /// Locked until this is dropped. The file itself cannot be locked: it is replaced.
    directory: File,
}

impl Replacement {
    /// Waits some seconds for other changes in the directory.
    pub(super) fn begin(path: &Path) -> io::Result<Self> {
        // A link stays, and the file that it leads to is replaced.
        let path = match path.canonicalize() {
            Ok(path) => path,
            Err(error) if error.kind() == io::ErrorKind::NotFound => path.to_owned(),
            Err(error) => return Err(error),
        };
        let directory = match path.parent() {
            Some(parent) if !parent.as_os_str().is_empty() => parent,
            _ => Path::new("."),
        };
        let directory = File::open(directory)?;
        lock_directory(&directory)?;
        Ok(Self { path, directory })
    }

    /// The file to read.
    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Replaces the file. It keeps its owner and mode; a new one is readable for its owner only.
    pub(super) fn finish(self, content: &[u8]) -> io::Result<()> {
        let name = self.path.file_name();
        let mut name = name.ok_or(io::ErrorKind::InvalidInput)?.to_owned();
        name.push(format!(".new{}", std::process::id()));
        let new = self.path.with_file_name(name);
        let file = OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(&new)?;
        let written = self.write(file, content);
        let written = written.and_then(|()| fs::rename(&new, &self.path));
        if written.is_err() {
            // Cleans up as far as possible: the first error is the one to report.
            let _ = fs::remove_file(&new);
        }
        written?;
        // Not all file systems can write a directory to disk.
        let _ = self.directory.sync_all();
        Ok(())
    }

    fn write(&self, mut file: File, content: &[u8]) -> io::Result<()> {
        match fs::metadata(&self.path) {
            Ok(old) => {
                let (owner, group) = (old.uid(), old.gid());
                fchown(&file, Some(owner), Some(group)).map_err(|error| {
                    let text = format!(
                        "it belongs to UID {owner} and GID {group}, and a new file cannot: {error}"
                    );
                    io::Error::new(error.kind(), text)
                })?;
                file.set_permissions(Permissions::from_mode(old.mode() & 0o777))?;
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(error),
        }
        file.write_all(content)?;
        file.sync_all()
    }
}
