//! What a client demands of a stored file besides its bytes.

use std::path::Path;

use gridhaul_storage::{ChecksumAlgorithm, StoredFile};

use super::read_back;
use crate::context::Context;
use crate::error::{PeerError, TransferError};
use crate::node::Demands;

/// Checks the file at `path`, which has arrived, and sets its modification time. `sums` were computed while it arrived.
pub(super) fn check(
    context: &Context,
    demands: &Demands,
    path: &Path,
    sums: &[(ChecksumAlgorithm, String)],
) -> Result<(), TransferError> {
    for (algorithm, expected) in &demands.checksums {
        let arrived = sums.iter().find(|(known, _)| known == algorithm);
        let computed = match arrived {
            Some((_, computed)) => computed.clone(),
            None => read_back::checksum(context, path, *algorithm)?,
        };
        if computed != *expected {
            let expected = expected.clone();
            return Err(PeerError::WrongChecksum { computed, expected }.into());
        }
    }
    let Some(modified) = demands.modified else {
        return Ok(());
    };
    let storage = &*context.storage;
    match storage.open_read(path) {
        Ok(file) => {
            let memory = context.resources.checksums.memory();
            memory.keep_while_modified(&file, &StoredFile { storage, path }, modified)?;
        }
        // Without read permission there are no cached checksums.
        Err(_) => storage.set_modified(path, modified)?,
    }
    Ok(())
}
