//! Ban lists that are reloaded when they change.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

use super::read::{failed, read_file};
use super::watched::{FileStamp, Watched};
use super::{FileError, OpenFiles};
use crate::bans::BanList;

/// The maximum size of a ban list.
const MAX_BYTES: u64 = 16 << 20;

/// A ban list that is reloaded when it changes.
#[derive(Debug)]
pub struct BanListFile {
    path: PathBuf,
    opener: Arc<dyn OpenFiles>,
    content: Watched<BanList, FileStamp>,
}

impl BanListFile {
    /// Reads a file with `opener`, now and when it changes.
    ///
    /// # Errors
    ///
    /// When it cannot be read, or a line is invalid.
    pub fn open_with(path: &Path, opener: Arc<dyn OpenFiles>) -> Result<Self, FileError> {
        let (stamp, list) = read(path, &*opener)?;
        Ok(Self {
            path: path.to_owned(),
            opener,
            content: Watched::new(stamp, list),
        })
    }

    /// The last list that could be read. See [`BanListFile::failure`].
    pub fn current(&self) -> Arc<BanList> {
        self.look(Instant::now())
    }

    /// Why the present file cannot be used, if it cannot: it is missing, unreadable or invalid.
    pub fn failure(&self) -> Option<Arc<FileError>> {
        self.content.failure()
    }

    fn look(&self, now: Instant) -> Arc<BanList> {
        self.content.current(now, |old| {
            let metadata = self.opener.metadata(&self.path);
            let metadata = metadata.map_err(failed(&self.path))?;
            if FileStamp::from(&metadata) == *old {
                return Ok(None);
            }
            read(&self.path, &*self.opener).map(Some)
        })
    }
}

fn read(path: &Path, opener: &dyn OpenFiles) -> Result<(FileStamp, BanList), FileError> {
    let opened = opener
        .open(path)
        .and_then(|file| read_file(file, MAX_BYTES));
    let (stamp, content) = opened.map_err(failed(path))?;
    let list = BanList::parse(&content).map_err(|error| FileError::BanList {
        path: path.to_owned(),
        error,
    })?;
    Ok((stamp, list))
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::time::Duration;

    use super::*;
    use crate::files::OwnRights;

    #[test]
    fn a_list_counts_when_it_changes_and_fails_while_it_cannot_be_used() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("bans");
        let mut now = Instant::now();
        let mut later = || {
            now += Duration::from_secs(2);
            now
        };
        BanListFile::open_with(&path, Arc::new(OwnRights)).expect_err("missing");
        fs::write(&path, "/CN=a\n").expect("written");
        let file = BanListFile::open_with(&path, Arc::new(OwnRights)).expect("read");
        let bans = |list: &BanList, subject: &str| list.line_about(&[subject], &[]).is_some();
        assert!(bans(&file.current(), "/CN=a"));
        fs::write(&path, "/CN=bb\n").expect("written");
        let list = file.look(later());
        assert!(bans(&list, "/CN=bb") && !bans(&list, "/CN=a"));
        assert!(file.failure().is_none());

        fs::write(&path, "CN=wrong\n").expect("written");
        file.look(later());
        let failure = file.failure().expect("an invalid line").to_string();
        assert!(failure.contains("line 1"), "{failure}");
        file.look(later());
        assert!(file.failure().is_some(), "it is still wrong");
        fs::remove_file(&path).expect("removed");
        file.look(later());
        assert!(file.failure().is_some());
        fs::write(&path, "/CN=cc\n").expect("written");
        assert!(bans(&file.look(later()), "/CN=cc"));
        assert!(file.failure().is_none());
    }
}
