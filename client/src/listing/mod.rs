//! Directories of servers.
//!
//! A listing is received into a file of a private temporary directory, and read from there entry by entry: a directory of a million
//! entries needs no memory, and a slow reader does not hold a data connection. All listings that are open at a time share one amount of
//! room ([`LocalConfig::listing_bytes`](crate::local::LocalConfig::listing_bytes)).

mod entry;
mod remove;
mod walk;

use std::fs::{self, File};
use std::io::{self, BufRead as _, BufReader};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use gridhaul_protocol::path::PathArgument;
use gridhaul_protocol::stack::StackSpec;
use gridhaul_transfer::{Admission, AttachError, Handling, NodeSession};
use tempfile::TempDir;

pub use entry::{Entry, EntryError};
pub use remove::{RemoveError, remove_tree};
pub use walk::{Step, TreeWalk, WalkError, WalkReason};

use crate::control::ControlError;
use crate::local::{ListingRoom, ListingShare, LocalMachine};
use crate::session::{Session, TransferSettings};
use crate::transfer::{
    Direction, FileCopy, STALL, TransferFailure, Transferred, Unobserved, two_party,
};

/// Directories beneath each other. Each has an open listing.
const DEPTH: usize = 256;

/// The longest line, in bytes: a path of Linux, and facts.
const LONGEST_LINE: usize = 16 * 1024;

/// The file of a listing in its temporary directory.
const NAME: &str = "listing";

/// Why a directory cannot be listed.
#[derive(Debug, thiserror::Error)]
pub enum ListingError {
    /// The server has no machine-readable listings.
    #[error("the server cannot list directories for programs (it has no MLSD)")]
    NotSupported,
    /// The server refuses, or its connection failed.
    #[error(transparent)]
    Server(Box<ControlError>),
    /// The listing did not arrive.
    #[error(transparent)]
    Transfer(Box<TransferFailure>),
    /// A line of the listing cannot be used.
    #[error("the server sent a listing that cannot be used: {0}")]
    Entry(#[from] EntryError),
    /// A line is too long.
    #[error("the server sent a listing with a line of more than {LONGEST_LINE} bytes")]
    Line,
    /// There is no room for the listing.
    #[error(
        "the listing of {} is longer than the {left} bytes that are left for it: all open listings together have {all} bytes in {}",
        path.display(),
        place.display()
    )]
    Long {
        /// The directory.
        path: PathBuf,
        /// What was left, in bytes.
        left: u64,
        /// The room of all listings, in bytes.
        all: u64,
        /// The directory for temporary files.
        place: PathBuf,
    },
    /// The temporary directory fails.
    #[error("this machine: a listing cannot be stored in {}: {error}", place.display())]
    Store {
        /// The temporary directory.
        place: PathBuf,
        /// The operating system's error.
        error: io::Error,
    },
    /// The temporary directory cannot be opened.
    #[error("this machine: {0}")]
    Attach(#[from] AttachError),
}

impl ListingError {
    /// Whether the same may succeed later: a connection or a server failed.
    pub(crate) fn is_transient(&self) -> bool {
        match self {
            Self::Server(error) => error.is_transient(false),
            Self::Transfer(failure) => failure.is_transient(false),
            _ => false,
        }
    }
}

/// A place for listings. It is removed when it is dropped.
#[derive(Debug)]
pub struct Lister {
    place: TempDir,
    files: Arc<dyn NodeSession>,
    room: Arc<ListingRoom>,
    /// A directory was listed.
    has_listed: AtomicBool,
}

/// How listings are received.
#[derive(Debug, Clone)]
pub struct ListingSettings {
    /// The mode must be stream mode (GFD.20 3.4.1 has MODE E for files).
    pub settings: TransferSettings,
    /// The stack of this machine.
    pub stack: StackSpec,
    /// Without a byte for so long, a listing fails.
    pub stall: Duration,
}

impl ListingSettings {
    /// Protected as the server expects it after its login; at most a minute passes without a byte.
    pub fn of(session: &Session) -> Self {
        Self {
            settings: TransferSettings::of(&[session]),
            stack: StackSpec::only("auto"),
            stall: STALL,
        }
    }
}

impl Lister {
    /// # Errors
    ///
    /// When there is no room for temporary files.
    pub fn new(machine: &LocalMachine) -> Result<Self, ListingError> {
        let failed = |error| ListingError::Store {
            place: std::env::temp_dir(),
            error,
        };
        let place = tempfile::Builder::new().prefix("gridhaul-").tempdir();
        let place = place.map_err(failed)?;
        let files = machine.files(place.path(), Admission::none())?;
        Ok(Self {
            place,
            files,
            room: Arc::clone(machine.listing_room()),
            has_listed: AtomicBool::new(false),
        })
    }

