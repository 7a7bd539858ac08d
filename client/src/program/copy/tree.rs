//! What directory trees have, and the trees of this machine.

use std::ffi::OsString;
use std::fs::{self, DirEntry, ReadDir};
use std::io;
use std::path::{Path, PathBuf};

use gridhaul_storage::is_unfinished_upload;
use tokio::sync::mpsc;

use super::error::CopyError;
use super::preview::{Preview, Previewer};
use super::version::{Version, permissions_of};

/// Directories beneath each other. Each has an open listing.
pub(super) const DEPTH: usize = 256;

/// Entries that are sent together: to wake the other end for each one takes longer than to read it.
const RUN: usize = 64;

/// Runs that are read ahead: more than most directories have, so that the next one is read while a server lists the last one.
const AHEAD: usize = 32;

/// What a tree has.
#[derive(Debug)]
pub(super) enum Found {
    /// A directory; all that it has comes later.
    Directory,
    /// A file.
    File(Version),
    /// Something that is not copied, and why.
    Skipped(&'static str),
}

pub(super) const LINK: &str = "a link to a directory is not followed";
pub(super) const DANGLING: &str = "a link to nothing";
pub(super) const SPECIAL: &str = "neither a file nor a directory";
pub(super) const UNFINISHED: &str = "an unfinished copy, which gridhaul has left";

/// Entries of one directory of this machine, in the order of the file system.
pub(super) struct Run {
    /// The directory, beneath the root of the tree.
    pub(super) directory: PathBuf,
    pub(super) entries: Vec<Entry>,
}

/// An entry of a directory.
#[derive(Debug)]
pub(super) struct Entry {
    /// `None` for the directory itself, which cannot be read further.
    pub(super) name: Option<OsString>,
    pub(super) found: Result<Found, CopyError>,
    /// What the directory of the copy has, if it is looked at.
    pub(super) preview: Option<Preview>,
}

/// Reads a tree on a thread of its own. Each directory comes before its content, and ends a run; the previewer gets to know it at once.
/// The thread ends when the receiver is dropped.
pub(super) fn read_tree(
    root: &Path,
    previewer: Option<Previewer>,
) -> (mpsc::Receiver<Run>, tokio::task::JoinHandle<()>) {
    let (sender, runs) = mpsc::channel(AHEAD);
    let root = root.to_owned();
    let reading = tokio::task::spawn_blocking(move || {
        // `None`: the receiver is dropped.
        let _ = Reader::new(&root, previewer, &sender).all();
    });
    (runs, reading)
}

struct Reader<'a> {
    root: &'a Path,
    previewer: Option<Previewer>,
    sender: &'a mpsc::Sender<Run>,
    /// The directory that is read, and those above it.
    levels: Vec<Level>,
    /// The entries of the innermost directory that were not sent.
    run: Vec<Entry>,
}

struct Level {
    directory: PathBuf,
    entries: ReadDir,
}

impl<'a> Reader<'a> {
    fn new(root: &'a Path, previewer: Option<Previewer>, sender: &'a mpsc::Sender<Run>) -> Self {
        Self {
            root,
            previewer,
            sender,
            levels: Vec::new(),
            run: Vec::new(),
        }
    }

    fn all(&mut self) -> Option<()> {
        self.enter(PathBuf::new())?;
        while let Some(level) = self.levels.last_mut() {
            match level.entries.next() {
                Some(Ok(entry)) => self.entry(&entry)?,
                None => self.leave(None)?,
                Some(Err(error)) => {
                    let error = self.failed(self.directory(), error);
                    self.leave(Some(error))?;
                }
            }
        }
        Some(())
    }

    fn entry(&mut self, entry: &DirEntry) -> Option<()> {
        let name = entry.file_name();
        let path = || self.directory().join(&name);
        let found = of_entry(entry).map_err(|error| self.failed(&path(), error));
        let directory = matches!(found, Ok(Found::Directory)).then(path);
        let previewer = self.previewer.as_ref().zip(directory.as_ref());
        let preview = previewer.and_then(|(previewer, directory)| previewer.hint(directory));
        self.run.push(Entry {
            name: Some(name),
            found,
            preview,
        });
        if directory.is_some() || self.run.len() >= RUN {
            self.send()?;
        }
        match directory {
            Some(directory) => self.enter(directory),
            None => Some(()),
        }
    }

    fn enter(&mut self, directory: PathBuf) -> Option<()> {
        let entries = match self.levels.len() < DEPTH {
            true => fs::read_dir(self.root.join(&directory)),
            false => return self.give_up(directory, CopyError::Deep(DEPTH)),
        };
        match entries {
            Ok(entries) => {
                self.levels.push(Level { directory, entries });
                Some(())
            }
            Err(error) => {
                let error = self.failed(&directory, error);
                self.give_up(directory, error)
            }
        }
    }

    /// Leaves the innermost directory, also before its end.
    fn leave(&mut self, error: Option<CopyError>) -> Option<()> {
        self.run.extend(error.map(|error| Entry {
            name: None,
            found: Err(error),
            preview: None,
        }));
        self.send()?;
        self.levels.pop();
        Some(())
    }

    /// Tells that a directory cannot be read. Nothing of the one above it waits to be sent.
    fn give_up(&mut self, directory: PathBuf, error: CopyError) -> Option<()> {
        let entries = vec![Entry {
            name: None,
            found: Err(error),
            preview: None,
        }];
        let run = Run { directory, entries };
        self.sender.blocking_send(run).ok()
    }

    fn send(&mut self) -> Option<()> {
        if self.run.is_empty() {
            return Some(());
        }
        let run = Run {
            directory: self.directory().to_owned(),
            entries: std::mem::take(&mut self.run),
        };
        self.sender.blocking_send(run).ok()
    }

    /// The innermost directory.
    fn directory(&self) -> &Path {
        let level = self.levels.last();
        level.map_or_else(|| Path::new(""), |level| &level.directory)
    }

    fn failed(&self, path: &Path, error: io::Error) -> CopyError {
        CopyError::File(self.root.join(path).display().to_string(), error)
    }
}

fn of_entry(entry: &DirEntry) -> io::Result<Found> {
    // By its name in the open directory, so that no path is resolved.
    let here = entry.metadata()?;
    let is_link = here.is_symlink();
    let target = match is_link {
        false => here,
        true => match fs::metadata(entry.path()) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                return Ok(Found::Skipped(DANGLING));
            }
            target => target?,
        },
    };
    if target.is_file() && is_unfinished_upload(Path::new(&entry.file_name())) {
        return Ok(Found::Skipped(UNFINISHED));
    }
    Ok(if target.is_file() {
        Found::File(Version {
            size: Some(target.len()),
            modified: target.modified().ok(),
            mode: Some(permissions_of(&target)),
        })
    } else if !target.is_dir() {
        Found::Skipped(SPECIAL)
    } else if is_link {
        Found::Skipped(LINK)
    } else {
        Found::Directory
    })
}
