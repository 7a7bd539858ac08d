//! What has arrived of files that are given up, with `--no-partial`.
//!
//! This machine, and servers with temporary names, have it in a file beside the one with the final name. Other servers have it under the
//! final name, where the client cannot tell it from the file that was there before. So that one is removed only if there was none when the
//! copy of the file began.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use gridhaul_storage::UploadForm;
use gridhaul_transfer::Admission;
use tokio::task::{JoinSet, block_in_place};
use tokio::time::timeout;

use super::super::interrupt::SERVER_GRACE;
use super::error::CopyError;
use super::job::{Begun, Place};
use super::shared::Shared;
use crate::control::ControlError;
use crate::location::Url;
use crate::session::Session;

/// The copy of a file has ended. If it was given up, what has arrived is removed; a whole file only if its content is wrong.
pub(super) async fn ends(shared: &Shared, begun: &Arc<Begun>, error: Option<&CopyError>) {
    if let Some(error) = error {
        remove(shared, begun, error.is_about_content()).await;
    }
    shared.begun().retain(|one| !Arc::ptr_eq(one, begun));
}

/// Removes what has arrived of the files that were under way when the copy was interrupted: of all at once, so that a server that does
/// not answer costs only its own.
pub(super) async fn remove_all(shared: &Arc<Shared>) {
    let begun = std::mem::take(&mut *shared.begun());
    let mut removals = JoinSet::new();
    for one in begun {
        let shared = Arc::clone(shared);
        removals.spawn(async move { timeout(SERVER_GRACE, remove(&shared, &one, false)).await });
    }
    while removals.join_next().await.is_some() {}
}

/// Nothing is removed of a file that another copy may write at the same time: this one has moved no byte of it then, or was told of the
/// other one.
async fn remove(shared: &Shared, begun: &Begun, is_wrong: bool) {
    if !begun.has_moved.load(Ordering::Relaxed) {
        return;
    }
    match &begun.destination {
        Place::Local { root, beneath, .. } => {
            let Ok(files) = shared.files(root, Admission::none()) else {
                return;
            };
            let storage = files.storage();
            let forms = UploadForm::ALL.into_iter();
            for unfinished in forms.filter_map(|form| form.unfinished(beneath)) {
                // It may be of the other form, or not have been kept.
                let _ = block_in_place(|| storage.remove_file(&unfinished));
            }
        }
        Place::Remote(url) => {
            let mut was_unfinished = false;
            // An idle session may have ended since it was used: the second one is new.
            for _ in 0..2 {
                let Ok(mut session) = shared.session(&url.server).await else {
                    return;
                };
                // The error of the copy is what is reported.
                let _ = remove_at(&mut session, url, begun, is_wrong, &mut was_unfinished).await;
                let has_replied = session.is_usable();
                shared.give_back(session);
                if has_replied {
                    return;
                }
            }
        }
    }
}

/// `was_unfinished`: an unfinished upload was removed, so the server has temporary names, and a file with the final name is that of another
/// writer.
async fn remove_at(
    session: &mut Session,
    url: &Url,
    begun: &Begun,
    is_wrong: bool,
    was_unfinished: &mut bool,
) -> Result<(), ControlError> {
    let Ok(path) = url.argument() else {
        return Ok(());
    };
    *was_unfinished |= session.remove_unfinished(&path).await?;
    if *was_unfinished || begun.may_have_had {
        return Ok(());
    }
    let is_whole = match session.size(&path).await {
        Ok(size) => size.is_some() && size == begun.size,
        Err(ControlError::Refused { .. }) => return Ok(()),
        Err(error) => return Err(error),
    };
    // A whole file may have been given up because its time cannot be set.
    match is_whole && !is_wrong {
        true => Ok(()),
        false => session.remove(&path, false).await,
    }
}
