//! The other nodes that receive the same file (`node::Share`).
//!
//! ```text
//!   lead       open, truncate ─> opened ─> its stripes ─> wait ─> length, checksums, sync, final name
//!                                  │                       ^
//!   members                        └──> its stripes, sync, close
//! ```
//!
//! The lead keeps an upload under a temporary name from other uploads by a lock. The members take the same lock, shared, so
//! that no later upload begins while one of them may still write.

use std::sync::Arc;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::Duration;

use gridhaul_protocol::ranges::RangeSet;
use gridhaul_stack::ChannelError;
use gridhaul_storage::{
    OpenedFile, Rule, StorageError, UploadOpening, WriteMode, is_unfinished_upload,
};

use super::request::Target;
use crate::context::Context;
use crate::error::{PeerError, TransferError};
use crate::node::Companions;

/// How often a waiting lead checks for cancellation.
const CANCEL_CHECK: Duration = Duration::from_millis(50);

/// Opens the file that the lead has opened.
pub(super) fn open(
    context: &Context,
    target: &Target<'_>,
    direct: bool,
) -> Result<OpenedFile, TransferError> {
    let (storage, path) = (&context.storage, target.path);
    let opened = if is_unfinished_upload(path) {
        open_upload(context, target, direct)
    } else if direct {
        storage.open_write_direct(path, WriteMode::Existing)
    } else {
        storage.open_write(path, WriteMode::Existing)
    };
    opened.map_err(|error| TransferError::open(path, error))
}

fn open_upload(
    context: &Context,
    target: &Target<'_>,
    direct: bool,
) -> Result<OpenedFile, StorageError> {
    let opening = UploadOpening {
        create: false,
        // The lead has seen to it.
        private: false,
        direct,
    };
    let file = context.storage.open_upload(target.path, opening)?;
    if !file.try_lock_shared() {
        // The lead has ended, and a later upload has begun.
        return Err(StorageError::refused("open", Rule::UploadRuns));
    }
    Ok(file)
}

/// Waits until the other nodes have ended, and adds what they have stored to the lead's own ranges. If one of them has failed,
/// or the transfer is cancelled meanwhile, the transfer has failed, but this call returns no error: the file stays for a restart.
///
/// # Errors
///
/// When the content may be wrong: two nodes have stored the same bytes, or one of them may have lost some.
pub(super) fn join(
    context: &Context,
    companions: &Arc<dyn Companions>,
    own: RangeSet,
) -> Result<RangeSet, TransferError> {
    match wait(context, companions) {
        Ok(others) => {
            let mut all = own;
            for range in others.iter() {
                all.insert_disjoint(range).map_err(PeerError::from)?;
            }
            Ok(all)
        }
        Err(error @ TransferError::Lost(_)) => Err(error),
        Err(error) => {
            context.running.fail(error);
            Ok(own)
        }
    }
}

/// Waits on another thread, so that a cancellation ends the transfer although nothing wakes that thread: a later upload of
/// the same file cancels this one without any session's knowledge.
fn wait(context: &Context, companions: &Arc<dyn Companions>) -> Result<RangeSet, TransferError> {
    let (sender, ended) = mpsc::sync_channel(1);
    let companions = companions.clone();
    context.resources.threads.run(move || {
        // The lead may have been cancelled.
        let _ = sender.send(companions.wait());
    })?;
    loop {
        match ended.recv_timeout(CANCEL_CHECK) {
            Ok(stored) => return stored,
            Err(RecvTimeoutError::Timeout) if context.running.cancel.is_cancelled() => {
                return Err(ChannelError::Cancelled.into());
            }
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => return Err(TransferError::panicked()),
        }
    }
}
