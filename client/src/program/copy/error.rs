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
    #[error(
        "both servers have called the file complete after a restart, but the destination does not say that it has all of it, and checksums do not show it either: do not use the copy, and copy the file again"
    )]
    Unproven,
    #[error(
        "given up: {0} files in a row could not be copied because of their servers; what is left of the copy is not tried"
    )]
    GivenUp(usize),
    #[error(
        "given up: {0} files in a row could not be copied because the destination has no room left; what is left of the copy is not tried"
    )]
    NoRoom(usize),
}

impl CopyError {
    /// Whether the same may succeed later. `has_moved` says whether bytes of the file had moved.
    pub(super) fn is_transient(&self, has_moved: bool) -> bool {
        match self {
            Self::Open(error) => error.is_transient(),
            Self::Transfer(failure) => failure.is_transient(has_moved),
            Self::Source(error) | Self::Destination(error) => error.is_transient(has_moved),
            Self::Listing(error) | Self::DestinationListing(error) => error.is_transient(),
            Self::Changed | Self::Continued | Self::Unproven => true,
            _ => false,
        }
    }

    /// Whether the destination has no room left.
    pub(super) fn is_about_room(&self) -> bool {
        match self {
            Self::Transfer(failure) => failure.is_about_room(),
            Self::Destination(error) => error.is_about_room(),
            Self::Storage(error) => error.is_about_room(),
            _ => false,
        }
    }

    /// Whether another upload has the file at the destination.
    pub(super) fn is_in_use(&self) -> bool {
        match self {
            Self::Transfer(failure) => failure.is_in_use(),
            Self::Destination(error) => error.is_in_use(),
            _ => false,
        }
    }

    /// Whether nothing was tried, because too many files had failed.
    pub(super) fn is_given_up(&self) -> bool {
        matches!(self, Self::GivenUp(_) | Self::NoRoom(_))
    }

    /// Whether what has arrived must not be continued.
    pub(super) fn is_about_content(&self) -> bool {
        match self {
            Self::Changed | Self::Continued | Self::Unproven => true,
            Self::Transfer(failure) => matches!(
                **failure,
                TransferFailure::Checksum { .. }
                    | TransferFailure::Length { .. }
                    | TransferFailure::Excess(_)
            ),
            _ => false,
        }
    }

    /// The bytes that a source was asked for after a restart, if it has called the transfer complete and none has arrived. `None`: the error
    /// is another one.
    pub(super) fn unsent(&self) -> Option<u64> {
        match self {
            Self::Transfer(failure) => match **failure {
                TransferFailure::Unsent { asked, arrived: 0 } => Some(asked),
                _ => None,
            },
            _ => None,
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
