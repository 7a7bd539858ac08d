//! The copies of a dry run as a list, which another run can read.

use std::fmt::Write as _;
use std::fs::File;
use std::io::{self, BufWriter, Write as _};
use std::path::Path;
use std::sync::{Mutex, PoisonError};

/// What is known about a source, where it is.
#[derive(Debug, Default)]
pub(super) struct PlannedFile {
    /// In bytes.
    pub(super) size: Option<u64>,
    /// Seconds since 1970.
    pub(super) modified: Option<u64>,
    /// The permission bits.
    pub(super) mode: Option<u32>,
}

/// The list of a dry run. Its lines are those that globus-url-copy 10.12 writes with `-do`.
#[derive(Debug)]
pub(super) struct Plan {
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    file: BufWriter<File>,
    /// The first error.
    error: Option<io::Error>,
}

impl Plan {
    /// Makes the file.
    ///
    /// # Errors
    ///
    /// When it cannot be made.
    pub(super) fn create(path: &Path) -> io::Result<Self> {
        let state = State {
            file: BufWriter::new(File::create(path)?),
            error: None,
        };
        Ok(Self {
            state: Mutex::new(state),
        })
    }

    /// Adds a copy. Errors are told by [`Self::finish`].
    pub(super) fn write(&self, [source, destination]: [&str; 2], file: &PlannedFile) {
        // The third word is offset and length of a part: the whole file.
        let facts = facts(file);
        let mut line = format!("\"{source}\" \"{destination}\" 0,-1 {facts}");
        line.truncate(line.trim_end().len());
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if let Err(error) = writeln!(state.file, "{line}") {
            state.error.get_or_insert(error);
        }
    }

    /// Writes what is left.
    ///
    /// # Errors
    ///
    /// When a line could not be written.
    pub(super) fn finish(&self) -> io::Result<()> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        match state.error.take() {
            Some(error) => Err(error),
            None => state.file.flush(),
        }
    }
}

fn facts(file: &PlannedFile) -> String {
    let mut facts = String::new();
    // Writing to a String cannot fail.
    if let Some(size) = file.size {
        let _ = write!(facts, "size={size};");
    }
    if let Some(seconds) = file.modified {
        let _ = write!(facts, "modify={seconds};");
    }
    if let Some(mode) = file.mode {
        let _ = write!(facts, "mode={mode:04o};");
    }
    facts
}
