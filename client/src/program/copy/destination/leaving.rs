//! Removes what the source has not when a directory of the copy is left.

use tokio::task::block_in_place;

use super::super::super::interrupt;
use super::super::error::CopyError;
use super::super::job::Place;
use super::{Destination, Remote};
use crate::listing::remove_tree;

impl Destination<'_> {
    /// Leaves the innermost directory, and removes what the source has not. What cannot be removed is reported: it is no failure of the
    /// entry that the walk has come to.
    pub(super) async fn leave(&mut self) {
        let Some(level) = self.levels.pop() else {
            return;
        };
        if !self.shared.arguments.delete || !level.is_complete {
            return;
        }
        let Some(had) = level.had else {
            let message = CopyError::TooMany.to_string();
            let words = level.place.words();
            self.shared.report.remains(&words, &message);
            return;
        };
        let extra = had.into_iter().filter(|(_, had)| !had.stays);
        let mut extra: Vec<_> = extra.collect();
        extra.sort_by(|one, other| one.0.cmp(&other.0));
        for (name, had) in extra {
            // Local removals give the runtime no chance to end the walk.
            if interrupt::has_arrived() {
                return;
            }
            let place = level.place.join(&name);
            let words = place.words();
            let removed = match self.shared.arguments.dry_run {
                true => Ok(()),
                false => self.remove(&place, had.is_directory).await,
            };
            match removed {
                Ok(()) => self.shared.report.removes(&words),
                // It was cancelled.
                Err(_) if interrupt::has_arrived() => return,
                Err(error) => {
                    let is_over = self.has_lost();
                    self.shared
                        .report
                        .remains(&words, &format!("not removed: {error}"));
                    if is_over {
                        return;
                    }
                }
            }
        }
    }

    async fn remove(&mut self, place: &Place, is_directory: bool) -> Result<(), CopyError> {
        match place {
            Place::Local { root, beneath, .. } => {
                let storage = self.storage(root)?;
                Ok(block_in_place(|| match is_directory {
                    true => storage.remove_tree(beneath, &interrupt::has_arrived),
                    false => storage.remove_file(beneath),
                })?)
            }
            Place::Remote(url) if is_directory => {
                let arguments = &self.shared.arguments;
                let Remote { session, lister } = self.remote(url)?;
                let session = session.session().await?;
                let how = arguments.data.channels.listings(session);
                let removed = remove_tree(session, lister, url, &how).await;
                removed.map_err(|error| CopyError::Remove(place.words(), Box::new(error)))
            }
            Place::Remote(url) => {
                let path = url.argument()?;
                let session = self.remote(url)?.session.session().await?;
                let removed = session.remove(&path, false).await;
                removed.map_err(CopyError::Destination)
            }
        }
    }
}
