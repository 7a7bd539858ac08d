//! Looks at directories of the copy on a server before the walk is there.
//!
//! ```text
//!   reader of the source ──> [hints] ──> previewer, with a session of its own
//!          │                                  │ what the directory of the copy has
//!          └──> [entries] ──> walk <──────────┘
//! ```
//!
//! Without it, the server waits while the walk compares a directory, and the walk waits while the server lists the next one. What
//! fails here is done by the walk, which has the error.

use std::collections::HashMap;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc, oneshot};

use super::job::Place;
use super::looked::{Had, Looked, look_remote};
use super::shared::Shared;
use crate::listing::Lister;
use crate::location::Url;

/// The entries of directories that the walk has not reached. Larger directories are left to the walk.
const ENTRIES: u32 = 100_000;

/// Directories that wait to be looked at: the walk lists further ones itself.
const HINTS: usize = 64;

/// After so many directories in a row that are not there, the copy is a new one.
const MISSES: u32 = 16;

/// Names directories to a task that looks at them.
#[derive(Debug)]
pub(super) struct Previewer(mpsc::Sender<Hint>);

/// What a directory of the copy has, as soon as that is known.
#[derive(Debug)]
pub(super) struct Preview(oneshot::Receiver<Seen>);

#[derive(Debug)]
struct Hint {
    /// Beneath the root of the tree.
    directory: PathBuf,
    tell: oneshot::Sender<Seen>,
}

#[derive(Debug)]
struct Seen {
    had: HashMap<Vec<u8>, Had>,
    _room: OwnedSemaphorePermit,
}

impl Previewer {
    /// Looks at directories beneath this one. `None` if they are not looked at, or are on this machine, where a look is quick.
    pub(super) fn start(shared: &Arc<Shared>, destination: &Place) -> Option<Self> {
        let Place::Remote(url) = destination else {
            return None;
        };
        shared.looks().then(|| {
            let (sender, hints) = mpsc::channel(HINTS);
            tokio::spawn(serve(Arc::clone(shared), url.clone(), hints));
            Self(sender)
        })
    }

    /// The walk will come to this directory, given beneath the root of the tree. Never waits.
    pub(super) fn hint(&self, directory: &Path) -> Option<Preview> {
        let (tell, seen) = oneshot::channel();
        let directory = directory.to_owned();
        self.0.try_send(Hint { directory, tell }).ok()?;
        Some(Preview(seen))
    }
}

impl Preview {
    /// The entries. `None`: the walk has to look itself.
    pub(super) async fn entries(self) -> Option<HashMap<Vec<u8>, Had>> {
        self.0.await.ok().map(|seen| seen.had)
    }
}

/// Looks at directories until the walk names no more. `None` after a failure.
async fn serve(shared: Arc<Shared>, root: Url, mut hints: mpsc::Receiver<Hint>) -> Option<()> {
    // Most trees that are copied for the first time have no directories there, and small ones none beneath.
    let mut next = hints.recv().await;
    let mut session = shared.session(&root.server).await.ok()?;
    let lister = Lister::new(&shared.machine).ok()?;
    let how = shared.arguments.data.channels.listings(&session);
    let room = Arc::new(Semaphore::new(ENTRIES as usize));
    let mut missing: Option<PathBuf> = None;
    let mut misses = 0;
    while let Some(Hint { directory, tell }) = next {
        let is_beneath = |missing: &PathBuf| directory.starts_with(missing);
        if !tell.is_closed() && !missing.as_ref().is_some_and(is_beneath) {
            let names = directory.iter();
            let url = names.fold(root.clone(), |url, name| url.join(name.as_bytes()));
            let path = url.argument().ok()?;
            // It waits with the walk.
            if session.has_ended().await {
                session = shared.session(&root.server).await.ok()?;
            }
            let looked = look_remote(&mut session, &lister, (&path, &how), ENTRIES as usize).await;
            match looked {
                Ok(Looked::Entries(had)) => {
                    misses = 0;
                    let count = u32::try_from(had.len()).ok()?;
                    let room = Arc::clone(&room).acquire_many_owned(count).await.ok()?;
                    // The walk may have left the tree.
                    let _ = tell.send(Seen { had, _room: room });
                }
                Ok(Looked::Missing(_)) => (missing, misses) = (Some(directory), misses + 1),
                Ok(Looked::TooMany) => {}
                Err(_) if !session.is_usable() => return None,
                Err(_) => {}
            }
        }
        next = match misses < MISSES {
            true => hints.recv().await,
            false => None,
        };
    }
    shared.give_back(session);
    Some(())
}
