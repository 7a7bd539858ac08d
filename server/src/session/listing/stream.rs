//! Listings as streams: a directory of a million entries is sent while it is read, in constant memory.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Arc;

use gridhaul_storage::{FileKind, Metadata, Storage, StorageError};
use rustix::io::Errno;

use super::entry::Kind;
use super::lines::{DirectoryLines, Form, Pieces, Style, Writer};
use super::pattern::Pattern;
use super::runs::Runs;
use super::tree::Tree;
use crate::threads::Listers;

/// The lines of a listing, each ended by CRLF, in pieces.
pub(crate) struct Listing {
    writer: Writer,
    storage: Arc<dyn Storage>,
    listers: Listers,
    ready: Pieces,
    rest: Rest,
}

/// The source of the lines that are not made yet.
enum Rest {
    Nothing,
    Directory(Runs),
    Tree(Tree),
}

impl Listing {
    /// Opens the listing of `path`, which the client wrote as `given`, so that a path that cannot be listed fails here.
    /// Blocks.
    ///
    /// # Errors
    ///
    /// When `path` does not exist, or may not be listed.
    pub(crate) fn open(
        (storage, listers): (Arc<dyn Storage>, Listers),
        style: Style,
        path: &Path,
        given: Option<&[u8]>,
    ) -> Result<Self, StorageError> {
        let mut listing = Self {
            writer: Writer::new(style),
            storage,
            listers,
            ready: Pieces::default(),
            rest: Rest::Nothing,
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
        if self.writer.form().has_current_and_parent() {
            self.add(b".", path, found, Kind::Current);
            // The user may have no right to see the parent. Then the listing leaves it out.
            if let Ok(parent) = self.storage.stat(&path.join("..")) {
                self.add(b"..", path, &parent, Kind::Parent);
            }
        }
        self.rest = if self.writer.form() == Form::Tree {
            Rest::Tree(Tree::new(
                Arc::clone(&self.storage),
                self.listers.clone(),
                path,
                stream,
            ))
        } else {
            let lines = self.lines(path, None);
            Rest::Directory(Runs::new(stream, lines, self.listers.clone()))
        };
        Ok(())
    }

    /// Lists a single file: by its name, and in `LIST` and `NLST` as the client wrote it.
    fn add_file(&mut self, path: &Path, given: Option<&[u8]>, found: &Metadata) {
        let name = path.file_name().map_or(&b"/"[..], OsStr::as_bytes);
        let name = match self.writer.form() {
            Form::Names | Form::Long => given.unwrap_or(name),
            Form::Facts | Form::AllFacts | Form::Tree => name,
        };
        self.add(name, path.parent().unwrap_or(path), found, Kind::Entry);
    }

    /// Lists the names that match a pattern. As in a shell, no match is an error.
    fn open_pattern(&mut self, path: &Path, pattern: Pattern) -> Result<(), StorageError> {
        let directory = path.parent().unwrap_or(path);
        let lines = self.lines(directory, Some(pattern));
        let stream = self.storage.list(directory)?;
        let mut runs = Runs::new(stream, lines, self.listers.clone());
        while self.ready.is_empty() {
            let run = runs.next_run();
            self.ready = run.unwrap_or_else(|| Err(StorageError::new("stat", Errno::NOENT)))?;
        }
        self.rest = Rest::Directory(runs);
        Ok(())
    }

    fn lines(&self, directory: &Path, pattern: Option<Pattern>) -> DirectoryLines {
        DirectoryLines {
            writer: self.writer.clone(),
            directory: directory.to_owned(),
            pattern,
        }
    }

    /// Makes more lines. Returns false at the end.
    fn advance(&mut self) -> Result<bool, StorageError> {
        match &mut self.rest {
            Rest::Nothing => Ok(false),
            Rest::Directory(runs) => {
                let run = runs.next_run().transpose()?;
                let more = run.is_some();
                self.ready.append(run.unwrap_or_default());
                Ok(more)
            }
            Rest::Tree(tree) => tree.advance(&self.writer, &mut self.ready),
        }
    }

    fn add(&mut self, name: &[u8], directory: &Path, metadata: &Metadata, kind: Kind) {
        self.writer
            .add(&mut self.ready, name, directory, metadata, kind);
    }
}

impl Iterator for Listing {
    type Item = Result<Vec<u8>, StorageError>;

    fn next(&mut self) -> Option<Self::Item> {
        while !self.ready.has_whole() {
            match self.advance() {
                Ok(true) => {}
                Ok(false) => break,
                Err(error) => {
                    self.rest = Rest::Nothing;
                    self.ready = Pieces::default();
                    return Some(Err(error));
                }
            }
        }
        self.ready.take().map(Ok)
    }
}
