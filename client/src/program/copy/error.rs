//! Why a file was not copied.

use std::io;

use gridhaul_storage::StorageError;
use gridhaul_transfer::AttachError;

use super::super::servers::OpenError;
use crate::control::ControlError;
use crate::listing::{ListingError, RemoveError};
use crate::location::LocationError;
use crate::transfer::TransferFailure;

/// Why a file or directory was not copied.
#[derive(Debug, thiserror::Error)]
pub(super) enum CopyError {
    #[error(transparent)]
    Open(#[from] OpenError),
    #[error("{0}")]
    Transfer(#[source] Box<TransferFailure>),
    #[error("source: {0}")]
    Source(#[source] ControlError),
    #[error("destination: {0}")]
    Destination(#[source] ControlError),
    #[error("both are files of this machine: use cp")]
    Local,
    #[error("the source and the destination are the same file")]
    Same,
    #[error(
        "--rate limits the bytes of this machine, and these go from server to server: leave it out, give --relay, or give --stack tcp:rate=8g (bits per second)"
    )]
    RateOfServers,
    #[error("the source and the destination are the same directory")]
    SameDirectory,
    #[error("the destination is within the source")]
    Within,
    #[error("this is the destination of the copy, which is not copied into itself")]
    Itself,
    #[error("another source of this command was copied there: name the destinations one by one")]
    Twice,
    #[error(transparent)]
    Name(#[from] LocationError),
    #[error("{0}: {1}")]
    File(String, io::Error),
    #[error("this machine: {0}")]
    Storage(#[from] StorageError),
    #[error("this machine: {0}")]
    Attach(#[from] AttachError),
    #[error("{0}: Is a directory: say --recursive, or name the files")]
    Directory(String),
    #[error("directories beneath more than {0} others are not copied")]
    Deep(usize),
    #[error("the source was not read to its end, which is a defect of this program")]
    Walk,
    #[error(
        "this machine cannot compute {0}: only copies between two servers can be verified by it"
    )]
    OnlyServers(String),
    #[error(
        "{0}: a device or a pipe is one stream, and is copied by itself: name one source and one destination"
    )]
    Special(String),
    #[error("{0}: it keeps nothing, so no checksum can be verified")]
    Unverifiable(String),
    #[error("{0}: no file matches")]
    NoMatch(String),
    #[error("{0}: this is no pattern")]
    Pattern(String),
    #[error("{0}: too many files match: copy the directory with --recursive")]
    ManyMatches(String),
    #[error("source: {0}")]
    Listing(#[source] Box<ListingError>),
    #[error("destination: {0}")]
    DestinationListing(#[source] Box<ListingError>),
    #[error("destination: {0}: {1}")]
    Remove(String, #[source] Box<RemoveError>),
    #[error("too many entries to compare: nothing was deleted there")]
    TooMany,
    #[error("the source has changed while it was copied: copy it again")]
    Changed,
    #[error(
        "the destination has continued another file than its unfinished one, and its content is wrong: copy it again"
    )]
    Continued,
    #[error("given up: {0} files in a row could not be copied because of their servers")]
    GivenUp(usize),
}

impl CopyError {
    /// Whether the same may succeed later. `has_moved` says whether bytes of the file had moved.
    pub(super) fn is_transient(&self, has_moved: bool) -> bool {
        match self {
            Self::Open(error) => error.is_transient(),
            Self::Transfer(failure) => failure.is_transient(has_moved),
            Self::Source(error) | Self::Destination(error) => error.is_transient(has_moved),
            Self::Listing(error) | Self::DestinationListing(error) => error.is_transient(),
            Self::Changed | Self::Continued => true,
            _ => false,
        }
    }

    /// Whether what has arrived must not be continued.
    pub(super) fn is_about_content(&self) -> bool {
        match self {
            Self::Changed | Self::Continued => true,
            Self::Transfer(failure) => matches!(
                **failure,
                TransferFailure::Checksum { .. }
                    | TransferFailure::Length { .. }
                    | TransferFailure::Excess(_)
            ),
            _ => false,
        }
    }
}

impl From<TransferFailure> for CopyError {
    fn from(failure: TransferFailure) -> Self {
        Self::Transfer(Box::new(failure))
    }
}

impl From<ListingError> for CopyError {
    fn from(error: ListingError) -> Self {
        Self::Listing(Box::new(error))
    }
}
