//! Vomsdirs that are reloaded when they change.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

use super::FileError;
use super::read::{failed, read};
use super::watched::{FileStamp, Watched};
use crate::voms::VomsServers;

const MAX_VOMS_FILE: u64 = 1 << 20;

/// The maximum number of files of a vomsdir. A larger vomsdir is an error.
const MAX_VOMS_FILES: usize = 10_000;

/// A vomsdir that is reloaded when it changes: files `VO/HOST.lsc`, and certificates `VO/*.pem`.
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

/// An unusable file of a vomsdir. The others are used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{}: {reason}", path.display())]
pub struct VomsProblem {
    /// The file.
    pub path: PathBuf,
    /// The cause and the remedy.
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

    /// The present content; see [`TrustDirectory::current`](super::TrustDirectory::current).
    pub fn current(&self) -> Arc<VomsServers> {
        Arc::clone(&self.look(Instant::now()).servers)
    }

    /// The unusable files.
    pub fn problems(&self) -> Vec<VomsProblem> {
        self.look(Instant::now()).problems.clone()
    }

    /// Why the last reload failed, if it did. The previous content stays in use.
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

/// The files in the directories of virtual organizations, sorted by path. Files at the top level are ignored: they would be
/// valid for every virtual organization.
fn list_vomsdir(path: &Path) -> io::Result<Vec<VomsFile>> {
    let mut files = Vec::new();
    for vo in fs::read_dir(path)? {
        let vo = vo?;
        let Ok(name) = vo.file_name().into_string() else {
            continue;
        };
        // Symbolic links are followed, because sites share directories between several vomsdirs.
        if !fs::metadata(vo.path()).is_ok_and(|metadata| metadata.is_dir()) {
            continue;
        }
        for file in fs::read_dir(vo.path())? {
            let path = file?.path();
            // The file was removed meanwhile, or is a dangling link.
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

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn later(step: &mut Instant) -> Instant {
        *step += Duration::from_secs(2);
        *step
    }

    #[test]
    fn a_vomsdir_is_read_again_when_a_file_in_it_changes() {
        let directory = tempfile::tempdir().expect("a directory");
        assert!(VomsDirectory::open(&directory.path().join("none")).is_err());
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
