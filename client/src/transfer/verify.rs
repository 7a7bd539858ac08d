//! Checksums of both ends.

use std::path::Path;
use std::sync::Arc;

use gridhaul_protocol::command::AlgorithmName;
use gridhaul_protocol::path::PathArgument;
use gridhaul_stack::Cancel;
use gridhaul_storage::ChecksumAlgorithm;
use gridhaul_transfer::{ChecksumRequest, NodeSession};

use super::{FilePart, TransferFailure};
use crate::control::ControlError;
use crate::session::Session;

/// The checksum that a server computes of a file, or of a part of it.
///
/// # Errors
///
/// When the server refuses, or the session has ended.
pub async fn checksum_of_server(
    session: &mut Session,
    algorithm: ChecksumAlgorithm,
    path: &PathArgument,
    part: Option<FilePart>,
) -> Result<String, ControlError> {
    let name = AlgorithmName::new(algorithm.name());
    let name = name.ok_or(ControlError::Unsendable("the name of the algorithm"))?;
    let (offset, length) = range(part);
    session.checksum(&name, path, offset, length).await
}

/// The checksum of a file of this machine, or of a part of it.
///
/// # Errors
///
/// When the file cannot be read.
pub async fn checksum_of_file(
    files: &Arc<dyn NodeSession>,
    algorithm: ChecksumAlgorithm,
    path: &Path,
    part: Option<FilePart>,
) -> Result<String, TransferFailure> {
    let files = Arc::clone(files);
    let (offset, length) = range(part);
    let request = ChecksumRequest {
        path: path.to_owned(),
        algorithm,
        offset,
        length,
    };
    let summed = tokio::task::spawn_blocking(move || {
        files.checksum(&request, &Default::default(), &Cancel::new())
    });
    let found = summed.await.map_err(|_| TransferFailure::Lost)?;
    Ok(found.map_err(TransferFailure::Checksumming)?.value)
}

/// Offset and length.
fn range(part: Option<FilePart>) -> (u64, Option<u64>) {
    part.map_or((0, None), |part| (part.offset, part.length))
}

/// The common checksum of both ends; `replaced` says whether the copy has the name of the file already.
pub(super) fn compared(
    source_sum: String,
    destination_sum: String,
    replaced: bool,
) -> Result<String, TransferFailure> {
    // A sum that is missing is equal to none.
    let is_known = !source_sum.is_empty();
    match is_known && source_sum.eq_ignore_ascii_case(&destination_sum) {
        true => Ok(source_sum),
        false => Err(TransferFailure::Checksum {
            source_sum,
            destination_sum,
            replaced,
        }),
    }
}
