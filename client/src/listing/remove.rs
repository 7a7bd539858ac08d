//! Removes directories of servers with all that they have.

use super::{DEPTH, Lister, ListingError, ListingSettings};
use crate::control::ControlError;
use crate::location::{LocationError, Url};
use crate::session::Session;

/// Why a directory is not removed, or not all of it.
#[derive(Debug, thiserror::Error)]
pub enum RemoveError {
    /// Listings of the server show a link as what it leads to.
    #[error(
        "this server does not tell links from directories, and what a link leads to could be removed: remove the files one by one"
    )]
    Links,
    /// There are too many levels.
    #[error("directories beneath more than {DEPTH} others are not removed")]
    Deep,
    /// A name cannot be sent.
    #[error(transparent)]
    Name(#[from] LocationError),
    /// A directory cannot be listed.
    #[error(transparent)]
    Listing(#[from] ListingError),
    /// The server refuses, or the session has ended.
    #[error(transparent)]
    Server(#[from] ControlError),
}

/// Removes a directory. Links are removed, and not what they lead to.
///
/// # Errors
///
/// When the server refuses, or does not say what is a link. A part of the directory may be gone then.
pub async fn remove_tree(
    session: &mut Session,
    lister: &Lister,
    directory: &Url,
    how: &ListingSettings,
) -> Result<(), RemoveError> {
    if !session.tells_links() {
        return Err(RemoveError::Links);
    }
    let listing = lister.list(session, &directory.argument()?, how).await?;
    let mut levels = vec![(directory.clone(), listing)];
    while let Some((here, listing)) = levels.last_mut() {
        let Some(entry) = listing.next() else {
            session.remove(&here.argument()?, true).await?;
            levels.pop();
            continue;
        };
        let entry = entry?;
        let within = here.join(&entry.name);
        if !entry.facts.is_real_directory() {
            session.remove(&within.argument()?, false).await?;
            continue;
        }
        if levels.len() >= DEPTH {
            return Err(RemoveError::Deep);
        }
        let listing = lister.list(session, &within.argument()?, how).await?;
        levels.push((within, listing));
    }
    Ok(())
}
