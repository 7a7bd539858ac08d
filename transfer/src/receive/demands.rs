//! What a client, or the session, demands of a stored file besides its bytes.

use std::path::Path;
use std::time::SystemTime;

use gridhaul_storage::{ChecksumAlgorithm, StoredFile};

use super::arriving::Arriving;
use super::read_back;
use crate::context::Context;
use crate::error::{CancelReason, PeerError, TransferError};
use crate::node::{Answer, Handling, RunningTransfer as _};

/// Checks the file at `path`, which has arrived, and sets its modification time. `sums` were computed while it arrived. A file without a
/// name has no demands that need one.
pub(super) fn check(
    context: &Context,
    handling: &Handling,
    (path, arriving): (&Path, Option<&Arriving>),
    sums: &[(ChecksumAlgorithm, String)],
) -> Result<(), TransferError> {
    let demands = &handling.demands;
    let sum = |algorithm: ChecksumAlgorithm| {
        let arrived = sums.iter().find(|(known, _)| *known == algorithm);
        match arrived {
            Some((_, computed)) => Ok(computed.clone()),
            None => read_back::checksum(context, path, algorithm),
        }
    };
    for (algorithm, expected) in &demands.checksums {
        let computed = sum(*algorithm)?;
        if computed != *expected {
            let expected = expected.clone();
            return Err(PeerError::WrongChecksum { computed, expected }.into());
        }
    }
    if let Some(modified) = demands.modified {
        match arriving {
            Some(Arriving::Unnamed(unnamed)) => unnamed.set_modified(modified)?,
            _ => set_modified(context, path, modified)?,
        }
    }
    let Some(consent) = &demands.consent else {
        return Ok(());
    };
    let all = handling.checksums.iter();
    let all = all.map(|&algorithm| Ok((algorithm, sum(algorithm)?)));
    let all = all.collect::<Result<_, TransferError>>()?;
    match consent.wait(all, || context.running.cancel.is_cancelled()) {
        Some(Answer::Complete) => Ok(()),
        Some(Answer::CompleteWith(bytes)) => {
            let moved = context.running.progress().stripes.into_iter();
            match moved.fold(0, u64::saturating_add) == bytes {
                true => Ok(()),
                false => Err(TransferError::Cancelled(CancelReason::Abort)),
            }
        }
        Some(Answer::WrongChecksum { computed, expected }) => {
            Err(PeerError::WrongChecksum { computed, expected }.into())
        }
        // The reason is recorded.
        None => Err(TransferError::Cancelled(CancelReason::Abort)),
    }
}

fn set_modified(context: &Context, path: &Path, modified: SystemTime) -> Result<(), TransferError> {
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
