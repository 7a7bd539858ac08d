//! Trust directories.

use std::collections::HashMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use super::FileError;
use super::read::{failed, read};
use super::watched::{FileStamp, Watched};
use crate::trust::{
    Built, FileDefect, LastGood, TrustBuilder, TrustExpiry, TrustFile, TrustFileKind, TrustProblem,
    TrustStore,
};

/// The maximum number of files. IGTF directories have some thousand.
const MAX_FILES: usize = 50_000;

/// The maximum size of a file. Some authorities have revoked a million certificates.
const MAX_FILE_BYTES: u64 = 128 << 20;

/// How long a revocation list stays in use after its file was removed: some programs remove a file before they write the new
/// one. After this time the removal is taken for intended.
const REMOVAL_DELAY: Duration = Duration::from_secs(60);

/// A trust directory that is reloaded when it changes, for example when a revocation list was updated. The previous content
/// of a file that becomes unusable stays in use.
#[derive(Debug)]
pub struct TrustDirectory {
    path: PathBuf,
    content: Watched<Content, Files>,
}

#[derive(Debug)]
struct Content {
    store: Arc<TrustStore>,
    problems: Vec<TrustProblem>,
    expiries: Arc<[TrustExpiry]>,
}

/// The files and their parsed content. An unchanged file is not parsed again, nor is a link to a parsed file.
#[derive(Debug, Default)]
struct Files {
    entries: Vec<Entry>,
    parsed: HashMap<Key, Result<TrustFile, FileDefect>>,
    last_good: LastGood,
    /// Removed files with revocation lists, and when the removal was detected.
    gone: HashMap<String, Instant>,
    /// A file could not be read because of an error that may be temporary.
    must_read_again: bool,
}

type Key = (TrustFileKind, FileStamp);

/// A relevant file of the directory.
#[derive(Debug, PartialEq, Eq)]
struct Entry {
    name: String,
    kind: TrustFileKind,
    /// The stamp when it was read, or why it cannot be read.
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

    /// The present content. Checks the directory for changes at most once a second. If it has become unreadable, the previous
    /// content stays in use. May block.
    pub fn current(&self) -> Arc<TrustStore> {
        Arc::clone(&self.look(Instant::now()).store)
    }

    /// Why the last reload failed, if it did. The previous content stays in use.
    pub fn failure(&self) -> Option<Arc<FileError>> {
        self.content.failure()
    }

    /// The unusable files, grave problems first.
    pub fn problems(&self) -> Vec<TrustProblem> {
        self.look(Instant::now()).problems.clone()
    }

    /// When the authorities and lists in use end. Checks for changes as [`TrustDirectory::current`].
    pub fn expiries(&self) -> Arc<[TrustExpiry]> {
        Arc::clone(&self.look(Instant::now()).expiries)
    }

    /// The directory.
    pub fn path(&self) -> &Path {
        &self.path
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

/// Whether the content of a file that was removed at this time is no longer used.
fn is_over(gone_since: Instant, now: Instant) -> bool {
    now.saturating_duration_since(gone_since) >= REMOVAL_DELAY
}

/// The relevant files, sorted by name. Symbolic links are followed, because hashed names are links to plain ones.
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
                        must_read_again |= may_be_temporary(&error);
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
                "the file is gone, and its content stays in use for {} s",
                REMOVAL_DELAY.as_secs()
            );
            builder.add_parsed(name, TrustFileKind::RevocationLists, Err(reason.into()));
            gone.insert(name.to_owned(), since);
        }
    }
    let Built {
        store,
        problems,
        expiries,
        last_good,
    } = builder.build_at(SystemTime::now());
    let content = Content {
        store: Arc::new(store),
        problems,
        expiries,
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

/// Parses a file. The outer error is that of a system call.
fn parse(path: &Path, kind: TrustFileKind) -> io::Result<Result<TrustFile, FileDefect>> {
    let (_, content) = read(path, MAX_FILE_BYTES)?;
    Ok(TrustFile::parse(kind, &content))
}

fn unreadable(error: &io::Error) -> String {
    format!("it cannot be read: {error}: let the account that the server runs as read it")
}

/// Whether an error may be temporary, so that reading may succeed later although the file is unchanged: too many open files,
/// or an I/O error.
fn may_be_temporary(error: &io::Error) -> bool {
    error.raw_os_error().is_some() && error.kind() != io::ErrorKind::PermissionDenied
}

#[cfg(test)]
mod tests;
