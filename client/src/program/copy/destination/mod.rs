//! The directories of the copy: makes them, knows what they have already, and removes what the source has not.

mod leaving;

use std::collections::HashMap;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;
use std::sync::Arc;

use gridhaul_storage::{FileKind, Storage, StorageErrorKind, UploadForm, is_unfinished_upload};
use gridhaul_transfer::Admission;
use tokio::task::block_in_place;

use super::super::arguments::SyncArgument;
use super::error::CopyError;
use super::job::Place;
use super::left::{Left, is_name};
use super::looked::{Had, Looked, look_local, look_remote};
use super::preview::Preview;
use super::renewed::Renewed;
use super::shared::Shared;
use super::version::Version;
use crate::listing::Lister;
use crate::location::Url;
use crate::session::{Facts, Session};

/// The entries of all open directories that are remembered. Those of larger ones are looked up one by one.
const REMEMBERED: usize = 100_000;

/// The directories of the copy.
pub(super) struct Destination<'a> {
    shared: &'a Shared,
    /// The files of this machine.
    storage: Option<Arc<dyn Storage>>,
    remote: Option<Remote<'a>>,
    /// The directory that is walked, and those above it.
    levels: Vec<Level>,
}

/// The server of the copy.
struct Remote<'a> {
    session: Renewed<'a>,
    lister: Lister,
}

/// A directory that is walked.
struct Level {
    place: Place,
    /// What it had before. `None`: too much, or it is not looked at.
    had: Option<HashMap<Vec<u8>, Had>>,
    /// It had unfinished uploads.
    has_unfinished: bool,
    /// All entries of the source are known, so that the others can be removed.
    is_complete: bool,
}

impl Level {
    fn new(place: &Place, had: Option<HashMap<Vec<u8>, Had>>) -> Self {
        let mut names = had.iter().flat_map(HashMap::keys);
        let is_unfinished = |name: &Vec<u8>| is_unfinished_upload(path_of(name));
        Self {
            place: place.clone(),
            has_unfinished: names.any(is_unfinished),
            had,
            is_complete: true,
        }
    }

    /// The source has an entry of this name: what the directory has of it stays, also an unfinished upload, which its copy may continue.
    /// Returns the entry.
    fn keep(&mut self, name: &[u8]) -> Option<&Had> {
        let had = self.had.as_mut()?;
        let forms = UploadForm::ALL.iter().filter(|_| self.has_unfinished);
        for path in forms.filter_map(|form| form.unfinished(path_of(name))) {
            if let Some(had) = had.get_mut(path.as_os_str().as_bytes()) {
                had.stays = true;
            }
        }
        let had = had.get_mut(name)?;
        had.stays = true;
        Some(had)
    }
}

fn path_of(name: &[u8]) -> &Path {
    Path::new(OsStr::from_bytes(name))
}

impl<'a> Destination<'a> {
    pub(super) fn new(shared: &'a Shared) -> Self {
        Self {
            shared,
            storage: None,
            remote: None,
            levels: Vec::new(),
        }
    }

    /// Makes a directory, if there is none, and looks at what it has, unless there is a preview of that.
    pub(super) async fn enter(
        &mut self,
        place: &Place,
        preview: Option<Preview>,
    ) -> Result<(), CopyError> {
        let arguments = &self.shared.arguments;
        let was_there = self.had_directory(place);
        match (arguments.dry_run, self.levels.is_empty()) {
            (true, _) => {}
            (false, true) => self.make_all(place).await?,
            (false, false) if was_there => {}
            (false, false) => self.make(place).await?,
        }
        let had = match self.shared.looks() {
            true => self.entries(place, was_there, preview).await?,
            false => None,
        };
        self.levels.push(Level::new(place, had));
        Ok(())
    }

    /// What earlier copies may have left in the directory that is walked. Nothing if its entries are not known, or if what the source
    /// does not have is removed in any case.
    pub(super) fn left(&self) -> Vec<Left> {
        let had = self.levels.last().and_then(|level| level.had.as_ref());
        let had = had.filter(|_| !self.shared.arguments.delete);
        let directories = had.into_iter().flatten();
        let left = directories.filter(|(name, had)| had.is_directory && is_name(name));
        let left = left.map(|(name, had)| Left {
            name: name.clone(),
            modified: had.version.modified,
        });
        left.collect()
    }

