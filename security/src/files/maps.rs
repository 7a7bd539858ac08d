//! Maps: grid-mapfiles and vomsdirs.

use std::fs::{self, File};
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

use super::watched::{FileStamp, Watched};
use super::{FileError, OpenFiles, OwnRights};
use crate::gridmap::{Gridmap, GridmapProblem};
use crate::voms::VomsServers;

/// Some hundred thousand lines.
const MAX_GRIDMAP: u64 = 64 << 20;

const MAX_VOMS_FILE: u64 = 1 << 20;

/// Directories and files of a vomsdir; more are an error.
const MAX_VOMS_FILES: usize = 10_000;

/// A grid-mapfile that is read again when it changes.
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

    /// Reads a file that `opener` opens, now and when it changes.
    pub fn open_with(path: &Path, opener: Arc<dyn OpenFiles>) -> Result<Self, FileError> {
        let (stamp, content) = read_gridmap(path, &*opener).map_err(failed(path))?;
        Ok(Self {
            path: path.to_owned(),
            opener,
            content: Watched::new(stamp, content),
        })
    }

    /// What it holds now; as [`TrustDirectory::current`](super::TrustDirectory::current).
    pub fn current(&self) -> Arc<Gridmap> {
        Arc::clone(&self.look(Instant::now()).map)
    }

    /// The lines that could not be used.
    pub fn problems(&self) -> Vec<GridmapProblem> {
        self.look(Instant::now()).problems.clone()
    }

    /// Why the file could not be read again, if it could not; what it held before is used.
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

/// A vomsdir that is read again when it changes: `VO/HOST.lsc`, and certificates `VO/ANY.pem`.
#[derive(Debug)]
pub struct VomsDirectory {
    path: PathBuf,
    content: Watched<VomsContent, Vec<VomsFile>>,
}

#[derive(Debug)]
struct VomsContent {
    servers: Arc<VomsServers>,
    problems: Vec<VomsProblem>,
}

/// A file of a vomsdir that cannot be used; the others are.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{}: {reason}", path.display())]
pub struct VomsProblem {
    /// The file.
    pub path: PathBuf,
    /// What is wrong with it, and what to do.
    pub reason: String,
}

#[derive(Debug, PartialEq, Eq)]
struct VomsFile {
    vo: String,
    path: PathBuf,
    stamp: FileStamp,
}

impl VomsDirectory {
    /// Reads a directory.
    pub fn open(path: &Path) -> Result<Self, FileError> {
        let files = list_vomsdir(path).map_err(failed(path))?;
        let content = read_vomsdir(&files);
        Ok(Self {
            path: path.to_owned(),
            content: Watched::new(files, content),
        })
    }

    /// What it holds now; as [`TrustDirectory::current`](super::TrustDirectory::current).
    pub fn current(&self) -> Arc<VomsServers> {
        Arc::clone(&self.look(Instant::now()).servers)
    }

    /// The files that could not be used.
    pub fn problems(&self) -> Vec<VomsProblem> {
        self.look(Instant::now()).problems.clone()
    }

    /// Why the directory could not be read again, if it could not; what it held before is used.
    pub fn failure(&self) -> Option<Arc<FileError>> {
        self.content.failure()
    }

    fn look(&self, now: Instant) -> Arc<VomsContent> {
        self.content.current(now, |old| {
            let files = list_vomsdir(&self.path).map_err(failed(&self.path))?;
            Ok((files != *old).then(|| {
                let content = read_vomsdir(&files);
                (files, content)
            }))
        })
    }
}

/// The files in the directories of virtual organizations, in the order of their names. Those at the top
/// are left out: they would speak for every virtual organization.
fn list_vomsdir(path: &Path) -> io::Result<Vec<VomsFile>> {
    let mut files = Vec::new();
    for vo in fs::read_dir(path)? {
        let vo = vo?;
        let Ok(name) = vo.file_name().into_string() else {
            continue;
        };
        // Links are followed: sites share the directories of several vomsdirs so.
        if !fs::metadata(vo.path()).is_ok_and(|metadata| metadata.is_dir()) {
            continue;
        }
        for file in fs::read_dir(vo.path())? {
            let path = file?.path();
            // It was removed meanwhile, or is a link to nothing.
            let Ok(metadata) = fs::metadata(&path) else {
                continue;
            };
            if !metadata.is_file() {
                continue;
            }
            if files.len() == MAX_VOMS_FILES {
                return Err(io::Error::other(format!(
                    "there are more than {MAX_VOMS_FILES} files in it"
                )));
            }
            files.push(VomsFile {
                vo: name.clone(),
                path,
                stamp: FileStamp::from(&metadata),
            });
        }
    }
    files.sort_by(|a, b| a.path.cmp(&b.path));
    Ok(files)
}

