//! The lines of listings, in the form of each command.

use std::borrow::Cow;
use std::collections::VecDeque;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use gridhaul_protocol::facts::FactSelection;
use gridhaul_protocol::listing::append_name;
use gridhaul_storage::{DirectoryRun, Metadata, StorageError};

use super::entry::{self, Clock, Kind};
use super::pattern::Pattern;

/// The size of a piece in bytes, roughly.
const PIECE_BYTES: usize = 64 * 1024;

/// The form of the lines.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Form {
    /// `MLSD`: facts of the entries of a directory.
    Facts,
    /// `MLSC`: facts of the entries of a directory, of itself and of its parent.
    AllFacts,
    /// `MLSR`: facts of a whole tree.
    Tree,
    /// `LIST`: the long form of ls(1), in local time.
    Long,
    /// `NLST`: names.
    Names,
}

impl Form {
    /// Whether a directory's listing contains `.` and `..`. globus-gridftp-server 13.24 lists them for every command.
    ///
    /// Clients pass the names of `NLST` to the commands that transfer files (RFC 1123 4.1.2.7). The entries are optional in
    /// `MLSD` (RFC 3659 7.5.1), and `arccp -r` 6.17 treats them as files. Only the clients of Globus use `MLSC` and `MLSR`.
    pub(crate) fn has_current_and_parent(self) -> bool {
        match self {
            Self::AllFacts | Self::Tree | Self::Long => true,
            Self::Facts | Self::Names => false,
        }
    }
}

/// The form of a listing and the facts in it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Style {
    pub(crate) form: Form,
    /// The facts that the client selected, in the forms that have facts.
    pub(crate) facts: FactSelection,
}

/// Formatted lines in chunks. Each line ends with CRLF.
#[derive(Debug, Default)]
pub(crate) struct Pieces(VecDeque<Vec<u8>>);

impl Pieces {
    pub(crate) fn take(&mut self) -> Option<Vec<u8>> {
        self.0.pop_front()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether the first piece is complete: a second one has begun.
    pub(crate) fn has_whole(&self) -> bool {
        self.0.len() > 1
    }

    pub(crate) fn append(&mut self, mut next: Self) {
        self.0.append(&mut next.0);
    }

    /// Adds the line that `write` appends, if it returns true.
    fn line(&mut self, write: impl FnOnce(&mut Vec<u8>) -> bool) {
        /// Extra capacity, so that the last line of a piece seldom reallocates it.
        const LINE_BYTES: usize = 1024;

        if self.0.back().is_none_or(|piece| piece.len() >= PIECE_BYTES) {
            self.0
                .push_back(Vec::with_capacity(PIECE_BYTES + LINE_BYTES));
        }
        let Some(piece) = self.0.back_mut() else {
            return;
        };
        let start = piece.len();
        if write(piece) {
            piece.extend_from_slice(b"\r\n");
        } else {
            piece.truncate(start);
        }
    }
}

/// Writes lines.
#[derive(Debug, Clone)]
pub(crate) struct Writer {
    style: Style,
    clock: Clock,
}

impl Writer {
    pub(crate) fn new(style: Style) -> Self {
        Self {
            style,
            clock: Clock::now(),
        }
    }

    pub(crate) fn form(&self) -> Form {
        self.style.form
    }

    /// Adds the line of a file, unless listings leave it out.
    pub(crate) fn add(
        &self,
        pieces: &mut Pieces,
        name: &[u8],
        directory: &Path,
        metadata: &Metadata,
        kind: Kind,
    ) {
        pieces.line(|line| match self.style.form {
            Form::Facts | Form::AllFacts | Form::Tree => {
                let link = entry::link_target(directory, metadata);
                let facts = entry::facts(metadata, kind, link.as_deref());
                let facts = facts.map(|facts| facts.append_line(line, self.style.facts, name));
                facts.is_some()
            }
            Form::Long => {
                entry::append_long(line, metadata, name, &self.clock);
                true
            }
            Form::Names => {
                append_name(line, name);
                true
            }
        });
    }
}

/// Writes the lines of one directory.
pub(crate) struct DirectoryLines {
    pub(crate) writer: Writer,
    pub(crate) directory: PathBuf,
    pub(crate) pattern: Option<Pattern>,
}

impl DirectoryLines {
    /// The lines of a run. Reads the metadata of its entries, unless only names are listed.
    ///
    /// # Errors
    ///
    /// When the metadata of an entry cannot be read.
    pub(crate) fn of(&self, run: &mut dyn DirectoryRun) -> Result<Pieces, StorageError> {
        let mut pieces = Pieces::default();
        if let Some(pattern) = &self.pattern {
            run.retain(&|name| pattern.matches(name));
        }
        if self.writer.form() == Form::Names {
            run.names(&mut |name| {
                let name = self.full_name(name.as_bytes());
                pieces.line(|line| {
                    append_name(line, &name);
                    true
                });
            });
            return Ok(pieces);
        }
        run.entries(&mut |name, metadata| {
            let name = self.full_name(name.as_bytes());
            let directory = &self.directory;
            self.writer
                .add(&mut pieces, &name, directory, metadata, Kind::Entry);
        })?;
        Ok(pieces)
    }

    /// A name with the prefix of the pattern.
    fn full_name<'name>(&self, name: &'name [u8]) -> Cow<'name, [u8]> {
        match &self.pattern {
            Some(pattern) => Cow::Owned([pattern.prefix.as_slice(), name].concat()),
            None => Cow::Borrowed(name),
        }
    }
}