    /// Whether the directory that is walked had this directory before.
    fn had_directory(&self, place: &Place) -> bool {
        let had = self.levels.last().and_then(|level| level.had.as_ref());
        let had = had.and_then(|had| had.get(place.name()));
        had.is_some_and(|had| had.is_directory)
    }

    /// Goes up to the directory of `place`, whose source has an entry of this name. What fails in the directories that are left is
    /// reported as theirs.
    pub(super) async fn go_to_parent_of(&mut self, place: &Place) {
        let is_elsewhere = |level: &Level| !place.is_in(&level.place);
        while self.levels.last().is_some_and(is_elsewhere) {
            self.leave().await;
        }
        if let Some(level) = self.levels.last_mut() {
            level.keep(place.name());
        }
    }

    /// The source of `place`, or of an entry with this name, cannot be read: nothing is removed from this directory, or from the one
    /// that it is in.
    pub(super) fn spoil(&mut self, place: &Place) {
        let above = place.parent();
        let levels = self.levels.iter_mut();
        for level in levels.filter(|level| level.place == *place || level.place == above) {
            level.is_complete = false;
        }
    }

    /// The walk ends early: nothing is removed from the directories that are open.
    pub(super) fn spoil_all(&mut self) {
        for level in &mut self.levels {
            level.is_complete = false;
        }
    }

    /// Leaves all directories. What fails there is reported.
    pub(super) async fn finish(&mut self) {
        while !self.levels.is_empty() {
            self.leave().await;
        }
        if let Some(remote) = self.remote.take() {
            remote.session.end();
        }
    }

    /// Whether this version of a file need not be copied: the destination has it, and not what an earlier run has left of it.
    pub(super) async fn has(
        &mut self,
        source: &Place,
        place: &Place,
        known: Version,
    ) -> Result<bool, CopyError> {
        let Some(sync) = self.sync() else {
            return Ok(false);
        };
        let there = self.version(place).await?;
        let is_there = there.is_some_and(|there| is_enough(sync, there, known));
        Ok(is_there && !self.shared.journal.has_begun(source, place, known))
    }

    /// Whether this is the directory that is walked.
    pub(super) fn is_at(&self, place: &Place) -> bool {
        let level = self.levels.last();
        level.is_some_and(|level| level.place == *place)
    }

    /// As [`Self::has`], for an entry of the directory that is walked, whose source has a file of this name. `false` if what the
    /// directory has is not remembered.
    pub(super) fn has_entry(&mut self, above: &Place, name: &[u8], known: Version) -> bool {
        let Some((sync, level)) = self.sync().zip(self.levels.last_mut()) else {
            return false;
        };
        let there = level.keep(name).and_then(Had::file);
        let is_there = there.is_some_and(|there| is_enough(sync, there, known));
        let journal = &self.shared.journal;
        // Names are put together only where there is something to find.
        let has_begun = is_there && journal.has_partial() && {
            let [source, place] = [above, &level.place].map(|place| place.join(name));
            journal.has_begun(&source, &place, known)
        };
        is_there && !has_begun
    }

    /// How versions are compared here. The worker computes checksums.
    fn sync(&self) -> Option<SyncArgument> {
        let sync = self.shared.arguments.sync;
        sync.filter(|sync| *sync != SyncArgument::Checksum)
    }

    /// The regular file that the destination has: nothing else is enough.
    async fn version(&mut self, place: &Place) -> Result<Option<Version>, CopyError> {
        if let Some(Level { had: Some(had), .. }) = self.levels.last() {
            return Ok(had.get(place.name()).and_then(Had::file));
        }
        match place {
            Place::Local { root, beneath, .. } => {
                let storage = self.storage(root)?;
                let found = block_in_place(|| storage.stat(beneath)).ok();
                let found = found.filter(|found| found.kind == FileKind::File);
                Ok(found.map(|found| Version {
                    size: Some(found.size),
                    modified: Some(found.modified),
                    mode: None,
                }))
            }
            Place::Remote(url) => {
                let Remote { session, .. } = self.remote(url)?;
                let facts = session.facts(place, url, CopyError::Destination);
                let facts = facts.await?.filter(Facts::may_be_file);
                Ok(facts.map(Version::from))
            }
        }
    }

    /// Makes a directory and those above it, if there are none.
    pub(super) async fn make_all(&mut self, place: &Place) -> Result<(), CopyError> {
        let made = self.make(place).await;
        let above = place.parent();
        if made.is_ok() || above == *place || self.has_lost() {
            return made;
        }
        Box::pin(self.make_all(&above)).await?;
        self.make(place).await
    }

