//! Listings as streams: a directory of a million entries is sent as it is read, in constant memory.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use globset::{GlobBuilder, GlobMatcher};
use gridhaul_protocol::facts::FactSelection;
use gridhaul_protocol::listing::append_name;
use gridhaul_storage::{DirectoryEntry, FileKind, Metadata, Storage, StorageError};
use rustix::io::Errno;

use super::entry::{self, Clock, Kind};
use super::sorted::Sorted;

/// How many bytes are handed over at a time, roughly.
const CHUNK_BYTES: usize = 16 * 1024;

/// How deep `MLSR` follows directories; each level holds a descriptor.
const DEEPEST: usize = 128;

/// The longest pattern that is understood; a longer one is a name.
const LONGEST_PATTERN: usize = 1024;

/// What is told of each entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Form {
    /// `MLSD`, `MLSC`: facts of the entries of a directory.
    Facts,
    /// `MLSR`: facts of a whole tree.
    Tree,
    /// `LIST`: the long form of ls(1), in local time.
    Long,
    /// `NLST`: names.
    Names,
}

/// How a listing is written.
#[derive(Debug, Clone, Copy)]
pub(super) struct Style {
    pub(super) form: Form,
    /// The facts that the client wants, where there are any.
    pub(super) facts: FactSelection,
}

/// The lines of a listing, each ended by CRLF, in pieces.
pub(super) struct Listing {
    style: Style,
    clock: Clock,
    storage: Arc<dyn Storage>,
    /// Lines that are ready.
    ready: Vec<u8>,
    /// The directory that is listed; in a tree, those above the one that is listed now.
    levels: Vec<Level>,
}

struct Level {
    path: PathBuf,
    /// What stands before names: where they are, as seen from the directory that was named.
    prefix: Vec<u8>,
    pattern: Option<Pattern>,
    entries: Sorted,
}

impl Listing {
    /// Begins the listing of `path`, which the client wrote as `given`: so much of it that a path that
    /// cannot be listed is an error here. Blocks.
    ///
    /// # Errors
    ///
    /// When there is nothing at `path`, or it may not be listed.
    pub(super) fn open(
        storage: Arc<dyn Storage>,
        style: Style,
        path: &Path,
        given: Option<&[u8]>,
    ) -> Result<Self, StorageError> {
        let clock = Clock::now();
        let mut listing = Self {
            style,
            clock,
            storage,
            ready: Vec::new(),
            levels: Vec::new(),
        };
        match listing.storage.stat(path) {
            Ok(found) if found.kind == FileKind::Directory => {
                listing.open_directory(path, &found)?
            }
            Ok(found) => listing.add_file(path, given, &found),
            Err(error) => {
                let pattern = given
                    .and_then(Pattern::new)
                    .filter(|_| matches!(style.form, Form::Long | Form::Names));
                match pattern {
                    Some(pattern) if error.errno == Errno::NOENT => {
                        listing.open_pattern(path, pattern)?
                    }
                    _ => return Err(error),
                }
            }
        }
        Ok(listing)
    }

    fn open_directory(&mut self, path: &Path, found: &Metadata) -> Result<(), StorageError> {
        let stream = self.storage.list(path)?;
        self.add(b".", path, found, Kind::Current);
        // The parent may be out of reach; then the listing does without it.
        if let Ok(parent) = self.storage.stat(&path.join("..")) {
            self.add(b"..", path, &parent, Kind::Parent);
        }
        self.levels.push(Level {
            path: path.to_owned(),
            prefix: Vec::new(),
            pattern: None,
            entries: Sorted::new(stream),
        });
        Ok(())
    }

    /// A file is listed as itself: by its name, and in `NLST` as the client wrote it.
    fn add_file(&mut self, path: &Path, given: Option<&[u8]>, found: &Metadata) {
        let name = path.file_name().map_or(&b"/"[..], OsStr::as_bytes);
        let name = match self.style.form {
            Form::Names | Form::Long => given.unwrap_or(name),
            Form::Facts | Form::Tree => name,
        };
        self.add(name, path.parent().unwrap_or(path), found, Kind::Entry);
    }

    /// Lists what fits a pattern. As in a shell, no fit is an error.
    fn open_pattern(&mut self, path: &Path, pattern: Pattern) -> Result<(), StorageError> {
        let directory = path.parent().unwrap_or(path);
        self.levels.push(Level {
            path: directory.to_owned(),
            prefix: pattern.prefix.clone(),
            pattern: Some(pattern),
            entries: Sorted::new(self.storage.list(directory)?),
        });
        while self.ready.is_empty() {
            if !self.advance()? {
                return Err(StorageError::new("stat", Errno::NOENT));
            }
        }
        Ok(())
    }

