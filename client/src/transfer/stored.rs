//! Compares a copy with what its server says to have stored: a server that calls an upload complete may have written less.

use gridhaul_protocol::path::PathArgument;

use super::TransferFailure;
use super::part::{self, FilePart};
use crate::control::ControlError;
use crate::session::{Kind, Session, StoredMarkers};

/// Compares the size of a copy at `session` with the bytes that the file or its part has. `is_told` says that the markers of the transfer
/// tell a whole file of that size: a server whose markers have agreed with `SIZE` before is not asked again. The
/// confirmation of a server without `SIZE` is enough.
///
/// # Errors
///
/// When the size is another one, the server refuses to tell it and has not told it by markers, or the session has ended.
pub(super) async fn check_size(
    session: &mut Session,
    path: &PathArgument,
    part: Option<FilePart>,
    expected: u64,
    is_told: bool,
) -> Result<(), TransferFailure> {
    let to = TransferFailure::Destination;
    let markers = session.markers();
    if is_told && markers == StoredMarkers::Sizes {
        return Ok(());
    }
    let copied = match session.size(path).await {
        Ok(Some(copied)) => copied,
        Ok(None) => return Ok(()),
        // A directory may be for uploads only.
        Err(ControlError::Refused { .. }) if is_told => return Ok(()),
        Err(error) => return Err(to(error)),
    };
    if part::is_whole(part, expected, copied) {
        if is_told && markers == StoredMarkers::Unknown {
            session.note_markers(StoredMarkers::Sizes);
        }
        return Ok(());
    }
    // A device such as /dev/null takes bytes, and has no size.
    let facts = session.facts(path).await.map_err(to)?;
    match facts.and_then(|facts| facts.kind) {
        Some(Kind::Other) => Ok(()),
        _ => Err(TransferFailure::Length { expected, copied }),
    }
}
