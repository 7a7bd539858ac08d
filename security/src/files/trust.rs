//! Trust directories.

use std::collections::HashMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use super::FileError;
use super::maps::{failed, read};
use super::watched::{FileStamp, Watched};
use crate::trust::{
    Built, FileDefect, LastGood, TrustBuilder, TrustFile, TrustFileKind, TrustProblem, TrustStore,
};

/// More files are an error. The directories of the field have some thousand.
const MAX_FILES: usize = 50_000;

/// Larger files are left out. Some authorities have revoked a million certificates.
const MAX_FILE_BYTES: u64 = 128 << 20;

/// How long a revocation list counts after its file is gone: programs that remove a file before they
/// write the new one leave a gap. After this time an administrator must have meant it.
const GONE_COUNTS: Duration = Duration::from_secs(60);

/// A trust directory that is read again when it changes, so that it also notices when an expired
/// revocation list was fetched anew. A file that becomes unusable leaves what was in it before.
#[derive(Debug)]
pub struct TrustDirectory {
    path: PathBuf,
    content: Watched<Content, Files>,
}

#[derive(Debug)]
struct Content {
    store: Arc<TrustStore>,
    problems: Vec<TrustProblem>,
}

/// The files, and what was read from them: one that has not changed need not be parsed again, and a link
/// to one not at all.
#[derive(Debug, Default)]
struct Files {
    entries: Vec<Entry>,
    parsed: HashMap<Key, Result<TrustFile, FileDefect>>,
    last_good: LastGood,
    /// Files with revocation lists that are gone, and since when.
    gone: HashMap<String, Instant>,
    /// A file could not be read for a reason that may pass without a change of the file.
    must_read_again: bool,
}

type Key = (TrustFileKind, FileStamp);

/// A file that means something.
#[derive(Debug, PartialEq, Eq)]
struct Entry {
    name: String,
    kind: TrustFileKind,
    /// What it was when it was read, or why it cannot be read.
    stamp: Result<FileStamp, String>,
}

impl TrustDirectory {
    /// Reads a directory.
    pub fn open(path: &Path) -> Result<Self, FileError> {
        let entries = list(path).map_err(failed(path))?;
        let (files, content) = read_all(path, entries, &Files::default(), Instant::now());
        Ok(Self {
            path: path.to_owned(),
            content: Watched::new(files, content),
        })
    }

    /// What it holds now. Looks at the directory at most once a second; a directory that has become
    /// unreadable leaves what was there. May block.
    pub fn current(&self) -> Arc<TrustStore> {
        Arc::clone(&self.look(Instant::now()).store)
    }

    /// Why the directory could not be read again, if it could not; what it held before is used.
    pub fn failure(&self) -> Option<Arc<FileError>> {
        self.content.failure()
    }

    /// The files that could not be used, the gravest first.
    pub fn problems(&self) -> Vec<TrustProblem> {
        self.look(Instant::now()).problems.clone()
    }

    fn look(&self, now: Instant) -> Arc<Content> {
        self.content.current(now, |old| {
            let entries = list(&self.path).map_err(failed(&self.path))?;
            let is_due = old.must_read_again || old.gone.values().any(|since| is_over(*since, now));
            let must_read = is_due || entries != old.entries;
            Ok(must_read.then(|| read_all(&self.path, entries, old, now)))
        })
    }
}

/// Whether a file that is gone since then does not count any more.
fn is_over(gone_since: Instant, now: Instant) -> bool {
    now.saturating_duration_since(gone_since) >= GONE_COUNTS
}

/// The files that mean something, in the order of their names. Links are followed: hashed names are
/// links to plain ones.
fn list(path: &Path) -> io::Result<Vec<Entry>> {
    let mut entries = Vec::new();
    for entry in fs::read_dir(path)? {
        let entry = entry?;
        let Ok(name) = entry.file_name().into_string() else {
            continue;
        };
        let Some(kind) = TrustFileKind::of(&name) else {
            continue;
        };
        if entries.len() == MAX_FILES {
            let words = format!("there are more than {MAX_FILES} files in it");
            return Err(io::Error::other(words));
        }
        let stamp = match fs::metadata(entry.path()) {
            // Opening a pipe would block.
            Ok(metadata) if !metadata.is_file() => {
                Err("it is no regular file: remove it".to_owned())
            }
            Ok(metadata) => Ok(FileStamp::from(&metadata)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                Err("it is a link to a file that is not there: remove it".to_owned())
            }
            Err(error) => Err(unreadable(&error)),
        };
        entries.push(Entry { name, kind, stamp });
    }
    entries.sort_unstable_by(|one, other| one.name.cmp(&other.name));
    Ok(entries)
}

fn read_all(path: &Path, entries: Vec<Entry>, old: &Files, now: Instant) -> (Files, Content) {
    let mut builder = TrustBuilder::after(old.last_good.clone());
    let mut parsed = HashMap::new();
    let mut must_read_again = false;
    for Entry { name, kind, stamp } in &entries {
        let content = match stamp {
            Err(reason) => Err(reason.clone().into()),
            Ok(stamp) => {
                let key = (*kind, *stamp);
                let known = parsed.get(&key).or_else(|| old.parsed.get(&key)).cloned();
                match known.map_or_else(|| parse(&path.join(name), *kind), Ok) {
                    Ok(content) => {
                        parsed.insert(key, content.clone());
                        content
                    }
                    Err(error) => {
                        must_read_again |= may_pass(&error);
                        Err(unreadable(&error).into())
                    }
                }
            }
        };
        builder.add_parsed(name, *kind, content);
    }
    let mut gone = HashMap::new();
    for name in old.last_good.revocation_lists() {
        let since = *old.gone.get(name).unwrap_or(&now);
        let is_there = entries.iter().any(|entry| entry.name == name);
        if !is_there && !is_over(since, now) {
            let reason = format!(
                "the file is gone, and counts for {} s more",
                GONE_COUNTS.as_secs()
            );
            builder.add_parsed(name, TrustFileKind::RevocationLists, Err(reason.into()));
            gone.insert(name.to_owned(), since);
        }
    }
    let Built {
        store,
        problems,
        last_good,
    } = builder.build_at(SystemTime::now());
    let content = Content {
        store: Arc::new(store),
        problems,
    };
    let files = Files {
        entries,
        parsed,
        last_good,
        gone,
        must_read_again,
    };
    (files, content)
}

/// What is in a file. The outer error is the kernel's.
fn parse(path: &Path, kind: TrustFileKind) -> io::Result<Result<TrustFile, FileDefect>> {
    let (_, content) = read(path, MAX_FILE_BYTES)?;
    Ok(TrustFile::parse(kind, &content))
}

fn unreadable(error: &io::Error) -> String {
    format!("it cannot be read: {error}: let the account that the server runs as read it")
}

/// Whether reading may succeed later though the file has not changed: there were too many open files, or
/// a disk did not answer.
fn may_pass(error: &io::Error) -> bool {
    error.raw_os_error().is_some() && error.kind() != io::ErrorKind::PermissionDenied
}

#[cfg(test)]
mod tests;