    /// Lists a directory.
    ///
    /// # Errors
    ///
    /// When the server refuses, or the listing does not arrive completely.
    pub async fn list(
        &self,
        session: &mut Session,
        path: &PathArgument,
        how: &ListingSettings,
    ) -> Result<Listing, ListingError> {
        let mut share = self.room.share();
        let listed = self.receive_within(session, path, how, &share).await?;
        share.shrink(listed.bytes);
        let place = self.place.path().join(NAME);
        let failed = |error| ListingError::Store {
            place: place.clone(),
            error,
        };
        let file = File::open(&place).map_err(failed)?;
        // The space is free again when the listing is dropped.
        fs::remove_file(&place).map_err(failed)?;
        Ok(Listing {
            lines: BufReader::new(file),
            place,
            _share: share,
        })
    }

    /// Receives the listing of a directory, and says how.
    ///
    /// # Errors
    ///
    /// As [`Self::list`].
    pub async fn receive(
        &self,
        session: &mut Session,
        path: &PathArgument,
        how: &ListingSettings,
    ) -> Result<Transferred, ListingError> {
        let share = self.room.share();
        let received = self.receive_within(session, path, how, &share).await;
        self.discard();
        received
    }

    async fn receive_within(
        &self,
        session: &mut Session,
        path: &PathArgument,
        how: &ListingSettings,
        share: &ListingShare,
    ) -> Result<Transferred, ListingError> {
        if !session.has_facts() {
            return Err(ListingError::NotSupported);
        }
        // A round trip is worth it if further directories follow.
        if self.has_listed.swap(true, Ordering::Relaxed) {
            let settled = session.settle_facts().await;
            settled.map_err(|error| ListingError::Server(Box::new(error)))?;
        }
        let copy = FileCopy {
            stack: how.stack.clone(),
            stall: how.stall,
            handling: Handling {
                limit: Some(share.bytes()),
                ..Handling::default()
            },
            ..FileCopy::new(
                Direction::List,
                PathBuf::from(NAME),
                path.clone(),
                how.settings.clone(),
            )
        };
        let listed = two_party(session, &self.files, &copy, &mut Unobserved).await;
        let listed = listed.inspect_err(|_| self.discard());
        listed.map_err(|failure| match failure {
            TransferFailure::Excess(left) => ListingError::Long {
                path: path.as_path().to_owned(),
                left,
                all: self.room.all(),
                place: self.place.path().to_owned(),
            },
            TransferFailure::Source(error) => ListingError::Server(Box::new(error)),
            failure => ListingError::Transfer(Box::new(failure)),
        })
    }

    /// Frees the room of a listing that is not read.
    fn discard(&self) {
        // It may not have been made.
        let _ = fs::remove_file(self.place.path().join(NAME));
    }
}

/// The entries of a directory, in the order of the server, without those for itself and its parent.
#[derive(Debug)]
pub struct Listing {
    lines: BufReader<File>,
    /// Where the file was, for errors.
    place: PathBuf,
    /// The room of the file, whose name is gone.
    _share: ListingShare,
}

impl Iterator for Listing {
    type Item = Result<Entry, ListingError>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            let line = match self.line() {
                Ok(line) => line?,
                Err(error) => return Some(Err(error)),
            };
            match Entry::parse(&line) {
                Ok(None) => {}
                Ok(Some(entry)) => return Some(Ok(entry)),
                Err(error) => return Some(Err(error.into())),
            }
        }
    }
}

impl Listing {
    /// The next line that is not empty, without its end. RFC 3659 7.2.2: lines end with CRLF; a name may have a line feed.
    fn line(&mut self) -> Result<Option<Vec<u8>>, ListingError> {
        let mut line = Vec::new();
        loop {
            let buffer = self.lines.fill_buf().map_err(|error| ListingError::Store {
                place: self.place.clone(),
                error,
            })?;
            if buffer.is_empty() {
                // globus-gridftp-server ends the last line, too; what others leave open counts.
                return Ok((!line.is_empty()).then_some(line));
            }
            let end = buffer.iter().position(|&byte| byte == b'\n');
            let taken = end.map_or(buffer.len(), |end| end + 1);
            line.extend_from_slice(&buffer[..taken]);
            self.lines.consume(taken);
            if line.len() > LONGEST_LINE {
                return Err(ListingError::Line);
            }
            if line.ends_with(b"\r\n") {
                line.truncate(line.len() - 2);
                if !line.is_empty() {
                    return Ok(Some(line));
                }
            }
        }
    }
}
