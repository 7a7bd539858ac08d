//! Grid-mapfiles that are reloaded when they change.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

use super::read::{failed, read_file};
use super::watched::{FileStamp, Watched};
use super::{FileError, OpenFiles, OwnRights};
use crate::gridmap::{Gridmap, GridmapProblem};

/// The maximum size of a grid-mapfile, for some hundred thousand lines.
const MAX_GRIDMAP: u64 = 64 << 20;

/// A grid-mapfile that is reloaded when it changes.
#[derive(Debug)]
pub struct GridmapFile {
    path: PathBuf,
    opener: Arc<dyn OpenFiles>,
    content: Watched<GridmapContent, FileStamp>,
}

#[derive(Debug)]
struct GridmapContent {
    map: Arc<Gridmap>,
    problems: Vec<GridmapProblem>,
}

impl GridmapFile {
    /// Reads a file.
    pub fn open(path: &Path) -> Result<Self, FileError> {
        Self::open_with(path, Arc::new(OwnRights))
    }

    /// Reads a file with `opener`, now and when it changes.
    pub fn open_with(path: &Path, opener: Arc<dyn OpenFiles>) -> Result<Self, FileError> {
        let (stamp, content) = read_gridmap(path, &*opener).map_err(failed(path))?;
        Ok(Self {
            path: path.to_owned(),
            opener,
            content: Watched::new(stamp, content),
        })
    }

    /// The present content; see [`TrustDirectory::current`](super::TrustDirectory::current).
    pub fn current(&self) -> Arc<Gridmap> {
        Arc::clone(&self.look(Instant::now()).map)
    }

    /// The invalid lines.
    pub fn problems(&self) -> Vec<GridmapProblem> {
        self.look(Instant::now()).problems.clone()
    }

    /// Why the present file cannot be used, if it cannot. [`GridmapFile::current`] is its last content then, and must not admit
    /// users: a file that was removed may have been meant to.
    pub fn failure(&self) -> Option<Arc<FileError>> {
        self.content.failure()
    }

    fn look(&self, now: Instant) -> Arc<GridmapContent> {
        self.content.current(now, |old| {
            let metadata = self.opener.metadata(&self.path);
            let metadata = metadata.map_err(failed(&self.path))?;
            if FileStamp::from(&metadata) == *old {
                return Ok(None);
            }
            read_gridmap(&self.path, &*self.opener)
                .map(Some)
                .map_err(failed(&self.path))
        })
    }
}

fn read_gridmap(path: &Path, opener: &dyn OpenFiles) -> io::Result<(FileStamp, GridmapContent)> {
    let (stamp, content) = read_file(opener.open(path)?, MAX_GRIDMAP)?;
    let (map, problems) = Gridmap::parse(&content);
    let map = Arc::new(map);
    Ok((stamp, GridmapContent { map, problems }))
}

#[cfg(test)]
mod tests {
    use std::fs::{self, File};
    use std::time::Duration;

    use super::*;

    fn later(step: &mut Instant) -> Instant {
        *step += Duration::from_secs(2);
        *step
    }

    #[test]
    fn a_gridmap_is_read_again_when_it_changes() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("grid-mapfile");
        fs::write(&path, "/CN=a one\nwrong\n").expect("written");
        let file = GridmapFile::open(&path).expect("read");
        assert_eq!(file.current().accounts("/CN=a"), ["one"]);
        assert_eq!(file.problems().len(), 1);

        let mut now = Instant::now();
        fs::write(&path, "/CN=a other\n").expect("written");
        let content = file.look(later(&mut now));
        assert_eq!(content.map.accounts("/CN=a"), ["other"]);
        assert_eq!(content.problems, []);
        assert!(
            Arc::ptr_eq(&content, &file.look(later(&mut now))),
            "read once"
        );
    }

    #[test]
    fn a_removed_gridmap_stays_in_use() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("grid-mapfile");
        fs::write(&path, "/CN=a one\n").expect("written");
        let file = GridmapFile::open(&path).expect("read");
        fs::remove_file(&path).expect("removed");
        let mut now = Instant::now();
        assert_eq!(file.look(later(&mut now)).map.accounts("/CN=a"), ["one"]);
        let failure = file.failure().expect("the last look failed").to_string();
        assert!(failure.contains("No such file"), "{failure}");

        fs::write(&path, "/CN=b two\n").expect("written");
        let content = file.look(later(&mut now));
        assert_eq!(content.map.accounts("/CN=a"), [""; 0]);
        assert_eq!(content.map.accounts("/CN=b"), ["two"]);
        assert!(file.failure().is_none());
    }

    #[test]
    fn errors_name_missing_and_too_large_files() {
        let directory = tempfile::tempdir().expect("a directory");
        let missing = directory.path().join("none");
        let error = GridmapFile::open(&missing)
            .expect_err("missing")
            .to_string();
        assert!(error.contains("none: No such file"), "{error}");
        let large = directory.path().join("large");
        let file = File::create(&large).expect("made");
        file.set_len(MAX_GRIDMAP + 1).expect("sparse");
        let error = GridmapFile::open(&large)
            .expect_err("too large")
            .to_string();
        assert!(error.contains("larger than"), "{error}");
    }
}