    async fn make(&mut self, place: &Place) -> Result<(), CopyError> {
        match place {
            Place::Local { root, beneath, .. } => {
                let storage = self.storage(root)?;
                block_in_place(|| make_local(&*storage, beneath))
            }
            Place::Remote(url) => {
                let path = url.argument()?;
                let make = async |session: &mut Session| {
                    let made = session.make_directory(&path).await;
                    made.map_err(CopyError::Destination)
                };
                self.remote(url)?.session.retried(place, make).await
            }
        }
    }

    /// The entries of a directory, if they are not too many. Makes it if it `was_there`, by the listing of the one above, and is not any
    /// more.
    async fn entries(
        &mut self,
        place: &Place,
        was_there: bool,
        preview: Option<Preview>,
    ) -> Result<Option<HashMap<Vec<u8>, Had>>, CopyError> {
        if let Some(preview) = preview
            && let Some(had) = preview.entries().await
        {
            return Ok((had.len() <= self.room()).then_some(had));
        }
        match self.look(place).await? {
            // Nothing was made.
            Looked::Missing(_) if self.shared.arguments.dry_run => Ok(Some(HashMap::new())),
            Looked::Missing(_) if was_there => {
                self.make(place).await?;
                self.look(place).await?.entries()
            }
            looked => looked.entries(),
        }
    }

    /// The entries of a further directory that can be remembered.
    fn room(&self) -> usize {
        let open = self.levels.iter().filter_map(|level| level.had.as_ref());
        REMEMBERED.saturating_sub(open.map(HashMap::len).sum())
    }

    async fn look(&mut self, place: &Place) -> Result<Looked, CopyError> {
        let room = self.room();
        match place {
            Place::Local { root, beneath, .. } => {
                let storage = self.storage(root)?;
                block_in_place(|| look_local(&*storage, beneath, room))
            }
            Place::Remote(url) => {
                let (path, channels) = (url.argument()?, &self.shared.arguments.data.channels);
                let Remote { session, lister } = self.remote(url)?;
                let look = async |session: &mut Session| {
                    let how = channels.listings(session);
                    look_remote(session, lister, (&path, &how), room).await
                };
                session.retried(place, look).await
            }
        }
    }

    /// The files beneath the root of this copy, which is the same for all of it.
    fn storage(&mut self, root: &Path) -> Result<Arc<dyn Storage>, CopyError> {
        let storage = match &self.storage {
            Some(storage) => Arc::clone(storage),
            // Nothing is transferred.
            None => {
                let files = self.shared.files(root, Admission::none())?;
                files.storage()
            }
        };
        self.storage = Some(Arc::clone(&storage));
        Ok(storage)
    }

    fn remote(&mut self, url: &Url) -> Result<&mut Remote<'a>, CopyError> {
        let remote = match self.remote.take() {
            Some(remote) => remote,
            None => Remote {
                session: Renewed::new(self.shared, &url.server),
                lister: Lister::new(&self.shared.machine)
                    .map_err(|error| CopyError::DestinationListing(Box::new(error)))?,
            },
        };
        Ok(self.remote.insert(remote))
    }

    /// Whether the server has not answered at last: what follows would wait for it, too.
    fn has_lost(&self) -> bool {
        let is_lost = |remote: &Remote<'_>| !remote.session.is_usable();
        self.remote.as_ref().is_some_and(is_lost)
    }
}

/// Whether what is `there` need not be replaced by the version that is `known`.
fn is_enough(sync: SyncArgument, there: Version, known: Version) -> bool {
    match sync {
        SyncArgument::Exists | SyncArgument::Checksum => true,
        SyncArgument::Size => there.has_size_of(&known),
        SyncArgument::Newer => there.has_size_of(&known) && !known.may_be_newer_than(&there),
        SyncArgument::Time => there.has_size_of(&known) && there.has_time_of(&known),
    }
}

fn make_local(storage: &dyn Storage, path: &Path) -> Result<(), CopyError> {
    if path.as_os_str().is_empty() {
        // The root, which is open.
        return Ok(());
    }
    match storage.make_directory(path) {
        Err(error) if error.kind() == StorageErrorKind::Exists => {
            let found = storage.stat(path)?;
            match found.kind {
                FileKind::Directory => Ok(()),
                _ => Err(error.into()),
            }
        }
        made => Ok(made?),
    }
}