fn read_vomsdir(files: &[VomsFile]) -> VomsContent {
    let mut servers = VomsServers::default();
    let mut problems = Vec::new();
    for VomsFile { vo, path, .. } in files {
        let Some(name) = path.file_name().and_then(|name| name.to_str()) else {
            continue;
        };
        let added = match (name.strip_suffix(".lsc"), name.strip_suffix(".pem")) {
            (Some(host), _) => read(path, MAX_VOMS_FILE)
                .map_err(|error| error.to_string())
                .and_then(|(_, content)| {
                    let added = servers.add_server(vo, host, &content);
                    added.map_err(|error| error.to_string())
                }),
            (_, Some(_)) => read(path, MAX_VOMS_FILE)
                .map_err(|error| error.to_string())
                .and_then(|(_, content)| {
                    let added = servers.add_certificates(vo, &content);
                    added.map_err(|error| error.to_string())
                }),
            _ => Ok(()),
        };
        if let Err(reason) = added {
            let path = path.clone();
            problems.push(VomsProblem { path, reason });
        }
    }
    VomsContent {
        servers: Arc::new(servers),
        problems,
    }
}

/// A whole file that is not larger than `limit`. The stamp is older than the content, so that no change is
/// missed.
pub(super) fn read(path: &Path, limit: u64) -> io::Result<(FileStamp, Vec<u8>)> {
    read_file(File::open(path)?, limit)
}

fn read_file(file: File, limit: u64) -> io::Result<(FileStamp, Vec<u8>)> {
    let stamp = FileStamp::from(&file.metadata()?);
    Ok((stamp, read_opened(file, limit)?))
}

/// The content of a file that is not larger than `limit`.
pub(super) fn read_opened(file: File, limit: u64) -> io::Result<Vec<u8>> {
    let mut content = Vec::new();
    file.take(limit + 1).read_to_end(&mut content)?;
    if content.len() as u64 > limit {
        return Err(io::Error::other(format!("it is larger than {limit} bytes")));
    }
    Ok(content)
}

pub(super) fn failed(path: &Path) -> impl FnOnce(io::Error) -> FileError + '_ {
    move |error| FileError::Io {
        path: path.to_owned(),
        error,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

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
    fn a_gridmap_that_vanished_stays_as_it_was() {
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
    fn what_is_missing_or_too_large_is_named() {
        let directory = tempfile::tempdir().expect("a directory");
        let missing = directory.path().join("none");
        let error = GridmapFile::open(&missing)
            .expect_err("missing")
            .to_string();
        assert!(error.contains("none: No such file"), "{error}");
        assert!(VomsDirectory::open(&missing).is_err());
        let large = directory.path().join("large");
        let file = File::create(&large).expect("made");
        file.set_len(MAX_GRIDMAP + 1).expect("sparse");
        let error = GridmapFile::open(&large)
            .expect_err("too large")
            .to_string();
        assert!(error.contains("larger than"), "{error}");
    }

    #[test]
    fn a_vomsdir_is_read_again_when_a_file_in_it_changes() {
        let directory = tempfile::tempdir().expect("a directory");
        let vo = directory.path().join("atlas");
        fs::create_dir(&vo).expect("made");
        fs::write(vo.join("README"), "not for us").expect("written");
        fs::write(directory.path().join("top.lsc"), "/CN=a\n/CN=b\n").expect("written");
        let file = VomsDirectory::open(directory.path()).expect("read");
        assert_eq!(*file.current(), VomsServers::default());
        assert_eq!(file.problems(), []);

        let mut now = Instant::now();
        fs::write(vo.join("voms.example.org.lsc"), "/CN=a\n/CN=ca\n").expect("written");
        let content = file.look(later(&mut now));
        let mut expected = VomsServers::default();
        expected
            .add_server("atlas", "voms.example.org", b"/CN=a\n/CN=ca\n")
            .expect("valid");
        assert_eq!(*content.servers, expected);
        assert!(
            Arc::ptr_eq(&content, &file.look(later(&mut now))),
            "read once"
        );

        fs::write(vo.join("broken.lsc"), "/CN=a\n").expect("written");
        let content = file.look(later(&mut now));
        assert_eq!(*content.servers, expected);
        assert_eq!(content.problems.len(), 1, "{:?}", content.problems);
        assert_eq!(content.problems[0].path, vo.join("broken.lsc"));
    }
}
