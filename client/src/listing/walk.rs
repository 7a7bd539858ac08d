//! Walks through directories of servers.
//!
//! At most one listing for each level is open, so a tree of a million entries needs little memory.

use std::collections::VecDeque;
use std::iter::Peekable;

use super::{DEPTH, Entry, Lister, Listing, ListingError, ListingSettings};
use crate::location::{LocationError, Url};
use crate::session::Session;

/// Why a directory is not walked through, or not to its end. The walk continues with the next entry.
#[derive(Debug, thiserror::Error)]
#[error("{directory}: {reason}")]
pub struct WalkError {
    /// The directory.
    pub directory: Url,
    /// The reason.
    #[source]
    pub reason: WalkReason,
}

/// Why a directory is not walked through.
#[derive(Debug, thiserror::Error)]
pub enum WalkReason {
    /// There are too many levels; links that lead back may be the reason.
    #[error("directories beneath more than {DEPTH} others are left out")]
    Deep,
    /// A name cannot be sent.
    #[error(transparent)]
    Name(#[from] LocationError),
    /// It cannot be listed.
    #[error(transparent)]
    Listing(#[from] ListingError),
}

/// An entry of a tree.
#[derive(Debug)]
pub struct Step {
    /// Where it is.
    pub url: Url,
    /// Its name, and what the server says about it.
    pub entry: Entry,
    /// 1 for the entries of the directory that the walk began with.
    pub depth: usize,
    /// Whether its directory has no further entries.
    pub is_last: bool,
}

/// A walk through a directory: each directory comes before its content. Links are not followed where the server tells them
/// from directories.
#[derive(Debug)]
pub struct TreeWalk<'a> {
    session: &'a mut Session,
    lister: &'a Lister,
    how: ListingSettings,
    /// Entries of the open directories that are sorted, at most.
    sorted: usize,
    levels: Vec<Level>,
    /// The directory that comes next.
    next: Option<Url>,
}

#[derive(Debug)]
struct Level {
    directory: Url,
    /// The first entries, by their names.
    sorted: VecDeque<Entry>,
    /// The others, in the order of the server.
    rest: Peekable<Listing>,
}

impl<'a> TreeWalk<'a> {
    /// Begins a walk. The first `sorted` entries of the open directories come by their names.
    pub fn new(
        session: &'a mut Session,
        lister: &'a Lister,
        how: ListingSettings,
        (directory, sorted): (&Url, usize),
    ) -> Self {
        Self {
            session,
            lister,
            how,
            sorted,
            levels: Vec::new(),
            next: Some(directory.clone()),
        }
    }

    /// The session, for commands between two steps.
    pub fn session(&mut self) -> &mut Session {
        self.session
    }

    /// The next entry; `None` at the end, and after the session has ended.
    pub async fn next(&mut self) -> Option<Result<Step, WalkError>> {
        if let Some(directory) = self.next.take()
            && let Err(reason) = self.enter(&directory).await
        {
            if !self.session.is_usable() {
                self.levels.clear();
            }
            return Some(Err(WalkError { directory, reason }));
        }
        loop {
            let depth = self.levels.len();
            let level = self.levels.last_mut()?;
            match level.next() {
                None => {
                    self.levels.pop();
                }
                Some(Ok(entry)) => {
                    let url = level.directory.join(&entry.name);
                    let is_last = level.is_at_end();
                    if entry.facts.is_real_directory() {
                        self.next = Some(url.clone());
                    }
                    return Some(Ok(Step {
                        url,
                        entry,
                        depth,
                        is_last,
                    }));
                }
                Some(Err(error)) => {
                    let directory = level.directory.clone();
                    let reason = error.into();
                    self.levels.pop();
                    return Some(Err(WalkError { directory, reason }));
                }
            }
        }
    }

    async fn enter(&mut self, directory: &Url) -> Result<(), WalkReason> {
        if self.levels.len() >= DEPTH {
            return Err(WalkReason::Deep);
        }
        let path = directory.argument()?;
        let mut listing = self.lister.list(self.session, &path, &self.how).await?;
        let remembered = self.levels.iter().map(|level| level.sorted.len());
        let room = self.sorted.saturating_sub(remembered.sum());
        let sorted = listing.by_ref().take(room);
        let mut sorted = sorted.collect::<Result<Vec<_>, _>>()?;
        sorted.sort_by(|one, other| one.name.cmp(&other.name));
        self.levels.push(Level {
            directory: directory.clone(),
            sorted: sorted.into(),
            rest: listing.peekable(),
        });
        Ok(())
    }
}

impl Level {
    fn next(&mut self) -> Option<Result<Entry, ListingError>> {
        match self.sorted.pop_front() {
            Some(entry) => Some(Ok(entry)),
            None => self.rest.next(),
        }
    }

    fn is_at_end(&mut self) -> bool {
        self.sorted.is_empty() && self.rest.peek().is_none()
    }
}
