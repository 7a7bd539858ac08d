//! The files that are copied. Each kind is made at its first use.

use std::fs::{self, File, Permissions};
use std::io::{self, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::time::Duration;

use crate::support::content::sample;

/// The sizes of files and crowds.
#[derive(Debug, Clone, Copy)]
pub struct Sizes {
    /// Bytes of the large file.
    pub large: u64,
    /// Files of 4 KiB that are copied together.
    pub small: usize,
    /// Files of 4 KiB that are copied one after the other.
    pub few: usize,
    /// Files of 1 MiB.
    pub medium: usize,
    /// Names in the directory that is listed.
    pub names: usize,
    /// Idle sessions.
    pub sessions: usize,
    /// The number of logins.
    pub logins: usize,
    /// The number of concurrent clients: few, some, and many.
    pub crowds: [usize; 3],
    /// Bytes of the files that crowds transfer.
    pub crowd_bytes: usize,
    /// The duration of each crowd.
    pub crowd_times: [Duration; 3],
    /// Bytes over the emulated network.
    pub distant: u64,
}

impl Sizes {
    /// The sizes that the project's targets refer to.
    pub const FULL: Self = Self {
        large: 2_000_000_000,
        small: 20_000,
        few: 2000,
        medium: 2000,
        names: 1_000_000,
        sessions: 500,
        logins: 40,
        crowds: [1, 100, 1000],
        crowd_bytes: 2 << 20,
        // Long enough for each of a thousand clients to transfer about ten files: with fewer, an unfinished file would
        // dominate the difference between clients.
        crowd_times: [
            Duration::from_secs(4),
            Duration::from_secs(4),
            Duration::from_secs(15),
        ],
        distant: 300_000_000,
    };

    /// Small sizes, for a functional test.
    pub const QUICK: Self = Self {
        large: 32_000_000,
        small: 100,
        few: 20,
        medium: 10,
        names: 2000,
        sessions: 20,
        logins: 4,
        crowds: [1, 4, 20],
        crowd_bytes: 1 << 20,
        crowd_times: [Duration::from_millis(500); 3],
        distant: 1_000_000,
    };
}

impl Sizes {
    /// A description of the sizes.
    pub fn label(self) -> String {
        format!(
            "one of {} bytes; {} and {} of 4 KiB; {} of 1 MiB; {} names; {} bytes over the emulated path; \
             crowds of {:?}",
            self.large, self.small, self.few, self.medium, self.names, self.distant, self.crowds
        )
    }
}

/// A set of files beneath the served directory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Files {
    /// One large file.
    Large,
    /// Many of 4 KiB.
    Small,
    /// Fewer of 4 KiB.
    Few,
    /// Of 1 MiB.
    Medium,
    /// One for the emulated network.
    Distant,
}

impl Files {
    /// The name of the file, or of the directory with a slash at its end.
    pub fn name(self) -> &'static str {
        match self {
            Self::Large => "large",
            Self::Small => "small/",
            Self::Few => "few/",
            Self::Medium => "medium/",
            Self::Distant => "distant",
        }
    }

    /// The number of files, and the length of each in bytes.
    pub fn count_and_bytes(self, sizes: Sizes) -> (usize, u64) {
        match self {
            Self::Large => (1, sizes.large),
            Self::Small => (sizes.small, 4096),
            Self::Few => (sizes.few, 4096),
            Self::Medium => (sizes.medium, 1 << 20),
            Self::Distant => (1, sizes.distant),
        }
    }

    /// The sum of their bytes.
    pub fn total(self, sizes: Sizes) -> u64 {
        let (count, bytes) = self.count_and_bytes(sizes);
        count as u64 * bytes
    }
}

/// A directory with files, and with a directory `up` that every user may write to.
#[derive(Debug)]
pub struct Tree {
    root: PathBuf,
    sizes: Sizes,
    made: Mutex<Vec<Files>>,
}

impl Tree {
    /// Makes the directory.
    ///
    /// # Errors
    ///
    /// When it cannot be made.
    pub fn new(root: PathBuf, sizes: Sizes) -> io::Result<Self> {
        let up = root.join("up");
        fs::create_dir_all(&up)?;
        // For the accounts of all users of the servers.
        fs::set_permissions(&up, Permissions::from_mode(0o777))?;
        Ok(Self {
            root,
            sizes,
            made: Mutex::default(),
        })
    }

    /// The directory.
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// The path of files, which are made at the first call.
    ///
    /// # Errors
    ///
    /// When there is not enough space.
    pub fn path(&self, files: Files) -> io::Result<PathBuf> {
        let path = self.root.join(files.name());
        let mut made = self.made.lock().map_err(|_| {
            io::Error::other("an earlier attempt to make files failed in the middle")
        })?;
        if made.contains(&files) {
            return Ok(path);
        }
        let (count, bytes) = files.count_and_bytes(self.sizes);
        if files.name().ends_with('/') {
            fs::create_dir(&path)?;
            for index in 0..count {
                content(&path.join(format!("f{index:05}")), bytes)?;
            }
        } else {
            content(&path, bytes)?;
        }
        made.push(files);
        Ok(path)
    }

    /// Removes the copies in `up`, and returns their number and bytes.
    ///
    /// # Errors
    ///
    /// When a file cannot be removed.
    pub fn clear(&self) -> io::Result<(usize, u64)> {
        empty(&self.root.join("up"))
    }
}

/// Removes every file of a directory, and returns their number and bytes.
///
/// # Errors
///
/// When a file cannot be removed.
pub fn empty(directory: &Path) -> io::Result<(usize, u64)> {
    let (mut count, mut bytes) = (0, 0);
    for entry in fs::read_dir(directory)? {
        let entry = entry?;
        count += 1;
        bytes += entry.metadata()?.len();
        fs::remove_file(entry.path())?;
    }
    Ok((count, bytes))
}

/// Files repeat their content after this number of bytes.
const PIECE: u64 = 1 << 20;

/// Makes a file with incompressible content and without holes.
fn content(path: &Path, bytes: u64) -> io::Result<()> {
    let piece = sample(usize::try_from(bytes.min(PIECE)).unwrap_or_default());
    let mut file = File::create(path)?;
    let mut left = bytes;
    while left > 0 {
        let count = piece.len().min(usize::try_from(left).unwrap_or(usize::MAX));
        file.write_all(&piece[..count])?;
        left -= count as u64;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_are_made_once_and_copies_are_counted() {
        let scratch = tempfile::tempdir().unwrap();
        let tree = Tree::new(scratch.path().join("served"), Sizes::QUICK).unwrap();
        let few = tree.path(Files::Few).unwrap();
        assert_eq!(fs::read_dir(&few).unwrap().count(), Sizes::QUICK.few);
        fs::remove_file(few.join("f00000")).unwrap();
        tree.path(Files::Few).unwrap();
        assert!(!few.join("f00000").exists());
        fs::write(tree.root().join("up/one"), "abc").unwrap();
        assert_eq!(tree.clear().unwrap(), (1, 3));
        assert_eq!(tree.clear().unwrap(), (0, 0));
    }
}
