//! Files of a failed pipeline whose names may have the content of other files at the destination ([`Doubt`]).
//!
//! The rule for each file without a result: it is copied again, and what is there never counts because of its size.
//!
//! - One that the destination has confirmed is removed before, because the copy may fail, and no old file is lost.
//! - One about which the destination has not said enough stays, because it may be an old file that no data has reached. If the copy
//!   fails, the times of changes say more: a server stores the files of a session one after the other, so one that was changed before the
//!   last file that was complete before the doubt is an old one. Else the error says that the content is doubtful. An equal second is no
//!   proof, and neither are times that copies get from their sources.

use std::sync::Arc;

use gridhaul_protocol::path::PathArgument;

use super::super::job::Place;
use super::super::version::Version;
use super::{Taken, Worker, open};
use crate::control::ControlError;
use crate::location::Url;
use crate::session::Session;
use crate::transfer::Doubt;

/// Follows the error of a file.
const WORDS: &str = "; the destination may have wrong content under this name: do not use it";

/// What the destination may have under the name of a file, after pipelines that have failed.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Doubted {
    what: Doubt,
    /// The last file that was complete before the first of these pipelines failed: what was changed before it is old.
    last: Option<Url>,
}

impl Doubted {
    /// Adds the doubt of a pipeline; `last` was complete before it failed. A further pipeline makes a doubt greater only.
    pub(super) fn add(known: &mut Option<Self>, what: Doubt, last: Option<&Url>) {
        match known {
            Some(known) if what == Doubt::Stored => known.what = what,
            Some(_) => {}
            None => {
                let last = last.cloned();
                *known = Some(Self { what, last });
            }
        }
    }

    /// The words about a file of which nothing more is found out.
    pub(super) fn words(doubted: Option<&Self>) -> &'static str {
        doubted.map_or("", |_| WORDS)
    }
}

impl Worker {
    /// Removes what a server has stored for files without a result.
    pub(super) async fn remove_doubtful(&mut self) {
        let shared = Arc::clone(&self.shared);
        let is_stored = |taken: &&mut Taken| {
            let doubt = taken.doubt.as_ref();
            doubt.is_some_and(|doubt| doubt.what == Doubt::Stored)
        };
        for taken in self.taken.iter_mut().filter(is_stored) {
            let Place::Remote(url) = &taken.job.destination else {
                continue;
            };
            let Ok(path) = url.argument() else {
                continue;
            };
            // Each further file would wait as long for the server.
            let Ok(session) = open(&mut self.destination, &shared, &url.server).await else {
                return;
            };
            match session.remove(&path, false).await {
                Ok(()) => taken.doubt = None,
                // The next pipeline that fails tries it again.
                Err(ControlError::Refused { .. }) => {}
                // The copy of the file has the error of the server.
                Err(_) => return,
            }
        }
    }

    /// What the error of a file has to say about the one at the destination.
    pub(super) async fn words_of_doubt(&mut self, taken: &Taken) -> &'static str {
        match (&taken.doubt, &taken.job.destination) {
            (Some(doubt), Place::Remote(url))
                if doubt.what == Doubt::Unknown
                    && self.is_harmless(url, doubt.last.as_ref()).await =>
            {
                ""
            }
            (doubt, _) => Doubted::words(doubt.as_ref()),
        }
    }

    /// Whether the server is known to have an old file, an empty one or none there. `last` was complete before the file was in doubt.
    async fn is_harmless(&mut self, url: &Url, last: Option<&Url>) -> bool {
        let shared = Arc::clone(&self.shared);
        if shared.gives_up().is_some() {
            return false;
        }
        let (Ok(path), Ok(session)) = (
            url.argument(),
            open(&mut self.destination, &shared, &url.server).await,
        ) else {
            return false;
        };
        match session.size(&path).await {
            // Files that are there have sizes.
            Ok(Some(0)) => return true,
            // Other refusals may be about the server itself, or pass.
            Err(error) if error.is_about_absence() => return true,
            Ok(_) => {}
            Err(_) => return false,
        }
        let last = last.filter(|last| last.server == url.server && !shared.arguments.keeps_times());
        match last.map(Url::argument) {
            Some(Ok(last)) => is_older(session, &path, &last).await,
            _ => false,
        }
    }
}

/// Whether a file is known to be older than another one, in seconds of the same server.
async fn is_older(session: &mut Session, path: &PathArgument, than: &PathArgument) -> bool {
    let one = Version::of_facts(session, path).await;
    let other = Version::of_facts(session, than).await;
    match (one, other) {
        (Ok(one), Ok(other)) => !one.may_be_newer_than(&other) && !one.has_time_of(&other),
        _ => false,
    }
}
