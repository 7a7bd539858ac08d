//! Copies into their own source.
//!
//! A server may serve the directory that its files are copied to. Then the copy is a part of the source, and would be copied into itself,
//! level by level. Names do not show that: the server has its own root, and hosts have several names. So a directory of the
//! source with the name of the destination is probed: a directory that is made in one of them is in the other as well. One such directory
//! serves for all directories of a walk.
//!
//! A copy that is interrupted removes its directory. One that is killed leaves it, and a later one that lists the same destination removes it.

use std::os::unix::ffi::OsStrExt as _;

use gridhaul_transfer::Admission;
use tokio::task::block_in_place;

use super::error::CopyError;
use super::job::Place;
use super::left::{Left, new_name, old_ones};
use super::renewed::Renewed;
use super::shared::Shared;
use crate::session::Session;

/// Finds the destination of a walk in its source. Ends with [`Probe::end`], which removes what was made.
///
/// What cannot be found out is no: walks have an end in any case.
pub(super) struct Probe<'a> {
    shared: &'a Shared,
    destination: &'a Place,
    /// The last component of the destination.
    name: Option<Vec<u8>>,
    state: State,
    /// What earlier copies have left in the destination. It is empty once the old ones are removed.
    left: Vec<Left>,
}

enum State {
    /// No directory had the name yet.
    Unused,
    /// The directory that was made in the destination, and its name.
    Made(Place, String),
    /// None can be made.
    Refused,
}

impl<'a> Probe<'a> {
    /// `left` is what earlier copies have left in the destination, as far as that is known.
    pub(super) fn new(shared: &'a Shared, destination: &'a Place, left: Vec<Left>) -> Self {
        Self {
            shared,
            destination,
            name: name(destination),
            state: State::Unused,
            left,
        }
    }

    /// Whether the source of the walk is its destination. Leaves nothing: what the source has is listed next.
    ///
    /// # Errors
    ///
    /// When the server of the source does not answer.
    pub(super) async fn is_source(
        &mut self,
        session: Option<&mut Renewed<'_>>,
        source: &Place,
    ) -> Result<bool, CopyError> {
        let found = self.is_at(session, source).await;
        self.end().await;
        found
    }

    /// Whether a directory of the source is the destination. `session` is one with the server of the source.
    ///
    /// # Errors
    ///
    /// When the server of the source does not answer.
    pub(super) async fn is_at(
        &mut self,
        session: Option<&mut Renewed<'_>>,
        source: &Place,
    ) -> Result<bool, CopyError> {
        if self.name.as_deref() != Some(source.name()) || self.shared.arguments.dry_run {
            return Ok(false);
        }
        if matches!(self.state, State::Unused) {
            self.state = self.begin().await;
            self.remove_old().await;
        }
        match &self.state {
            State::Made(_, name) => has(session, &source.join(name.as_bytes())).await,
            State::Unused | State::Refused => Ok(false),
        }
    }

    async fn begin(&self) -> State {
        let name = new_name();
        let place = self.destination.join(name.as_bytes());
        // An interruption may come before the reply.
        self.shared.made().push(place.clone());
        let state = match make(self.shared, &place).await {
            Made::Yes => return State::Made(place, name),
            Made::No => State::Refused,
            Made::Unclear => {
                remove(self.shared, &place).await;
                State::Unused
            }
        };
        self.shared.made().retain(|made| *made != place);
        state
    }

    /// Removes what earlier copies of this user have left in the destination, once.
    async fn remove_old(&mut self) {
        let State::Made(_, name) = &self.state else {
            return;
        };
        let left = std::mem::take(&mut self.left);
        for old in old_ones(self.shared, self.destination, name.as_bytes(), &left).await {
            remove(self.shared, &self.destination.join(&old)).await;
        }
    }

    /// Removes what was made.
    pub(super) async fn end(&mut self) {
        if let State::Made(place, _) = &self.state {
            remove(self.shared, place).await;
            self.shared.made().retain(|made| made != place);
            self.state = State::Unused;
        }
    }
}

/// Removes what walks have made that were interrupted.
pub(super) async fn remove_made(shared: &Shared) {
    let made = std::mem::take(&mut *shared.made());
    for place in made {
        remove(shared, &place).await;
    }
}

/// The last component, without links on this machine.
fn name(destination: &Place) -> Option<Vec<u8>> {
    match destination {
        Place::Local { root, beneath, .. } => {
            let path = root.join(beneath);
            Some(path.file_name()?.as_bytes().to_vec())
        }
        Place::Remote(_) => Some(destination.name().to_vec()),
    }
}

/// Whether a directory was made.
enum Made {
    Yes,
    No,
    /// The session has ended before the reply.
    Unclear,
}

async fn make(shared: &Shared, place: &Place) -> Made {
    match place {
        Place::Local { root, beneath, .. } => {
            let Ok(files) = shared.files(root, Admission::none()) else {
                return Made::No;
            };
            match block_in_place(|| files.storage().make_directory(beneath)) {
                Ok(()) => Made::Yes,
                Err(_) => Made::No,
            }
        }
        Place::Remote(url) => {
            let (Ok(path), Ok(mut session)) = (url.argument(), shared.session(&url.server).await)
            else {
                return Made::No;
            };
            let made = session.make_new_directory(&path).await;
            let made = match made {
                Ok(()) => Made::Yes,
                Err(_) if session.is_usable() => Made::No,
                Err(_) => Made::Unclear,
            };
            shared.give_back(session);
            made
        }
    }
}

/// Removes a directory, if it is empty.
async fn remove(shared: &Shared, place: &Place) {
    match place {
        Place::Local { root, beneath, .. } => {
            if let Ok(files) = shared.files(root, Admission::none()) {
                let _ = block_in_place(|| files.storage().remove_directory(beneath));
            }
        }
        Place::Remote(url) => {
            let Ok(path) = url.argument() else { return };
            // An idle session may have ended since it was used: the second one is new.
            for _ in 0..2 {
                let Ok(mut session) = shared.session(&url.server).await else {
                    return;
                };
                let _ = session.remove(&path, true).await;
                let has_replied = session.is_usable();
                shared.give_back(session);
                if has_replied {
                    return;
                }
            }
        }
    }
}

async fn has(session: Option<&mut Renewed<'_>>, place: &Place) -> Result<bool, CopyError> {
    match (place, session) {
        (Place::Remote(url), Some(session)) => {
            let path = url.argument()?;
            let is_directory = async |session: &mut Session| {
                let found = session.is_directory(&path).await;
                found.map_err(CopyError::Source)
            };
            Ok(session.retried(place, is_directory).await? == Some(true))
        }
        (Place::Remote(_), None) => Ok(false),
        (Place::Local { path, .. }, _) => Ok(path.is_dir()),
    }
}