    /// Takes one entry, and tells whether there was one.
    fn advance(&mut self) -> Result<bool, StorageError> {
        let Some(level) = self.levels.last_mut() else {
            return Ok(false);
        };
        let Some(DirectoryEntry { name, metadata }) = level.entries.next_entry()? else {
            self.levels.pop();
            return Ok(!self.levels.is_empty());
        };
        if level
            .pattern
            .as_ref()
            .is_some_and(|pattern| !pattern.fits(&name))
        {
            return Ok(true);
        }
        let directory = level.path.clone();
        let full_name = [level.prefix.as_slice(), name.as_bytes()].concat();
        self.add(&full_name, &directory, &metadata, Kind::Entry);
        let descend = self.style.form == Form::Tree
            && metadata.kind == FileKind::Directory
            && metadata.link_target.is_none();
        if descend {
            self.descend(directory.join(&name), full_name)?;
        }
        Ok(true)
    }

    /// Goes on with a directory of a tree. One that vanished or may not be read is left out.
    fn descend(&mut self, path: PathBuf, mut prefix: Vec<u8>) -> Result<(), StorageError> {
        if self.levels.len() >= DEEPEST {
            return Err(StorageError::new("scandir", Errno::NAMETOOLONG));
        }
        match self.storage.list(&path) {
            Ok(stream) => {
                prefix.push(b'/');
                self.levels.push(Level {
                    path,
                    prefix,
                    pattern: None,
                    entries: Sorted::new(stream),
                });
                Ok(())
            }
            Err(error) if matches!(error.errno, Errno::NOENT | Errno::ACCESS | Errno::NOTDIR) => {
                Ok(())
            }
            Err(error) => Err(error),
        }
    }

    /// Adds a line. A name that cannot stand on a line is left out.
    fn add(&mut self, name: &[u8], directory: &Path, metadata: &Metadata, kind: Kind) {
        let start = self.ready.len();
        let whole = match self.style.form {
            Form::Facts | Form::Tree => {
                let link = entry::link_target(directory, metadata);
                entry::facts(metadata, kind, link.as_deref())
                    .is_some_and(|facts| facts.append_line(&mut self.ready, self.style.facts, name))
            }
            Form::Long => {
                entry::append_long(&mut self.ready, metadata, name, &self.clock);
                true
            }
            Form::Names => append_name(&mut self.ready, name),
        };
        if whole {
            self.ready.extend_from_slice(b"\r\n");
        } else {
            self.ready.truncate(start);
        }
    }
}

impl Iterator for Listing {
    type Item = Result<Vec<u8>, StorageError>;

    fn next(&mut self) -> Option<Self::Item> {
        while self.ready.len() < CHUNK_BYTES {
            match self.advance() {
                Ok(true) => {}
                Ok(false) => break,
                Err(error) => {
                    self.levels.clear();
                    self.ready.clear();
                    return Some(Err(error));
                }
            }
        }
        let piece = std::mem::take(&mut self.ready);
        (!piece.is_empty()).then_some(Ok(piece))
    }
}

/// A pattern as of a shell in the last name of a path.
struct Pattern {
    /// What stands before the last name, with its slash.
    prefix: Vec<u8>,
    matcher: GlobMatcher,
    /// Names that begin with a dot fit only if the pattern says the dot.
    hidden: bool,
}

impl Pattern {
    /// `None` if there is nothing special in the last name, or it cannot be a pattern.
    fn new(given: &[u8]) -> Option<Self> {
        let start = given
            .iter()
            .rposition(|&byte| byte == b'/')
            .map_or(0, |slash| slash + 1);
        let (prefix, name) = given.split_at(start);
        let text = std::str::from_utf8(name).ok()?;
        if text.len() > LONGEST_PATTERN || !text.contains(['*', '?', '[', '{']) {
            return None;
        }
        let glob = GlobBuilder::new(text)
            .literal_separator(true)
            .backslash_escape(true)
            .build()
            .ok()?;
        Some(Self {
            prefix: prefix.to_owned(),
            matcher: glob.compile_matcher(),
            hidden: text.starts_with('.'),
        })
    }

    fn fits(&self, name: &OsStr) -> bool {
        (self.hidden || !name.as_bytes().starts_with(b".")) && self.matcher.is_match(name)
    }
}
